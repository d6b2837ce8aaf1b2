"""The client `postgrest` of PostgREST against a running server: tables under /rest, functions under /rpc.

Arguments: the server's URL, the token of a reader, and that of a program that inserts rows.
"""

import asyncio
import datetime
import sys

from postgrest import APIError, AsyncPostgrestClient, CountMethod, SyncPostgrestClient

URL, READER, PUSHER = sys.argv[1:]
AT = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=250_000)


def client(path, token, kind=SyncPostgrestClient):
    return kind(URL + path, headers={"Authorization": f"Bearer {token}"})


def inserts():
    rows = [
        {"timestamp": (AT - datetime.timedelta(seconds=number)).isoformat(), "device_id": "rest", "metric_id": "watts",
         "value": number, "labels": {"port": str(number % 2)}}
        for number in range(100)
    ]
    functions = client("", PUSHER)
    for row in rows[:3]:
        functions.rpc("insert_metrics", row).execute()
    functions.session.post("/rpc/insert_metrics", json=rows[3:]).raise_for_status()
    try:
        client("/rest", PUSHER).from_("metrics").select("*").execute()
        raise AssertionError("a push token reads")
    except APIError as error:
        assert error.message, error


def reads_tables():
    tables = client("/rest", READER)
    of_device = lambda *columns, **options: tables.from_("metrics").select(*columns, **options).eq("device_id", "rest")
    rows = of_device("timestamp", "value", "labels", "job_id").gte("value", 98).order("value", desc=True).execute().data
    assert [row["value"] for row in rows] == [99, 98], rows
    assert rows[0]["labels"] == {"port": "1"} and rows[0]["job_id"] is None, rows
    assert datetime.datetime.fromisoformat(rows[1]["timestamp"]) == AT - datetime.timedelta(seconds=98), rows
    counted = of_device("value", count=CountMethod.exact).order("value").range(10, 19).execute()
    assert counted.count == 100 and [row["value"] for row in counted.data] == list(range(10, 20)), counted
    assert len(of_device("value").filter("labels->>port", "eq", "0").execute().data) == 50
    assert len(of_device("value").or_("value.eq.1,value.gt.97").execute().data) == 3
    assert len(of_device("value").in_("value", [1, 2, 300]).not_.eq("value", 2).execute().data) == 1
    assert len(of_device("value").is_("job_id", "null").limit(7).execute().data) == 7
    assert of_device("watts:value", "metric_id").eq("value", 5).single().execute().data == {"watts": 5, "metric_id": "watts"}
    assert of_device("value").eq("value", 500).maybe_single().execute() is None
    csv = of_device("value").lt("value", 2).order("value").csv().execute().data
    assert csv.split() == ["value", "0", "1"], csv
    for wrong, code in (
        (lambda: of_device("nix").execute(), "42703"),
        (lambda: tables.from_("nix").select("*").execute(), "PGRST205"),
        (lambda: of_device("value").eq("value", "much").execute(), "22P02"),
        (lambda: of_device("value").single().execute(), "PGRST116"),
        (lambda: tables.from_("metrics").insert({"device_id": "d"}).execute(), None),
    ):
        try:
            wrong()
            raise AssertionError(code)
        except APIError as error:
            assert code is None or error.code == code, (error.code, code)


async def calls_functions():
    async with client("", READER, AsyncPostgrestClient) as functions:
        arguments = {"devices": "rest", "metrics": "watts", "start_time": (AT - datetime.timedelta(seconds=99)).isoformat(),
                     "end_time": AT.isoformat()}
        rows = (await functions.rpc("get_metrics", arguments).execute()).data
        assert [row["value"] for row in rows] == list(range(99, -1, -1)), rows
        rows = (await functions.rpc("get_metrics", arguments, get=True).gt("value", 97).execute()).data
        assert sorted(row["value"] for row in rows) == [98, 99], rows
        rows = (await functions.rpc("available_metrics", {"params": {"devices": ["rest"]}}).execute()).data
        assert rows == [{"device_id": "rest", "metric_id": "watts"}], rows
        try:
            await functions.rpc("nix", {}).execute()
            raise AssertionError("an unknown function")
        except APIError as error:
            assert error.code == "PGRST202", error.code


inserts()
reads_tables()
asyncio.run(calls_functions())
print("the client of Python read what it wrote")
