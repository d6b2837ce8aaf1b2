CREATE OR REPLACE VIEW nodetime_by_job AS
SELECT CASE WHEN job_id <= 2147483647 THEN job_id::integer END AS job_id, start_time, stop_time, node
FROM jobmeter.allocations;
