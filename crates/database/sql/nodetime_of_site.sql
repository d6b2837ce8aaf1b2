-- Which node a job had and when: by the view or table of the site.

CREATE OR REPLACE VIEW jobmeter.nodetime AS
SELECT job_id::bigint AS job_id, NULL::text AS cluster, start_time, stop_time, node FROM nodetime_by_job;
