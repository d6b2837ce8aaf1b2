-- Kwollect's functions. Parameters are values of statements, never part of their text. Tables are named with their schema, so the
-- caller's search path does not matter.

CREATE FUNCTION api.get_metrics(
    job_id integer DEFAULT NULL, nodes text DEFAULT NULL, devices text DEFAULT NULL, metrics text DEFAULT NULL,
    start_time text DEFAULT NULL, end_time text DEFAULT NULL, summary boolean DEFAULT false,
    as_rate jobmeter.rate DEFAULT 'false')
-- Compilation would take seconds: the planner overestimates windows.
RETURNS SETOF public.metrics LANGUAGE plpgsql STABLE SET jit = off AS $$
DECLARE
    is_auto boolean := lower(as_rate::text) = 'auto';
    is_rate boolean := CASE WHEN lower(as_rate::text) = 'auto' THEN false ELSE as_rate::text::boolean END;
    since timestamptz := jobmeter.instant(nullif(start_time, ''));
    until timestamptz := jobmeter.instant(nullif(end_time, ''));
    -- Host names are cut at the first dot. A device of another program may have a dot in its name.
    wanted text[] := ARRAY(SELECT name FROM unnest(jobmeter.words(concat_ws(',', nodes, devices))) AS word,
        unnest(ARRAY[split_part(word, '.', 1), word]) AS name);
    names text[] := nullif(jobmeter.words(metrics), '{}');
    of_job record;
    -- Samples attributed to a job begin and end shortly before and after it, and its windows begin before their first sample.
    before interval := CASE WHEN summary THEN '310 seconds' ELSE '10 seconds' END;
    after interval := '10 seconds';
    -- The bounds of node samples: a window of a node belongs to a job if it begins within the job.
    above text := CASE WHEN summary AND coalesce(start_time, '') = '' THEN '>' ELSE '>=' END;
    below text := CASE WHEN summary AND coalesce(end_time, '') = '' THEN '<' ELSE '<=' END;
    first timestamptz;
    last timestamptz;
    -- Which rows of nodes are in the answer about a job.
    within text := '';
    text text;
BEGIN
    IF job_id IS NULL AND cardinality(wanted) = 0 THEN
        RAISE EXCEPTION 'Missing ''devices'', ''nodes'' or ''job_id'' argument';
    END IF;
    text := 'SELECT timestamp, device_id, metric_id, value, labels FROM '
        || CASE WHEN summary THEN 'jobmeter.windows_by_device' ELSE 'public.metrics_by_device' END
        || ' AS m WHERE device_id = ANY ($1) AND timestamp BETWEEN $2 AND $3'
        || CASE WHEN summary THEN ' AND at_us BETWEEN $7 AND $8' ELSE '' END;
    IF names IS NOT NULL THEN
        text := text || ' AND metric_id = ANY ($4)';
    END IF;
    IF job_id IS NOT NULL THEN
        SELECT min(n.start_time) AS start, max(coalesce(n.stop_time, now())) AS stop, array_agg(DISTINCT n.node) AS nodes,
            count(DISTINCT (n.start_time, n.stop_time)) > 1 AS differs, count(DISTINCT n.cluster) > 1 AS is_ambiguous
        INTO of_job FROM jobmeter.nodetime AS n WHERE n.job_id = get_metrics.job_id;
        IF of_job.nodes IS NULL THEN
            RAISE EXCEPTION 'unknown job %', job_id USING ERRCODE = 'P0002';
        END IF;
        IF of_job.is_ambiguous THEN
            RAISE EXCEPTION 'job % is in several clusters; query metrics_by_job with the cluster', job_id USING ERRCODE = '42702';
        END IF;
        -- Samples of other jobs are not of this one. Samples of a node count while the job had it.
        text := text || ' AND coalesce(m.labels->>''_job_id'' = $5::text, true)';
        within := format('(m.labels->>''_job_id'' IS NOT NULL OR m.timestamp %s $10 AND m.timestamp %s $11)', above, below);
        IF of_job.differs AND since IS NULL AND until IS NULL THEN
            within := within || format(' AND EXISTS (SELECT FROM jobmeter.nodetime AS n WHERE n.job_id = $5 AND n.node = m.device_id'
                || ' AND CASE WHEN m.labels->>''_job_id'' IS NULL'
                || ' THEN m.timestamp %s n.start_time AND m.timestamp %s coalesce(n.stop_time, $3)'
                || ' ELSE m.timestamp BETWEEN n.start_time - %L::interval AND coalesce(n.stop_time + %L::interval, $3) END)',
                above, below, before, after);
        END IF;
        first := coalesce(since, of_job.start - before);
        last := coalesce(until, of_job.stop + after);
        since := coalesce(since, of_job.start);
        until := coalesce(until, of_job.stop);
        IF cardinality(wanted) = 0 THEN
            wanted := of_job.nodes;
        END IF;
    END IF;
    until := coalesce(until, since + interval '5 minutes', now());
    since := coalesce(since, until - interval '5 minutes');
    IF summary AND since <= until AND isfinite(since) AND (job_id IS NULL OR start_time <> '') THEN
        -- A window that the first bound cuts is returned whole. A window belongs to a job if it begins while the job has the node.
        since := 'epoch'::timestamptz + 300 * floor(extract(epoch FROM since) / 300) * interval '1 second';
        first := least(first, since);
    END IF;
    first := coalesce(first, since);
    last := coalesce(last, until);
    IF (is_rate OR is_auto) AND NOT summary AND within <> '' THEN
        -- The first rate counts from the last reading before the job, which is not in the answer.
        text := 'SELECT * FROM (' || jobmeter.rates_of(text) || ') AS m WHERE ' || within;
    ELSE
        text := concat_ws(' AND ', text, nullif(within, ''));
        IF is_rate OR is_auto THEN
            text := jobmeter.rates_of(text);
        END IF;
    END IF;
    RETURN QUERY EXECUTE text || ' ORDER BY timestamp' USING wanted, first, last, names, job_id, is_rate,
        jobmeter.micros(first), jobmeter.micros(last), summary, since, until;
