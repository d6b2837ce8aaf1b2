-- Which node a job had and when: from the server's registry.
CREATE OR REPLACE VIEW jobmeter.nodetime AS
SELECT job_id, cluster, start_time, stop_time, node FROM jobmeter.allocations;
