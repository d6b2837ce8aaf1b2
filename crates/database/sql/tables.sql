-- The tables of the store. `metrics` has the five columns of Kwollect; all else is in the schema jobmeter.

CREATE TABLE IF NOT EXISTS metrics (
    timestamp timestamptz NOT NULL DEFAULT now(),
    device_id text NOT NULL,
    metric_id text NOT NULL,
    value double precision DEFAULT 'NaN',
    labels jsonb DEFAULT '{}'
);
CREATE INDEX IF NOT EXISTS metrics_device_idx ON metrics (device_id, timestamp DESC);
CREATE INDEX IF NOT EXISTS metrics_timestamp_idx ON metrics (timestamp DESC);
CREATE SCHEMA IF NOT EXISTS jobmeter;
CREATE TABLE IF NOT EXISTS jobmeter.job_metrics (
    timestamp timestamptz NOT NULL,
    device_id text NOT NULL,
    metric_id text NOT NULL,
    value double precision NOT NULL,
    labels jsonb NOT NULL,
    cluster text NOT NULL,
    job_id bigint NOT NULL
);
CREATE INDEX IF NOT EXISTS job_metrics_device_idx ON jobmeter.job_metrics (device_id, timestamp DESC);
CREATE INDEX IF NOT EXISTS job_metrics_job_idx ON jobmeter.job_metrics (job_id, timestamp DESC);
CREATE TABLE IF NOT EXISTS jobmeter.series (
    id bigint PRIMARY KEY,
    device_id text NOT NULL,
    metric_id text NOT NULL,
    labels jsonb NOT NULL,
    cluster text,
    job_id bigint,
    divisor bigint NOT NULL,
    first_us bigint NOT NULL,
    last_us bigint NOT NULL,
    last_value double precision NOT NULL,
    received_us bigint NOT NULL,
    samples bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS jobmeter.starts (
    series_id bigint NOT NULL,
    at_us bigint NOT NULL,
    start_us bigint,
    PRIMARY KEY (series_id, at_us)
);
CREATE TABLE IF NOT EXISTS jobmeter.origins (name text PRIMARY KEY, state text NOT NULL);
CREATE TABLE IF NOT EXISTS jobmeter.gaps (
    id bigint PRIMARY KEY,
    gap text NOT NULL,
    is_late boolean NOT NULL
);
CREATE TABLE IF NOT EXISTS jobmeter.rollups (
    window_us bigint NOT NULL,
    series_id bigint NOT NULL,
    at_us bigint NOT NULL,
    samples bigint NOT NULL,
    sum double precision NOT NULL,
    min double precision NOT NULL,
    max double precision NOT NULL,
    first_us bigint NOT NULL,
    first_value double precision NOT NULL,
    first_start_us bigint,
    last_us bigint NOT NULL,
    last_value double precision NOT NULL,
    last_start_us bigint,
    seconds double precision NOT NULL,
    integral double precision NOT NULL,
    resets bigint NOT NULL,
    before_resets double precision NOT NULL,
    PRIMARY KEY (window_us, series_id, at_us)
);
CREATE TABLE IF NOT EXISTS jobmeter.state (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    settled_us bigint,
    samples_removed bigint NOT NULL DEFAULT 0
);
INSERT INTO jobmeter.state DEFAULT VALUES ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS jobmeter.catalogue (name text PRIMARY KEY, metric text NOT NULL);
-- The catalogue for people who query it by SQL.
CREATE OR REPLACE VIEW jobmeter.metric_catalogue AS
    SELECT name, metric::json->>'unit' AS unit, metric::json->>'kind' AS kind, metric::json->>'help' AS help
    FROM jobmeter.catalogue;
-- The jobs of the server's registry, copied for people who query them by SQL.
CREATE TABLE IF NOT EXISTS jobmeter.allocations (
    cluster text NOT NULL,
    job_id bigint NOT NULL,
    node text NOT NULL,
    start_time timestamptz NOT NULL,
    stop_time timestamptz
);
CREATE INDEX IF NOT EXISTS allocations_job_idx ON jobmeter.allocations (job_id);
CREATE INDEX IF NOT EXISTS allocations_key_idx ON jobmeter.allocations (cluster COLLATE "C", job_id);
CREATE TABLE IF NOT EXISTS jobmeter.jobs (
    job_id bigint NOT NULL,
    cluster text NOT NULL,
    display_id text NOT NULL,
    user_name text,
    user_id bigint,
    account text,
    name text,
    state text NOT NULL,
    start_time timestamptz,
    stop_time timestamptz,
    exit_code bigint,
    project text,
    queue text,
    state_word text,
    submit_time timestamptz,
    part_of bigint,
    array_index bigint,
    types text,
    requested_nodes bigint,
    requested_cpus bigint,
    requested_gpus bigint,
    requested_memory_bytes bigint,
    requested_wall_seconds double precision,
    requested_cpu_seconds double precision,
    used_nodes bigint,
    used_cpus bigint,
    used_gpus bigint,
    used_memory_bytes bigint,
    used_wall_seconds double precision,
    used_cpu_seconds double precision,
    end_cause text,
    end_detail text,
    oom_kills bigint
);
CREATE INDEX IF NOT EXISTS jobs_job_idx ON jobmeter.jobs (job_id);
CREATE INDEX IF NOT EXISTS jobs_key_idx ON jobmeter.jobs (cluster COLLATE "C", job_id);
-- The registry that the copy belongs to, and the number of its last step.
CREATE TABLE IF NOT EXISTS jobmeter.jobs_copy (
    is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    registry text NOT NULL,
    step bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS promoted_metrics (device_id text NOT NULL, metric_id text DEFAULT NULL);
-- The rows of promoted_metrics that the server wrote. All others are those of people and other programs.
CREATE TABLE IF NOT EXISTS jobmeter.promoted (device_id text NOT NULL, metric_id text NOT NULL);
