-- All of the store except `metrics`, in the schema jobmeter. Tables of samples and rollups have partitions by time. The default partition
-- has samples of other times until maintenance moves them into one of their own, and old rollups.

CREATE SCHEMA IF NOT EXISTS jobmeter;
CREATE TABLE IF NOT EXISTS jobmeter.job_metrics (
    timestamp timestamptz NOT NULL,
    device_id text NOT NULL,
    metric_id text NOT NULL,
    value double precision NOT NULL,
    labels jsonb NOT NULL,
    cluster text NOT NULL,
    job_id bigint NOT NULL
) PARTITION BY RANGE (timestamp);
CREATE INDEX IF NOT EXISTS job_metrics_device_idx ON jobmeter.job_metrics (device_id, timestamp DESC);
CREATE INDEX IF NOT EXISTS job_metrics_alias_idx ON jobmeter.job_metrics ((labels->>'_device_alias'), timestamp DESC)
    WHERE labels ? '_device_alias' AND length(labels->>'_device_alias') <= 253;
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
CREATE INDEX IF NOT EXISTS series_device_idx ON jobmeter.series USING hash (device_id);
CREATE INDEX IF NOT EXISTS series_alias_idx ON jobmeter.series USING hash ((labels->>'_device_alias'))
    WHERE labels ? '_device_alias' AND length(labels->>'_device_alias') <= 253;
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
-- The stored batches of a boot: consecutive numbers, first and last instant by the sender's clock, times of receipt.
CREATE TABLE IF NOT EXISTS jobmeter.spans (
    origin text NOT NULL,
    boot text NOT NULL,
    first_seq numeric(20) NOT NULL,
    last_seq numeric(20) NOT NULL,
    from_us bigint NOT NULL,
    to_us bigint NOT NULL,
    opened_us bigint NOT NULL,
    closed_us bigint NOT NULL,
    has_samples boolean NOT NULL,
    PRIMARY KEY (origin, boot, first_seq)
);
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
) PARTITION BY RANGE (window_us, at_us);
DO $$ DECLARE name text; BEGIN
    FOREACH name IN ARRAY ARRAY['job_metrics', 'rollups'] LOOP
        IF EXISTS (SELECT FROM pg_partitioned_table WHERE partrelid = to_regclass('jobmeter.' || name) AND partdefid = 0) THEN
            EXECUTE format('CREATE TABLE jobmeter.%I PARTITION OF jobmeter.%I DEFAULT', name || '_default', name);
        END IF;
    END LOOP;
END $$;
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
    rows_hidden bigint NOT NULL DEFAULT 0,
    -- Time of a new partition.
    chunk_interval_hour integer NOT NULL DEFAULT 6 CHECK (chunk_interval_hour BETWEEN 1 AND 8784)
);
-- The first databases have no such columns.
ALTER TABLE jobmeter.series ADD COLUMN IF NOT EXISTS has_others boolean NOT NULL DEFAULT false;
ALTER TABLE jobmeter.state ADD COLUMN IF NOT EXISTS settling_us bigint, ADD COLUMN IF NOT EXISTS looked_us bigint,
    ADD COLUMN IF NOT EXISTS removed_us bigint, ADD COLUMN IF NOT EXISTS rows_hidden bigint NOT NULL DEFAULT 0;
ALTER TABLE jobmeter.state ADD COLUMN IF NOT EXISTS chunk_interval_hour integer NOT NULL DEFAULT 6
    CHECK (chunk_interval_hour BETWEEN 1 AND 8784);
-- A backup has the number of the database: so a server finds out what a restored one lacks.
ALTER TABLE jobmeter.state ADD COLUMN IF NOT EXISTS database_id uuid NOT NULL DEFAULT gen_random_uuid();
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
-- The statements of `api.get_job_metrics`.
CREATE TABLE IF NOT EXISTS jobmeter.job_requests (line integer PRIMARY KEY, keys text[] NOT NULL, statement text NOT NULL);
-- What `jobmeter db setup` made outside of the schema, with the statements that bring back what it replaced.
CREATE TABLE IF NOT EXISTS jobmeter.objects (
    place serial PRIMARY KEY,
    kind text NOT NULL,
    name text NOT NULL,
    restore text,
    UNIQUE (kind, name)
);
CREATE TABLE IF NOT EXISTS jobmeter.setup (is_one boolean PRIMARY KEY DEFAULT true CHECK (is_one), version integer NOT NULL);
