"""Runs the setup program of Kwollect 1.3.1 unchanged, on a PostgreSQL server without TimescaleDB.

No package source of Debian has TimescaleDB. Its functions are stubs here: create_hypertable makes the column `timestamp` NOT NULL with an
index, time_bucket computes, the policies do nothing. The continuous aggregate is a plain view. With `plain` as the first argument
`metrics` is no hypertable. The other arguments are those of kwollect-setup-db.
"""

import os
import re
import runpy
import sys

import psycopg2

HYPERTABLE = sys.argv[1] != "plain"
# Binaries of other versions than Debian's have no library of Python.
PYTHON = "POSTGRESQL_PROGRAMS" not in os.environ
STUBS = """
CREATE SCHEMA IF NOT EXISTS _timescaledb_internal;
GRANT ALL ON SCHEMA _timescaledb_internal TO PUBLIC;
CREATE SCHEMA IF NOT EXISTS timescaledb_information;
GRANT USAGE ON SCHEMA timescaledb_information TO PUBLIC;
CREATE OR REPLACE VIEW timescaledb_information.hypertables AS
  SELECT 'public'::name AS hypertable_schema, 'metrics'::name AS hypertable_name, true AS compression_enabled WHERE %s;
GRANT SELECT ON timescaledb_information.hypertables TO PUBLIC;
CREATE OR REPLACE FUNCTION create_hypertable(relation regclass, column_name name, chunk_time_interval interval,
    if_not_exists boolean) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
  ALTER TABLE metrics ALTER COLUMN timestamp SET NOT NULL;
  CREATE INDEX IF NOT EXISTS metrics_timestamp_idx ON metrics (timestamp DESC); END $$;
CREATE OR REPLACE FUNCTION set_chunk_time_interval(relation regclass, of interval) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE OR REPLACE FUNCTION add_compression_policy(relation regclass, compress_after interval, if_not_exists boolean)
  RETURNS void LANGUAGE sql AS 'SELECT';
CREATE OR REPLACE FUNCTION add_continuous_aggregate_policy(relation regclass, start_offset interval, end_offset interval,
  schedule_interval interval, if_not_exists boolean) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE OR REPLACE FUNCTION time_bucket(width interval, at timestamptz) RETURNS timestamptz LANGUAGE sql IMMUTABLE
  AS $$ SELECT to_timestamp((floor(extract(epoch FROM $2) / extract(epoch FROM $1)) * extract(epoch FROM $1))::double precision) $$;
""" % ("true" if HYPERTABLE else "false")


def without_timescaledb(text):
    """The statements of the program, for a server without TimescaleDB."""
    text = re.sub(r"CREATE EXTENSION IF NOT EXISTS timescaledb CASCADE;", STUBS, text)
    text = re.sub(r"CREATE EXTENSION IF NOT EXISTS timescaledb_toolkit;", "", text)
    text = re.sub(
        r"CREATE MATERIALIZED VIEW IF NOT EXISTS metrics_summary\s+WITH \(timescaledb.continuous\) AS",
        "CREATE OR REPLACE VIEW metrics_summary AS", text)
    text = text.replace("WITH NO DATA;", ";")
    if not PYTHON:
        # Its functions are made, but fail.
        text = re.sub(r"CREATE EXTENSION IF NOT EXISTS plpython3u;\s+UPDATE pg_language SET lanpltrusted.*", "", text)
        text = re.sub(r"\$\$(?:(?!\$\$).)*\$\$ LANGUAGE 'plpython3u'",
                      "$$ BEGIN RAISE EXCEPTION 'no library of Python'; END $$ LANGUAGE plpgsql", text, flags=re.DOTALL)
    # PostgreSQL 15 gives nobody CREATE on the schema public (a known bug of the program).
    return text.replace("SET LOCAL SESSION AUTHORIZATION DEFAULT;", "SET LOCAL SESSION AUTHORIZATION DEFAULT; GRANT ALL ON SCHEMA public TO kwuser;", 1)


class Cursor(psycopg2.extensions.cursor):
    def execute(self, text, values=None):
        # The program names this database literally.
        return super().execute(without_timescaledb(text), values)


connect = psycopg2.connect
psycopg2.connect = lambda **of: connect(cursor_factory=Cursor, **of)
sys.argv = ["kwollect-setup-db", *sys.argv[2:]]
runpy.run_module("kwollect.db.kwollect_setup_db", run_name="__main__")
