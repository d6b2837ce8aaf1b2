//! The statements about jobs, and `age`, give what a real PostgreSQL gives for the same rows.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests end at the first surprise, and start PostgreSQL"
)]

#[path = "../../query/tests/lab/mod.rs"]
mod lab;
mod run_sql;

use lab::{Lab, TestSeries, key};
use model::{Kind, Unit};
use query::Settings;
use run_sql::{engine, engine_with, run_sql};
use sql::{DEFAULT_JOB_REQUESTS, Limits, Sql, read_job_requests};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs the other script as an ordinary user: PostgreSQL refuses to run as root.
const AS_USER: &str = r#"
[ "$(id -u)" = 0 ] && exec setpriv --reuid=postgres --regid=postgres --clear-groups sh -c "$SCRIPT"
exec sh -c "$SCRIPT"
"#;

/// Makes a database in a folder of its own, and runs it without a server. Standard input has one command per line;
/// `OUT` is the file whose text is the answer.
const SCRIPT: &str = r#"
set -eu
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
sed "s|OUT|$dir/out|" >"$dir/in"
"$bin/initdb" --no-sync -D "$dir/data" -E UTF8 --locale=C.UTF-8 >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
"$bin/postgres" --single -D "$dir/data" -c fsync=off -c TimeZone=Europe/Paris postgres <"$dir/in" >"$dir/log" 2>&1
cat "$dir/out" || { cat "$dir/log" >&2; exit 1; }
"#;

/// Runs commands, one per line.
fn postgresql(commands: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", AS_USER]).env("SCRIPT", SCRIPT).env("LC_ALL", "C.UTF-8");
    command.current_dir("/").env_remove("TMPDIR").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "PostgreSQL failed; `make test` installs it");
    String::from_utf8(output.stdout).unwrap()
}

/// Job 7 on two nodes: power by the ports of a PDU, counters of processors and networks, and memory.
fn filled() -> Lab {
    let lab = Lab::new();
    for (nth, node) in [(0_u32, "n1"), (1, "n2")] {
        let wave = |second: u32, size: f64| f64::from((second * 7 + nth * 3) % 11) * size;
        let values = |value: &dyn Fn(u32) -> f64| -> Vec<(f64, f64)> {
            (0..40).map(|step| (f64::from(step * 15) + 0.25, value(step))).collect()
        };
        let counter = |metric, unit| TestSeries {
            device: node,
            metric,
            unit,
            kind: Kind::Counter,
            ..TestSeries::default()
        };
        for port in 0..2_u32 {
            let watts = values(&|step| 90.0 + wave(step + port, 1.37));
            let device = format!("pdu-{node}-{port}");
            lab.put_from(
                "poller-lab/group-1",
                7200.0,
                &[TestSeries {
                    device: &device,
                    metric: "wattmetre_power_watt",
                    labels: &[("_device_alias", node)],
                    samples: &watts,
                    ..TestSeries::default()
                }],
            );
        }
        for (mode, share) in [("idle", 0.8), ("user", 0.15)] {
            let seconds = values(&|step| f64::from(step * 15) * share + wave(step, 0.01));
            let labels = [("cpu", "0"), ("mode", mode)];
            let series = counter("prom_node_cpu_seconds_total", Unit::Seconds);
            lab.put_from(
                "poller-lab/group-1",
                7200.0,
                &[TestSeries { labels: &labels, samples: &seconds, ..series }],
            );
        }
        for metric in
            ["prom_node_network_receive_bytes_total", "prom_node_network_transmit_bytes_total"]
        {
            let bytes = values(&|step| f64::from(step * step) * 1000.0 + wave(step, 8.0));
            let series = counter(metric, Unit::Bytes);
            lab.put_from(
                "poller-lab/group-1",
                7200.0,
                &[TestSeries { labels: &[("device", "eth0")], samples: &bytes, ..series }],
            );
        }
        for (metric, size) in
            [("prom_node_memory_MemAvailable_bytes", 3e9), ("prom_node_memory_MemTotal_bytes", 8e9)]
        {
            let bytes = values(&|step| size + wave(step, 1e6));
            let series = TestSeries { device: node, metric, ..TestSeries::default() };
            lab.put_from("poller-lab/group-1", 7200.0, &[TestSeries { samples: &bytes, ..series }]);
        }
        lab.job(&key("oar", 7), node, 1000, 5.0, Some(580.0));
    }
    lab
}

const ROWS: &str = "get_metrics(job_id => 7, as_rate => 'auto')";

