-- `metrics_by_device`: rows of devices without the label `_device_alias`, and for each alias the sum of its rows of one instant, as
-- Kwollect has them. The condition on the length is that of the index.

CREATE OR REPLACE VIEW metrics_by_device AS
SELECT timestamp, device_id, metric_id, value, jobmeter.without(labels, '_device_alias') AS labels
FROM metrics
UNION ALL
(SELECT timestamp, labels->>'_device_alias' AS device_id, metric_id, sum(value) AS value,
    (labels || jsonb_build_object('_device_orig', array_agg(device_id ORDER BY device_id))) - '_device_alias' AS labels
FROM metrics WHERE labels ? '_device_alias' AND length(labels->>'_device_alias') <= 253
GROUP BY timestamp, metric_id, labels)
UNION ALL
SELECT timestamp, device_id, metric_id, value, labels - '_device_alias' FROM jobmeter.visible_job_metrics
UNION ALL
(SELECT timestamp, labels->>'_device_alias', metric_id, sum(value),
    (labels || jsonb_build_object('_device_orig', array_agg(device_id ORDER BY device_id))) - '_device_alias'
FROM jobmeter.visible_job_metrics WHERE labels ? '_device_alias'
GROUP BY timestamp, metric_id, labels);
