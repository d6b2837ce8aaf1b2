-- The summary of node samples as a continuous aggregate, with the windows, values and times of Kwollect. Labels may be any JSON, of which
-- only objects have keys; a total that is no number does not hide the others of its window.

CREATE MATERIALIZED VIEW metrics_summary WITH (timescaledb.continuous, timescaledb.materialized_only = false) AS
SELECT time_bucket(INTERVAL '5 minutes', timestamp) AS timestamp, device_id, metric_id,
    CASE WHEN right(metric_id, 6) = '_total' THEN coalesce(max(nullif(value, 'NaN')), avg(value)) ELSE avg(value) END AS value,
    CASE WHEN jsonb_typeof(labels) = 'object' THEN labels - '_metric_scrape_time' ELSE labels END AS labels
FROM metrics
GROUP BY time_bucket(INTERVAL '5 minutes', timestamp), device_id, metric_id,
    CASE WHEN jsonb_typeof(labels) = 'object' THEN labels - '_metric_scrape_time' ELSE labels END
WITH NO DATA;
