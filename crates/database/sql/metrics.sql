-- Samples of nodes, with the five columns of Kwollect. The index of aliases leaves out texts that no device has as its name: a longer
-- one may not fit into an index.

CREATE TABLE metrics (
    timestamp timestamptz NOT NULL DEFAULT now(),
    device_id text NOT NULL,
    metric_id text NOT NULL,
    value double precision DEFAULT 'NaN',
    labels jsonb DEFAULT '{}'
){partitions};
CREATE INDEX metrics_device_idx ON metrics (device_id, timestamp DESC);
CREATE INDEX metrics_timestamp_idx ON metrics (timestamp DESC);
CREATE INDEX metrics_alias_idx ON metrics ((labels->>'_device_alias'), timestamp DESC)
    WHERE labels ? '_device_alias' AND length(labels->>'_device_alias') <= 253;
