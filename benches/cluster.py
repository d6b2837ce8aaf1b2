"""A PostgreSQL server of a bench, below target/bench, and Kwollect's database in it."""

import os
import pwd
import shutil
import signal
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target/bench/database"


def sql(text, role="postgres", database="kwdb"):
    command = ["psql", "-h", FOLDER, "-U", role, "-d", database, "-qtAX", "-v", "ON_ERROR_STOP=1", "-c", text]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip()


def kwollect():
    """Makes Kwollect's database as its own setup program does, on a plain table."""
    setup = [ROOT / "target/python/bin/python", ROOT / "tests/database/kwollect_setup.py", "plain", "--kwollect_password", "secret", "--db_host", FOLDER]
    subprocess.run(setup, check=True, stdout=subprocess.DEVNULL)


def shown(times):
    return f"{statistics.median(times):8.1f} ({min(times):.1f} to {max(times):.1f})"


def start():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
    if user:
        os.chown(FOLDER, user.pw_uid, user.pw_gid)
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    switch = {"user": "postgres", "group": "postgres", "extra_groups": []} if user else {}
    options = {"check": True, "stdout": subprocess.DEVNULL, "cwd": "/", **switch}
    subprocess.run([programs / "initdb", "-A", "trust", "-U", "postgres", "-D", FOLDER / "data", "-E", "UTF8", "--locale=C.UTF-8"], **options)
    settings = ["listen_addresses=", "shared_buffers=2GB", "max_wal_size=8GB", "checkpoint_timeout=30min", "work_mem=64MB"]
    arguments = [word for setting in settings for word in ("-c", setting)]
    server = subprocess.Popen([programs / "postgres", "-D", FOLDER / "data", "-k", FOLDER, *arguments], cwd="/", stderr=subprocess.DEVNULL, **switch)
    while subprocess.run(["psql", "-h", FOLDER, "-U", "postgres", "-qc", "SELECT 1"], capture_output=True).returncode:
        time.sleep(0.1)
    return server


def stop(server):
    # Sessions of the bench itself may be open.
    server.send_signal(signal.SIGINT)
    server.wait()
    shutil.rmtree(FOLDER)
