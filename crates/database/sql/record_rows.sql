CREATE OR REPLACE FUNCTION jobmeter.{name}() RETURNS trigger
-- Without statistics the planner would read all of jobmeter.series.
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
    settling bigint := (SELECT settling_us FROM jobmeter.state);
    -- Such a transaction does not see what the server has settled meanwhile.
    is_blind boolean := current_setting('transaction_isolation') <> 'read committed';
BEGIN
    INSERT INTO jobmeter.other_rows (device_id, metric_id, labels, first_us, last_us, rows, is_late)
    SELECT device_id, metric_id, labels, first_us, last_us, rows, is_late FROM (
        SELECT device_id, metric_id, labels, first_us, last_us, rows,
            is_blind OR coalesce(first_us < settling, false) AS is_late,
            md5(device_id || ' ' || metric_id || ' ' || labels) AS hash
        FROM (
            SELECT device_id, metric_id, coalesce(labels::text, 'null') AS labels,
                (floor(extract(epoch FROM min(timestamp)) / 3600) * 3600000000)::bigint AS first_us,
                ((floor(extract(epoch FROM max(timestamp)) / 3600) + 1) * 3600000000)::bigint - 1 AS last_us,
                count(*) AS rows
            FROM {rows} AS added
            WHERE timestamp >= '0001-01-01 00:00:00+00' AND timestamp <= '9999-12-31 23:59:59+00'
                AND device_id IS NOT NULL AND metric_id IS NOT NULL
            GROUP BY 1, 2, 3) AS by_series) AS found
    WHERE is_late OR NOT EXISTS (
            SELECT FROM jobmeter.series AS s
            WHERE md5(s.device_id || ' ' || s.metric_id || ' ' || s.labels::text) = hash
                AND s.device_id = found.device_id AND s.metric_id = found.metric_id AND s.job_id IS NULL
                AND s.labels::text = found.labels AND s.first_us <= found.first_us AND s.last_us >= found.last_us)
        AND NOT EXISTS (
            SELECT FROM jobmeter.other_rows AS o
            WHERE md5(o.device_id || ' ' || o.metric_id || ' ' || o.labels) = hash
                AND o.device_id = found.device_id AND o.metric_id = found.metric_id
                AND o.labels = found.labels AND o.first_us <= found.first_us AND o.last_us >= found.last_us);
    RETURN NULL;
END $$;