END $$;

CREATE FUNCTION api.available_metrics(at timestamptz DEFAULT now(), params jsonb DEFAULT '{}')
RETURNS TABLE (device_id text, metric_id text) LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
    number integer := substring(params->>'job_id' FROM '^\d{1,9}$');
    until timestamptz := at;
    wanted text[];
BEGIN
    IF number IS NOT NULL THEN
        SELECT least(coalesce(max(stop_time), now()), at), array_agg(DISTINCT node) INTO until, wanted
        FROM jobmeter.nodetime WHERE job_id = number;
        wanted := coalesce(wanted, '{}');
    ELSIF params ? 'devices' THEN
        IF jsonb_typeof(params->'devices') <> 'array' THEN
            RAISE EXCEPTION 'Cannot parse params->devices, should be JSON array';
        END IF;
        wanted := ARRAY(SELECT jsonb_array_elements_text(params->'devices'));
    END IF;
    RETURN QUERY EXECUTE
        'SELECT device_id, metric_id FROM (SELECT DISTINCT device_id, metric_id FROM public.metrics_by_device
            WHERE timestamp < $1 AND timestamp > $1 - interval ''1 minute'''
        || CASE WHEN wanted IS NULL THEN '' ELSE ' AND device_id = ANY ($2)' END
        || ') AS found ORDER BY device_id !~ ''^[a-z]+-\d+$'', split_part(device_id, ''-'', 1),
            substring(split_part(device_id, ''-'', 2) FROM ''\d+'')::numeric NULLS FIRST, device_id, metric_id'
    USING until, wanted;
END $$;

CREATE FUNCTION api.insert_metrics(
    device_id text, metric_id text, "timestamp" timestamptz DEFAULT now(),
    value double precision DEFAULT 'NaN', labels jsonb DEFAULT '{}')
RETURNS SETOF public.metrics LANGUAGE sql AS $$
    INSERT INTO public.metrics (timestamp, device_id, metric_id, value, labels) VALUES ($3, $1, $2, $4, $5)
    RETURNING timestamp, device_id, metric_id, value, labels $$;

-- What a job used, by the statements of the site: an object with the columns of all, in their order.
CREATE FUNCTION api.get_job_metrics(job_id integer) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
    samples public.metrics[] := ARRAY(SELECT m FROM api.get_metrics(job_id => get_job_metrics.job_id, as_rate => 'auto') AS m);
    request record;
    found json;
    keys text[] := '{}';
    found_values json[] := '{}';
BEGIN
    FOR request IN SELECT r.line, r.keys, r.statement FROM jobmeter.job_requests AS r ORDER BY r.line LOOP
        BEGIN
            EXECUTE 'WITH jobmetrics AS (SELECT * FROM unnest($1)) SELECT row_to_json(found) FROM ('
                || request.statement || E'\n) AS found' INTO STRICT found USING samples;
        EXCEPTION
            WHEN no_data_found THEN
                found := NULL;
            WHEN OTHERS THEN
                found := NULL;
                RAISE WARNING 'line % (%): %', request.line, array_to_string(request.keys, ', '), SQLERRM;
        END;
        keys := keys || request.keys;
        found_values := found_values || ARRAY(SELECT found->key FROM unnest(request.keys) AS key);
    END LOOP;
    RETURN (SELECT coalesce(json_object_agg(key, value ORDER BY place), '{}')
        FROM unnest(keys, found_values) WITH ORDINALITY AS answer (key, value, place));
END $$;