/// The rows of the job as lines of COPY.
async fn rows(sql: &Sql) -> String {
    let text = format!(
        "SELECT concat_ws('|', timestamp::text, device_id, metric_id, coalesce(value::text, '\\N'), labels) FROM {ROWS}"
    );
    run_sql(sql, &text).await.join("\n") + "\n"
}

#[tokio::test]
async fn the_default_statements_give_what_postgresql_gives() {
    let lab = filled();
    let sql = engine(&lab, Limits::default());
    let (requests, _) = read_job_requests(DEFAULT_JOB_REQUESTS);
    let rows = rows(&sql).await;
    assert!(rows.lines().count() > 500, "{}", rows.lines().count());
    let file = std::env::temp_dir().join(format!("jobmetrics-{}.txt", std::process::id()));
    std::fs::write(&file, &rows).unwrap();
    let mut commands = String::from(
        "create table jobmetrics (timestamp timestamptz, device_id text, metric_id text, value float8, labels jsonb)\n",
    );
    writeln!(commands, "copy jobmetrics from '{}' (delimiter '|')", file.display()).unwrap();
    commands.push_str("create table results (line int, value float8)\n");
    for request in &requests {
        let (line, text) = (request.line, &request.text);
        writeln!(commands, "insert into results select {line}, ({text})::float8").unwrap();
    }
    commands.push_str("copy (select value from results order by line) to 'OUT'\n");
    let theirs = postgresql(&commands);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(theirs.lines().count(), requests.len(), "{theirs}");
    for (request, theirs) in requests.iter().zip(theirs.lines()) {
        let ours = run_sql(&sql, &request.text.replace("jobmetrics", ROWS)).await.join(" ");
        let (ours, theirs): (f64, f64) = (ours.parse().unwrap(), theirs.parse().unwrap());
        assert!(theirs > 0.0, "{}", request.text);
        let near = (ours - theirs).abs() <= 1e-9 * theirs.abs();
        assert!(near, "{}: {ours} instead of {theirs}", request.text);
    }
}

#[tokio::test]
async fn ages_are_those_of_postgresql() {
    let lab = Lab::new();
    let zone = query::parse_zone("Europe/Paris").unwrap();
    let sql = engine_with(&lab, Settings { zone, ..Settings::default() }, Limits::default());
    let times = [
        "2024-02-29 23:59:59.999999",
        "2024-03-01 00:00:00",
        "2025-02-28 12:00:00",
        "2025-12-31 23:00:00",
        "2026-01-31 05:06:07.5",
        "2026-03-01 05:06:07.25",
        "2026-03-28 02:30:00",
        "2026-03-29 02:30:00",
        "2026-10-25 02:30:00",
        "2026-10-26 01:00:00",
        "1999-07-04 00:00:00",
    ];
    let pairs = || times.iter().flat_map(|later| times.iter().map(move |earlier| (later, earlier)));
    let mut commands = String::from("create table results (id serial, value float8)\n");
    for (later, earlier) in pairs() {
        let age = format!("age(timestamptz '{later}', timestamptz '{earlier}')");
        let part = |part| format!("extract({part} from {age})");
        let fields = ["epoch", "year", "month", "day", "hour", "second"].map(part).join("), (");
        writeln!(commands, "insert into results (value) values ({fields})").unwrap();
    }
    commands.push_str("copy (select value from results order by id) to 'OUT'\n");
    let theirs: Vec<f64> =
        postgresql(&commands).lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), times.len() * times.len() * 6);
    for ((later, earlier), theirs) in pairs().zip(theirs.chunks(6)) {
        let text = format!("SELECT extract(epoch from age('{later}', '{earlier}'))");
        let ours: f64 = run_sql(&sql, &text).await.join("").parse().unwrap();
        assert!((ours - theirs[0]).abs() < 1e-6, "{later} {earlier}: {ours} instead of {theirs:?}");
        let text = format!("SELECT age('{later}', '{earlier}') = interval '{}'", interval(theirs));
        assert_eq!(run_sql(&sql, &text).await, ["true"], "{later} {earlier}: {theirs:?}");
    }
}

/// An interval of the fields that PostgreSQL extracts. The minutes follow from the epoch.
fn interval(fields: &[f64]) -> String {
    let [epoch, year, month, day, hour, second] = fields else { panic!("{fields:?}") };
    let days = year * 365.25 + month * 30.0 + day;
    let minute = ((epoch - days * 86_400.0 - hour * 3600.0 - second) / 60.0).round();
    format!("{year} years {month} months {day} days {hour} hours {minute} minutes {second} seconds")
}
