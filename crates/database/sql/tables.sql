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
    samples bigint NOT NULL,
    -- Other programs wrote rows of it.
    has_others boolean NOT NULL DEFAULT false
);
-- A hash, because an index cannot hold long names.
CREATE INDEX IF NOT EXISTS series_hash_idx ON jobmeter.series (md5(device_id || ' ' || metric_id || ' ' || labels::text));
-- Rows that other programs wrote into metrics, series by series, until the server has registered them.
CREATE TABLE IF NOT EXISTS jobmeter.other_rows (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    device_id text NOT NULL,
    metric_id text NOT NULL,
    labels text NOT NULL,
    first_us bigint NOT NULL,
    last_us bigint NOT NULL,
    rows bigint NOT NULL,
    is_late boolean NOT NULL
);
CREATE INDEX IF NOT EXISTS other_rows_hash_idx ON jobmeter.other_rows (md5(device_id || ' ' || metric_id || ' ' || labels));
-- Settled time with late samples: its rollups will be computed again. Without a series: those of all series.
CREATE TABLE IF NOT EXISTS jobmeter.late (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    series_id bigint,
    first_us bigint NOT NULL,
    last_us bigint NOT NULL
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
    -- Earlier rows are late: settled, or being settled.
    settling_us bigint,
    -- The series of all later rows are registered. NULL: of none.
    looked_us bigint,
    -- Earlier samples are deleted.
    removed_us bigint,
    samples_removed bigint NOT NULL DEFAULT 0,
    -- Rows of other programs with names or labels beyond the limits.
    rows_hidden bigint NOT NULL DEFAULT 0
);
INSERT INTO jobmeter.state DEFAULT VALUES ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS jobmeter.catalogue (name text PRIMARY KEY, metric text NOT NULL);
-- The jobs of the server's registry, copied for people who query them by SQL.
CREATE TABLE IF NOT EXISTS jobmeter.allocations (
    cluster text NOT NULL,
    job_id bigint NOT NULL,
    node text NOT NULL,
    start_time timestamptz NOT NULL,
    stop_time timestamptz
);
CREATE INDEX IF NOT EXISTS allocations_job_idx ON jobmeter.allocations (job_id);
CREATE TABLE IF NOT EXISTS promoted_metrics (device_id text NOT NULL, metric_id text DEFAULT NULL);
