//! Cost of polling an OAR with 10 000 running jobs.
//! The bench fills OAR's own tables in a PostgreSQL of its own, like a site that ends 25 000 jobs a day, and
//! polls them as the server does.
//!
//! ```text
//! cargo bench -p schedulers --bench oar -- [RUNNING [PAST]]
//! ```
//!
//! The bench needs Debian's `postgresql` and `oar-server-pgsql` (`tests/all.sh` installs them). It starts one
//! PostgreSQL, on a socket in its own folder, and nothing else of the packages.
//! PostgreSQL's extension `pg_stat_statements` reports the work of the database. A minute is 30 rounds of 2 s
//! on a simulated clock.

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench times, and starts its PostgreSQL")]

use model::{ClusterId, Timestamp};
use schedulers::{DatabaseAddress, OarDatabase, ParametersError, Scheduler};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

const STRUCTURE: &str = "/usr/lib/oar/database/pg_structure.sql";
const NOW: i64 = 1_795_264_700;
const WAITING: i64 = 5000;
/// How far back a server polls for ended jobs.
const BACK_SECONDS: i64 = 7 * 86_400;
const ROUND_SECONDS: i64 = 2;
const ROUNDS: i64 = 60 / ROUND_SECONDS;

/// Starts PostgreSQL; $1 is the folder, $2 is OAR's structure.
const START: &str = r#"
set -eu
bin=$(echo /usr/lib/postgresql/*/bin) pg=$1/pg
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; else "$@"; fi; }
chmod 755 "$1"; mkdir "$pg"
[ "$(id -u)" != 0 ] || chown postgres "$pg"
as "$bin/initdb" -D "$pg/data" -A trust -U postgres -E UTF8 --locale=C.UTF-8 > "$1/initdb.log"
as "$bin/pg_ctl" -w -D "$pg/data" -l "$pg/log" -o "-c listen_addresses= -k $pg -c fsync=off \
    -c shared_preload_libraries=pg_stat_statements -c pg_stat_statements.track_planning=on" start > "$1/start.log"
createdb -h "$pg" -U postgres oar
psql -q -v ON_ERROR_STOP=1 -h "$pg" -U postgres -f "$2" oar > "$1/structure.log"
"#;

const STOP: &str = r#"
set -eu
cd /
if [ "$(id -u)" = 0 ]; then set -- "$1" setpriv --reuid=postgres --regid=postgres --clear-groups; fi
pg=$1/pg; shift
"$@" /usr/lib/postgresql/*/bin/pg_ctl -w -m immediate -D "$pg/data" stop > /dev/null
"#;

/// 250 nodes of 40 cores.
const RESOURCES: &str = "
    ALTER TABLE resources ADD COLUMN core integer NOT NULL DEFAULT 0;
    INSERT INTO resources (network_address, cpuset, core)
        SELECT 'node-' || i / 40, (i % 40)::text, i FROM generate_series(0, 9999) i;
    CREATE EXTENSION pg_stat_statements;
    CREATE ROLE oar_ro LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO oar_ro;";

/// Jobs @FROM to @TO, each with its request; jobs in a state with nodes also get a core.
const JOBS: &str = "
    INSERT INTO jobs (job_id, array_id, job_name, state, job_user, project, queue_name, command, initial_request,
                      launching_directory, submission_time, start_time, stop_time, assigned_moldable_job,
                      checkpoint_signal, exit_code)
        SELECT i, i, 'job-' || i % 100, '@STATE', 'user-' || i % 200, 'project-' || i % 20, 'default', './run',
               'oarsub -l /core=1,walltime=2:0:0 ./run', '/home', @SUBMIT, @START, @STOP, @ASSIGNED, 12, @CODE
        FROM generate_series(@FROM, @TO) i;
    INSERT INTO moldable_job_descriptions (moldable_id, moldable_job_id, moldable_walltime, moldable_index)
        SELECT i, i, 7200, '@INDEX' FROM generate_series(@FROM, @TO) i;
    INSERT INTO job_resource_groups (res_group_id, res_group_moldable_id, res_group_property, res_group_index)
        SELECT i, i, '', '@INDEX' FROM generate_series(@FROM, @TO) i;
    INSERT INTO job_resource_descriptions
        SELECT i, level, 1, place, '@INDEX' FROM generate_series(@FROM, @TO) i,
               (VALUES ('network_address', 0), ('core', 1)) levels (level, place);
    INSERT INTO job_types (job_id, type, types_index)
        SELECT i, 'monitor=perf_.*', '@INDEX' FROM generate_series(@FROM, @TO) i WHERE i % 4 = 0;
    INSERT INTO assigned_resources
        SELECT i, 1 + i % 10000, '@INDEX' FROM generate_series(@FROM, @TO) i WHERE @ASSIGNED > 0;";

/// At @NOW, @COUNT jobs end, @COUNT start and @COUNT are submitted.
const NEWS: &str = "
    UPDATE jobs SET state = 'Terminated', stop_time = @NOW, exit_code = 0 WHERE job_id IN
        (SELECT job_id FROM jobs WHERE state = 'Running' ORDER BY job_id LIMIT @COUNT);
    WITH given AS (UPDATE jobs SET state = 'Running', start_time = @NOW, assigned_moldable_job = job_id
                   WHERE job_id IN (SELECT job_id FROM jobs WHERE state = 'Waiting' ORDER BY job_id LIMIT @COUNT)
                   RETURNING job_id)
        INSERT INTO assigned_resources SELECT job_id, 1 + job_id % 10000, 'CURRENT' FROM given;";

struct Postgres<'a>(&'a Path);

