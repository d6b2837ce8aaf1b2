CREATE OR REPLACE VIEW catalogue AS SELECT name, unit, kind, help FROM jobmeter.metric_catalogue;
