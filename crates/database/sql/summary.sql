-- The summary of node samples, where no continuous aggregate of TimescaleDB has it.

CREATE OR REPLACE VIEW metrics_summary AS
SELECT timestamp, device_id, metric_id, value, labels FROM jobmeter.node_windows;