impl Postgres<'_> {
    fn run(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(self.0).arg(STRUCTURE);
        assert!(command.status().unwrap().success(), "PostgreSQL did not do it: {script}");
    }

    fn parameters(&self, user: &str) -> String {
        format!("host={} user={user} dbname=oar", self.0.join("pg").display())
    }
}

impl Drop for Postgres<'_> {
    fn drop(&mut self) {
        self.run(STOP);
    }
}

fn main() {
    let words = std::env::args().skip(1).filter(|word| !word.starts_with('-'));
    let mut numbers = words.map(|word| word.parse::<i64>().unwrap());
    let running = numbers.next().unwrap_or(10_000);
    let past = numbers.next().unwrap_or(300_000);
    let mut out = std::io::stdout();
    if !Path::new(STRUCTURE).is_file() {
        writeln!(out, "{STRUCTURE} is not there: OAR's packages are not installed").unwrap();
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let postgres = Postgres(dir.path());
    postgres.run(START);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(measure(&postgres, running, past));
}

async fn measure(postgres: &Postgres<'_>, running: i64, past: i64) {
    let (client, io) =
        tokio_postgres::connect(&postgres.parameters("postgres"), NoTls).await.unwrap();
    tokio::spawn(io);
    client.batch_execute(RESOURCES).await.unwrap();
    fill(&client, running, past).await;
    let mut out = std::io::stdout();
    writeln!(out, "{running} jobs run, {WAITING} wait, {past} are over").unwrap();
    let cluster = ClusterId::new("oar").unwrap();
    let parameters = postgres.parameters("oar_ro");
    let limit = Duration::from_secs(60);
    let no_tls = || Err(ParametersError::Malformed("TLS".to_owned()));
    let address = DatabaseAddress::new(&parameters, no_tls, None, limit);
    let mut oar = OarDatabase::new(cluster, address.unwrap(), limit);
    let mut bench = Bench { client: &client, oar: &mut oar, at: NOW };
    bench.report("a start", None).await;
    // The poller reads ended jobs once more, and refreshes unchanged jobs in turn.
    bench.report("nothing changes", Some("")).await;
    for a_second in [1, 10] {
        let news = NEWS.replace("@COUNT", &(a_second * ROUND_SECONDS).to_string());
        bench.report(&format!("{a_second} start and {a_second} end a second"), Some(&news)).await;
    }
}

async fn fill(client: &Client, running: i64, past: i64) {
    // 25 000 jobs a day ended, the last one just now.
    let ended = format!("({NOW} - ({past} - i)::bigint * 86400 / 25000)");
    for (from, to, state, times, code) in [
        (1, past, "Terminated", [format!("{ended} - 3700"), format!("{ended} - 3600"), ended], "0"),
        (
            past + 1,
            past + running,
            "Running",
            [format!("{NOW} - 3700"), format!("{NOW} - 3600"), "0".to_owned()],
            "NULL",
        ),
        (
            past + running + 1,
            past + running + WAITING,
            "Waiting",
            [format!("{NOW} - 60"), "0".to_owned(), "0".to_owned()],
            "NULL",
        ),
    ] {
        let [submit, start, stop] = times;
        let sql = JOBS
            .replace("@FROM", &from.to_string())
            .replace("@TO", &to.to_string())
            .replace("@STATE", state)
            .replace("@INDEX", if state == "Terminated" { "LOG" } else { "CURRENT" })
            .replace("@ASSIGNED", if state == "Waiting" { "0" } else { "i" })
            .replace("@SUBMIT", &submit)
            .replace("@START", &start)
            .replace("@STOP", &stop)
            .replace("@CODE", code);
        client.batch_execute(&sql).await.unwrap();
    }
    client.batch_execute("VACUUM ANALYZE").await.unwrap();
}

struct Bench<'a> {
    client: &'a Client,
    oar: &'a mut OarDatabase,
    /// The simulated clock, in seconds.
    at: i64,
}

