-- The summary of node samples, where no continuous aggregate of TimescaleDB has it. Before the settled time it comes from
-- rollups, after it from samples, window by window: so conditions reach the index of each window.

CREATE OR REPLACE VIEW metrics_summary AS
SELECT 'epoch'::timestamptz + at_us * interval '1 microsecond' AS timestamp, device_id, metric_id,
    CASE WHEN right(metric_id, 6) = '_total' THEN max(max) ELSE sum(sum) / sum(rollups.samples)::double precision END AS value,
    jobmeter.without(labels, '_metric_scrape_time') AS labels
FROM jobmeter.rollups JOIN jobmeter.series ON id = series_id
WHERE job_id IS NULL AND window_us = 300000000 AND at_us < (SELECT settled_us FROM jobmeter.state)
GROUP BY at_us, device_id, metric_id, jobmeter.without(labels, '_metric_scrape_time')
UNION ALL
SELECT starts.at, windows.*
FROM jobmeter.unsettled AS starts CROSS JOIN LATERAL (
    SELECT device_id, metric_id, jobmeter.summarized(metric_id, max(value) FILTER (WHERE value <> 'NaN'), avg(value)) AS value,
        jobmeter.without(labels, '_metric_scrape_time') AS labels
    FROM metrics WHERE timestamp >= starts.at AND timestamp < starts.at + interval '5 minutes'
    GROUP BY device_id, metric_id, jobmeter.without(labels, '_metric_scrape_time')) AS windows;
