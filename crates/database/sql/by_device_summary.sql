-- The same of the windows of five minutes. `{windows}` and `{aliased}` have the node samples: the views of jobmeter, or a continuous
-- aggregate.

CREATE OR REPLACE VIEW jobmeter.windows_by_device AS
SELECT timestamp, device_id, metric_id, value, jobmeter.without(labels, '_device_alias') AS labels, at_us
FROM {windows}
UNION ALL
(SELECT timestamp, alias, metric_id, sum(value),
    (labels || jsonb_build_object('_device_orig', array_agg(device_id ORDER BY device_id))) - '_device_alias', at_us
FROM {aliased}
GROUP BY timestamp, alias, metric_id, labels, at_us)
UNION ALL
SELECT timestamp, device_id, metric_id, value, labels - '_device_alias', at_us FROM jobmeter.visible_job_metrics_summary;

CREATE OR REPLACE VIEW metrics_by_device_summary AS
SELECT timestamp, device_id, metric_id, value, labels FROM jobmeter.windows_by_device;
