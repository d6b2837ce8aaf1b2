-- `metrics_by_job{suffix}`: node samples while a job had the node, bounds excluded as in Kwollect, and samples attributed to the
-- job, whose last one may be shortly after its end.

CREATE OR REPLACE VIEW metrics_by_job{suffix} AS
SELECT rows.timestamp, rows.device_id, rows.metric_id, rows.value, rows.labels, nodetime.start_time, nodetime.stop_time,
    CASE WHEN nodetime.job_id <= 2147483647 THEN nodetime.job_id::integer END AS job_id,
    nodetime.job_id AS job_number, nodetime.cluster
FROM jobmeter.nodetime CROSS JOIN LATERAL (
    SELECT timestamp, device_id, metric_id, value, jobmeter.without(labels, '_device_alias') AS labels
    FROM metrics{suffix}
    WHERE device_id = nodetime.node AND timestamp > nodetime.start_time
        AND timestamp < coalesce(nodetime.stop_time, 'infinity')
    UNION ALL
    (SELECT timestamp, labels->>'_device_alias', metric_id, sum(value),
        (labels || jsonb_build_object('_device_orig', array_agg(device_id ORDER BY device_id))) - '_device_alias'
    FROM metrics{suffix}
    WHERE labels ? '_device_alias' AND length(labels->>'_device_alias') <= 253 AND labels->>'_device_alias' = nodetime.node
        AND timestamp > nodetime.start_time AND timestamp < coalesce(nodetime.stop_time, 'infinity')
    GROUP BY timestamp, metric_id, labels)
    UNION ALL
    SELECT timestamp, device_id, metric_id, value, labels - '_device_alias'
    FROM jobmeter.visible_job_metrics{suffix} AS of_jobs
    WHERE of_jobs.job_id = nodetime.job_id AND of_jobs.cluster = coalesce(nodetime.cluster, of_jobs.cluster)
        AND device_id = nodetime.node AND timestamp >= nodetime.start_time - interval '{margin}'
        AND timestamp <= coalesce(nodetime.stop_time + interval '10 seconds', 'infinity')) AS rows;
