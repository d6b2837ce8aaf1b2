CREATE OR REPLACE VIEW gaps AS
SELECT gap::json->>'device' AS device_id, gap::json->>'source' AS source,
    'epoch'::timestamptz + (gap::json->>'from')::bigint * interval '1 microsecond' AS from_time,
    'epoch'::timestamptz + (gap::json->>'to')::bigint * interval '1 microsecond' AS to_time,
    gap::json->>'cause' AS cause, gap::json->>'detail' AS detail
FROM jobmeter.gaps
-- Gaps of `jobmeter run` belong to jobs.
WHERE gap::json->>'origin' !~ '/run-[0-9]+$' OR has_table_privilege(current_user, 'jobmeter.job_metrics'::regclass, 'SELECT');
