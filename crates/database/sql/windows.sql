-- Views that the others use.

-- The starts of the windows of five minutes that have no final rollups, of 400 days at most: a single old row must not make all
-- queries list the windows of centuries.
CREATE OR REPLACE VIEW jobmeter.unsettled AS
SELECT at, (extract(epoch FROM at) * 1000000)::bigint AS at_us FROM jobmeter.state CROSS JOIN generate_series(
    greatest(coalesce('epoch'::timestamptz + settled_us * interval '1 microsecond', '-infinity'),
        'epoch'::timestamptz + 300 * floor(extract(epoch FROM now() - interval '400 days') / 300) * interval '1 second'),
    now() + interval '1 day', interval '5 minutes') AS starts (at);

-- Windows of five minutes of node samples. Before the settled time they come from rollups, after it from samples, window by window: so
-- conditions reach the index of each window. `at_us` is the start again, as the rollups have it.
CREATE OR REPLACE VIEW jobmeter.node_windows AS
SELECT 'epoch'::timestamptz + at_us * interval '1 microsecond' AS timestamp, device_id, metric_id,
    CASE WHEN right(metric_id, 6) = '_total' THEN max(max) ELSE sum(sum) / sum(rollups.samples)::double precision END AS value,
    jobmeter.without(labels, '_metric_scrape_time') AS labels, at_us
FROM jobmeter.rollups JOIN jobmeter.series ON id = series_id
WHERE job_id IS NULL AND window_us = 300000000 AND at_us < (SELECT settled_us FROM jobmeter.state)
GROUP BY at_us, device_id, metric_id, jobmeter.without(labels, '_metric_scrape_time')
UNION ALL
SELECT starts.at, windows.*, starts.at_us
FROM jobmeter.unsettled AS starts CROSS JOIN LATERAL (
    SELECT device_id, metric_id, jobmeter.summarized(metric_id, max(value) FILTER (WHERE value <> 'NaN'), avg(value)) AS value,
        jobmeter.without(labels, '_metric_scrape_time') AS labels
    FROM metrics WHERE timestamp >= starts.at AND timestamp < starts.at + interval '5 minutes'
    GROUP BY device_id, metric_id, jobmeter.without(labels, '_metric_scrape_time')) AS windows;

-- Those of samples with an alias, by the alias.
CREATE OR REPLACE VIEW jobmeter.alias_windows AS
SELECT 'epoch'::timestamptz + at_us * interval '1 microsecond' AS timestamp, labels->>'_device_alias' AS alias, device_id, metric_id,
    CASE WHEN right(metric_id, 6) = '_total' THEN max(max) ELSE sum(sum) / sum(rollups.samples)::double precision END AS value,
    labels - '_metric_scrape_time' AS labels, at_us
FROM jobmeter.rollups JOIN jobmeter.series ON id = series_id
WHERE labels ? '_device_alias' AND length(labels->>'_device_alias') <= 253
    AND job_id IS NULL AND window_us = 300000000 AND at_us < (SELECT settled_us FROM jobmeter.state)
GROUP BY at_us, labels->>'_device_alias', device_id, metric_id, labels - '_metric_scrape_time'
UNION ALL
SELECT starts.at, windows.*, starts.at_us
FROM jobmeter.unsettled AS starts CROSS JOIN LATERAL (
    SELECT labels->>'_device_alias', device_id, metric_id,
        jobmeter.summarized(metric_id, max(value) FILTER (WHERE value <> 'NaN'), avg(value)) AS value,
        labels - '_metric_scrape_time' AS labels
    FROM metrics WHERE timestamp >= starts.at AND timestamp < starts.at + interval '5 minutes'
        AND labels ? '_device_alias' AND length(labels->>'_device_alias') <= 253
    GROUP BY labels->>'_device_alias', device_id, metric_id, labels - '_metric_scrape_time') AS windows;

-- Samples attributed to jobs, for roles that may read the table. The owner's rights read it, so this view checks the
-- role. It is a barrier: no operator of a reader sees rows, or statistics of them.
CREATE OR REPLACE VIEW jobmeter.visible_job_metrics WITH (security_barrier) AS
SELECT timestamp, device_id, metric_id, value,
    labels || jsonb_build_object('_job_id', job_id::text, '_cluster', cluster) AS labels, cluster, job_id
FROM jobmeter.job_metrics
WHERE has_table_privilege(current_user, 'jobmeter.job_metrics'::regclass, 'SELECT');

-- Their windows of five minutes.
CREATE OR REPLACE VIEW jobmeter.visible_job_metrics_summary WITH (security_barrier) AS
SELECT 'epoch'::timestamptz + at_us * interval '1 microsecond' AS timestamp, device_id, metric_id,
    CASE WHEN right(metric_id, 6) = '_total' THEN max ELSE sum / rollups.samples END AS value,
    labels || jsonb_build_object('_job_id', job_id::text, '_cluster', cluster) AS labels, cluster, job_id, at_us
FROM jobmeter.rollups JOIN jobmeter.series ON id = series_id
WHERE job_id IS NOT NULL AND window_us = 300000000 AND at_us < (SELECT settled_us FROM jobmeter.state)
    AND has_table_privilege(current_user, 'jobmeter.job_metrics'::regclass, 'SELECT')
UNION ALL
SELECT starts.at, windows.device_id, windows.metric_id, windows.value,
    windows.labels || jsonb_build_object('_job_id', job_id::text, '_cluster', cluster), windows.cluster, windows.job_id, starts.at_us
FROM jobmeter.unsettled AS starts CROSS JOIN LATERAL (
    SELECT device_id, metric_id, jobmeter.summarized(metric_id, max(value) FILTER (WHERE value <> 'NaN'), avg(value)) AS value,
        labels, cluster, job_id
    FROM jobmeter.job_metrics WHERE timestamp >= starts.at AND timestamp < starts.at + interval '5 minutes'
    GROUP BY device_id, metric_id, labels, cluster, job_id) AS windows
WHERE has_table_privilege(current_user, 'jobmeter.job_metrics'::regclass, 'SELECT');