impl Bench<'_> {
    /// Runs a minute of rounds and prints their cost. Each round follows the changes that `news` makes in the database.
    /// Without `news`, it runs rounds until OAR has nothing more to report.
    async fn report(&mut self, what: &str, news: Option<&str>) {
        self.client.execute("SELECT pg_stat_statements_reset()", &[]).await.unwrap();
        let (mut rounds, mut calls, mut records) = (0, 0, 0);
        let (mut longest, mut ours) = (Duration::ZERO, 0);
        loop {
            if let Some(news) = news {
                self.client
                    .batch_execute(&news.replace("@NOW", &self.at.to_string()))
                    .await
                    .unwrap();
            }
            let now = Timestamp::from_seconds(self.at);
            let from = now.plus(-BACK_SECONDS * Timestamp::SECOND);
            let (began, cpu) = (Instant::now(), cpu_us());
            let changes = self.oar.changes(from, now).await.unwrap();
            (longest, ours) = (longest.max(began.elapsed()), ours + cpu_us() - cpu);
            assert!(changes.rejected.is_empty(), "{:?}", changes.rejected);
            (calls, records) = (calls + changes.calls, records + changes.records.len());
            (rounds, self.at) = (rounds + 1, self.at + ROUND_SECONDS);
            if news.map_or(!changes.has_more, |_| rounds == ROUNDS) {
                break;
            }
        }
        let totals =
            "SELECT sum(calls)::bigint, sum(total_exec_time)::float8, sum(total_plan_time)::float8,
                            sum(rows)::bigint
                     FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid
                     WHERE r.rolname = 'oar_ro'";
        let row = self.client.query_one(totals, &[]).await.unwrap();
        let (statements, executed, planned, rows): (i64, f64, f64, i64) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let mut out = std::io::stdout();
        writeln!(
            out,
            "{what}: {rounds} rounds, {calls} calls, {records} records; PostgreSQL: {statements} statements, \
             {executed:.0} ms, {planned:.0} ms to plan, {rows} rows; ours: {} ms of a processor, the longest \
             round {:.0} ms, at most {} KiB resident",
            ours / 1000,
            longest.as_secs_f64() * 1e3,
            resident(),
        )
        .unwrap();
    }
}

/// Peak resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time of this process, without its children's.
fn cpu_us() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<u64>().unwrap() / 1000
}
