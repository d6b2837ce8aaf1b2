-- Types and functions that the views and functions use. Nothing here reads `metrics`.

-- Whether values are rates: Kwollect's boolean, or `auto` for counters alone. Every text that PostgreSQL accepts as a boolean
-- is a value in its usual cases, because clients send `True` and `1`.
DO $do$ BEGIN
    IF to_regtype('jobmeter.rate') IS NULL THEN
        CREATE TYPE jobmeter.rate AS ENUM (
            'false', 'False', 'FALSE', 'f', 'F', 'no', 'No', 'NO', 'n', 'N', 'off', 'Off', 'OFF', '0',
            'true', 'True', 'TRUE', 't', 'T', 'yes', 'Yes', 'YES', 'y', 'Y', 'on', 'On', 'ON', '1',
            'auto', 'Auto', 'AUTO');
        CREATE FUNCTION jobmeter.as_rate(value boolean) RETURNS jobmeter.rate LANGUAGE sql IMMUTABLE
            AS $rate$ SELECT CASE WHEN value THEN 'true' ELSE 'false' END::jobmeter.rate $rate$;
        CREATE CAST (boolean AS jobmeter.rate) WITH FUNCTION jobmeter.as_rate(boolean) AS IMPLICIT;
    END IF;
END $do$;

-- Labels without a key. Labels of other programs may be any JSON, of which only objects have keys.
CREATE OR REPLACE FUNCTION jobmeter.without(labels jsonb, key text) RETURNS jsonb LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN jsonb_typeof(labels) = 'object' THEN labels - key ELSE labels END $$;

-- The value of a window: the largest of a total, the mean of others.
CREATE OR REPLACE FUNCTION jobmeter.summarized(metric_id text, largest double precision, mean double precision)
    RETURNS double precision LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN right(metric_id, 6) = '_total' THEN coalesce(largest, mean) ELSE mean END $$;

-- The words of a list with commas, without the white space of Unicode around them. Empty words do not count.
CREATE OR REPLACE FUNCTION jobmeter.words(list text) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT word FROM (
        SELECT btrim(part, E' \t\n\u000b\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000')
        FROM unnest(string_to_array(list, ',')) AS part) AS parts (word) WHERE word <> '') $$;

-- An instant of a parameter: seconds since 1970, or a time as PostgreSQL reads it.
CREATE OR REPLACE FUNCTION jobmeter.instant(text) RETURNS timestamptz LANGUAGE sql STABLE
    AS $$ SELECT CASE WHEN $1 ~ '^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$' THEN to_timestamp($1::double precision)
        ELSE $1::timestamptz END $$;

-- Microseconds since 1970 of an instant, also of one beyond what samples have.
CREATE OR REPLACE FUNCTION jobmeter.micros(timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
    AS $$ SELECT CASE WHEN $1 < '0001-01-01 00:00:00+00' THEN -9223372036854775808 WHEN $1 > '9999-12-31 00:00:00+00' THEN 9223372036854775807
        ELSE extract(epoch FROM $1) * 1000000 END::bigint $$;

-- From when on a counter counts since when. Counters of jobs are for roles that may read their samples.
CREATE OR REPLACE VIEW jobmeter.counter_starts WITH (security_barrier) AS
SELECT device_id, metric_id,
    CASE WHEN job_id IS NULL THEN jobmeter.without(labels, '_device_alias')
        ELSE labels || jsonb_build_object('_job_id', job_id::text, '_cluster', cluster) END AS labels,
    'epoch'::timestamptz + at_us * interval '1 microsecond' AS since,
    'epoch'::timestamptz + coalesce(lead(at_us) OVER (PARTITION BY series_id ORDER BY at_us), 4102444800000000)
        * interval '1 microsecond' AS until,
    'epoch'::timestamptz + start_us * interval '1 microsecond' AS start
FROM jobmeter.starts JOIN jobmeter.series ON id = series_id
WHERE job_id IS NULL OR has_table_privilege(current_user, 'jobmeter.job_metrics'::regclass, 'SELECT');

-- The declared metrics that only grow.
CREATE OR REPLACE VIEW jobmeter.counters AS
SELECT name, metric::json->>'kind' = 'counter' AS is_counter FROM jobmeter.catalogue;

-- Growth per second since the reading before. A counter that restarts counts from 0; its first reading counts from its start, if that is
-- within the range and at most ten minutes ago. NULL: there is no reading before, or one is no number.
CREATE OR REPLACE FUNCTION jobmeter.rate_of(
    is_counter boolean, since timestamptz, at timestamptz, value double precision, start timestamptz,
    at_before timestamptz, value_before double precision, start_before timestamptz)
RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN value IN ('NaN', 'Infinity', '-Infinity') OR value_before IN ('NaN', 'Infinity', '-Infinity') THEN NULL
        WHEN at_before IS NULL THEN
            CASE WHEN is_counter AND start >= since AND start < at AND at <= start + interval '10 minutes'
                THEN value / extract(epoch FROM at - start)::double precision END
        WHEN at = at_before THEN NULL
        WHEN is_counter AND (value < value_before OR (start > at_before AND start IS DISTINCT FROM start_before))
            THEN greatest(value, 0) / extract(epoch FROM at - at_before)::double precision
        ELSE (value - value_before) / extract(epoch FROM at - at_before)::double precision
    END $$;

-- A statement whose values are rates. It gets the statement of the values; $2 is the first bound, $6 is true if gauges change, too, and $9 if
-- the values are those of windows. A window's time is its start, so the start of a counter within a window says nothing of its value.
CREATE OR REPLACE FUNCTION jobmeter.rates_of(statement text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'WITH found AS (' || statement || '), kinds AS (
        SELECT found.*, s.start, coalesce(counters.is_counter, right(found.metric_id, 6) = ''_total'') AS is_counter
        FROM found LEFT JOIN jobmeter.counters ON name = found.metric_id
            LEFT JOIN jobmeter.counter_starts AS s ON s.device_id = found.device_id AND s.metric_id = found.metric_id
                AND s.labels = found.labels AND timestamp >= s.since AND timestamp < s.until AND NOT $9)
    SELECT timestamp, device_id, metric_id, CASE WHEN is_counter OR $6 THEN jobmeter.rate_of(is_counter, $2, timestamp, value, start,
        lag(timestamp) OVER w, lag(value) OVER w, lag(start) OVER w) ELSE value END, labels
    FROM kinds WINDOW w AS (PARTITION BY metric_id, device_id, labels ORDER BY timestamp)' $$;
