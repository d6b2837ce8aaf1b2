"""Clients of PostgreSQL by other authors, against a running server: psycopg 3 and 2, SQLAlchemy, pandas, asyncpg.

Arguments: the port, the password of a reader, and that of a program that inserts rows.
"""

import asyncio
import datetime
import sys

import asyncpg
import pandas
import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy
from sqlalchemy import inspect, text

PORT, READER, PUSHER = int(sys.argv[1]), sys.argv[2], sys.argv[3]
AT = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=250_000)


def url(password, user="token"):
    return f"host=127.0.0.1 port={PORT} user={user} password={password} dbname=jobmeter"


def psycopg_writes():
    with psycopg.connect(url(PUSHER)) as connection:
        insert = "INSERT INTO metrics(timestamp, device_id, metric_id, value, labels) VALUES (%s, %s, %s, %s, %s)"
        connection.execute(insert, (AT, "p3", "watts", 98.5, '{"port": "1"}'))
        connection.execute(insert, (AT, "gone", "watts", 1.0, "{}"), binary=True)
        connection.rollback()
        connection.execute(insert, (AT, "p3", "watts", 98.5, '{"port": "1"}'), binary=True)
        connection.commit()
        for binary in (False, True):
            form = "WITH (FORMAT binary)" if binary else ""
            with connection.cursor().copy(f"COPY metrics (timestamp, device_id, metric_id, value, labels) FROM STDIN {form}") as copy:
                if binary:
                    copy.set_types(["timestamptz", "text", "text", "float8", "jsonb"])
                for number in range(500):
                    labels = psycopg.types.json.Jsonb({"port": "2"})
                    at = AT - datetime.timedelta(seconds=number)
                    copy.write_row((at, f"copy{binary}".lower(), "watts", float(number), labels))
            connection.commit()
        try:
            connection.execute("SELECT * FROM metrics")
            raise AssertionError("a push token reads")
        except psycopg.errors.InsufficientPrivilege:
            connection.rollback()


def psycopg_describes():
    """Types that the client gives are those that the server reports, as JDBC requires."""
    with psycopg.connect(url(PUSHER)) as connection:
        insert = b"INSERT INTO metrics(device_id, metric_id, value) VALUES ($1, $2, $3)"
        connection.pgconn.prepare(b"described", insert, [1043, 0, 701])
        described = connection.pgconn.describe_prepared(b"described")
        types = [described.param_type(place) for place in range(described.nparams)]
        assert types == [1043, 25, 701], types


def psycopg_reads():
    with psycopg.connect(url(READER)) as connection:
        for binary in (False, True):
            rows = connection.execute(
                "SELECT timestamp, device_id, value, labels, job_id FROM metrics WHERE device_id = %s AND value > %s",
                ("p3", 90),
                binary=binary,
            ).fetchall()
            assert rows == [(AT, "p3", 98.5, {"port": "1"}, None)], rows
        count = connection.execute("SELECT count(*) FROM metrics WHERE device_id = ANY(%s)", (["copytrue", "copyfalse"],))
        assert count.fetchone() == (1000,), count
        assert connection.execute("SELECT count(*) FROM metrics WHERE device_id = 'gone'").fetchone() == (0,)
        with connection.cursor("named") as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT value FROM metrics WHERE device_id = %s ORDER BY timestamp DESC", ("copytrue",))
            assert [row[0] for row in cursor] == [float(number) for number in range(500)]
        try:
            connection.execute("SELECT 1,\n nix FROM metrics")
            raise AssertionError("an unknown column")
        except psycopg.errors.UndefinedColumn as error:
            assert error.diag.statement_position == "12", error.diag.statement_position
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR
        connection.rollback()
        for statement, wrong in (
            ("UPDATE metrics SET value = 1", psycopg.errors.ReadOnlySqlTransaction),
            ("INSERT INTO metrics(device_id, metric_id) VALUES ('d', 'm')", psycopg.errors.InsufficientPrivilege),
            ("CREATE TABLE x (a int)", psycopg.errors.ReadOnlySqlTransaction),
            ("SELECT 1 +", psycopg.errors.SyntaxError),
            ("SELECT * FROM nix", psycopg.errors.UndefinedTable),
        ):
            try:
                connection.execute(statement)
                raise AssertionError(statement)
            except wrong:
                connection.rollback()
        connection.execute("SET statement_timeout = '200ms'")
        try:
            connection.execute("SELECT count(*) FROM pg_type a, pg_type b, pg_type c, pg_type d, pg_type e, pg_type f "
                "WHERE a.oid + b.oid + c.oid + d.oid + e.oid + f.oid < 0")
            raise AssertionError("a statement without end")
        except psycopg.errors.QueryCanceled:
            connection.rollback()
        connection.execute("SET statement_timeout = '30s'")
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert connection.execute("SELECT %s::text, %s::int8, %s::float8", ("x", 7, 1.5)).fetchone() == ("x", 7, 1.5)
        values = connection.execute("SELECT now(), true, interval '1 day 2 hours', DATE '2026-01-06', [1, 2]", binary=True)
        values = values.fetchone()
        assert values[1:] == (True, datetime.timedelta(days=1, hours=2), datetime.date(2026, 1, 6), [1, 2]), values


def psycopg2_reads():
    connection = psycopg2.connect(url(READER))
    with connection, connection.cursor(name="c1") as cursor:
        cursor.itersize = 150
        cursor.execute("SELECT value FROM metrics WHERE device_id = %s ORDER BY value", ("copyfalse",))
        assert [row[0] for row in cursor] == [float(number) for number in range(500)]
    with connection, connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
        cursor.execute("SELECT device_id, labels->>'port' AS port FROM metrics WHERE device_id = 'p3'")
        assert cursor.fetchall() == [{"device_id": "p3", "port": "1"}]
    connection.set_session(autocommit=True, readonly=True)
    with connection.cursor() as cursor:
        cursor.execute("SHOW TIME ZONE; SELECT 1")
        assert cursor.fetchone() == (1,)
    connection.close()
    writer = psycopg2.connect(url(PUSHER))
    with writer, writer.cursor() as cursor:
        rows = [(AT, "p2", "watts", float(number), f'{{"n": "{number}"}}') for number in range(100)]
        psycopg2.extras.execute_values(
            cursor, "INSERT INTO metrics(timestamp, device_id, metric_id, value, labels) VALUES %s", rows
        )
    writer.close()


def sqlalchemy_reflects():
    engine = sqlalchemy.create_engine(f"postgresql+psycopg://token:{READER}@127.0.0.1:{PORT}/jobmeter")
    inspected = inspect(engine)
    assert "metrics" in inspected.get_table_names(), inspected.get_table_names()
    columns = {column["name"]: str(column["type"]) for column in inspected.get_columns("metrics")}
    assert columns["timestamp"] == "TIMESTAMP" and columns["labels"] == "JSONB", columns
    assert columns["value"] == "DOUBLE PRECISION" and columns["job_id"] == "BIGINT", columns
    assert inspected.get_pk_constraint("metrics")["constrained_columns"] == []
    assert inspected.get_foreign_keys("metrics") == [] and inspected.get_indexes("metrics") == []
    table = sqlalchemy.Table("metrics", sqlalchemy.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        query = sqlalchemy.select(table.c.value).where(table.c.device_id == "p3")
        assert connection.execute(query).fetchall() == [(98.5,)]
        assert connection.execute(text("SELECT count(*) FROM metrics WHERE device_id = 'p2'")).scalar() == 100
    frame = pandas.read_sql("SELECT timestamp, value FROM metrics WHERE device_id = 'copytrue'", engine)
    assert len(frame) == 500 and frame["value"].sum() == 499 * 250, frame
    frame = pandas.read_sql_table("catalogue", engine)
    assert "watts" in set(frame["name"]), frame
    engine.dispose()


async def asyncpg_copies():
    """As kwollector does: rows with a statement's types, by a binary COPY."""
    writer = await asyncpg.connect(host="127.0.0.1", port=PORT, user="kwuser", password=PUSHER, database="kwdb")
    rows = [(AT, "async", "watts", float(number), f'{{"n": "{number}"}}') for number in range(125)]
    columns = ["timestamp", "device_id", "metric_id", "value", "labels"]
    copied = await writer.copy_records_to_table("metrics", records=rows, columns=columns)
    assert copied == "COPY 125", copied
    await writer.close()
    pool = await asyncpg.create_pool(
        host="127.0.0.1", port=PORT, user="x", password=READER, database="jobmeter", min_size=2, max_size=2
    )
    for _ in range(3):
        async with pool.acquire() as reader:
            row = await reader.fetchrow("SELECT count(*) AS n, max(timestamp) AS at FROM metrics WHERE device_id = $1", "async")
            assert (row["n"], row["at"]) == (125, AT), row
            async with reader.transaction():
                values = [record["value"] async for record in reader.cursor(
                    "SELECT value FROM metrics WHERE device_id = 'copytrue' ORDER BY value", prefetch=70)]
            assert values == [float(number) for number in range(500)]
    await pool.close()


psycopg_writes()
psycopg_describes()
psycopg_reads()
psycopg2_reads()
sqlalchemy_reflects()
asyncio.run(asyncpg_copies())
print("every client read what it wrote")
