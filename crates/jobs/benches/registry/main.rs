//! Benchmark of the registry with 1 000 000 past jobs (40 days of 25 000): the cost of a day and of
//! queries.
//!
//! Every job has a scheduler record and a visit of each of its 1 to 4 nodes out of 1000. A job waits,
//! runs and ends, so it is reported 3 times. A scheduler that repeats itself reports all running jobs
//! once more. Goal: a query by job takes at most 10 ms.
//!
//! ```text
//! cargo bench -p jobs --bench registry -- [DAYS_PAST [JOBS_OF_A_DAY]]
//! ```

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

mod made;

use jobs::{
    AccountChange, AccountKey, Filter, JobName, JobRecord, Limits, ListPosition, Reader,
    RecordUpdate, Registry, Role, Users, Window,
};
use made::{Made, Random, made};
use model::{ClusterId, DeviceId, JobEvent, JobFacts, JobId, JobKey, JobState, Timestamp};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// 2026-01-06T00:00:00Z.
const BEGIN: i64 = 1_767_657_600;
const NODES: u64 = 1000;
const DAY: i64 = 86_400;
/// Jobs per day.
const A_DAY: i64 = 25_000;
/// Jobs of a fifth of a day, and the length of that time in microseconds.
const A_WHILE: i64 = A_DAY / 5;
const LATER: i64 = DAY / 5 * Timestamp::SECOND;
/// Jobs in one poll of a scheduler.
const ROUND: usize = 500;
const QUERIES: usize = 300;
/// Jobs that run during the queries.
const RUNNING: i64 = 3000;

/// Inserts the past jobs of a fifth of a day in their final state.
fn fill(registry: &Registry, random: &mut Random) {
    let now = Timestamp::from_seconds(BEGIN + DAY);
    let jobs: Vec<Made> = (1..=A_WHILE).map(|id| made(id, id * DAY / A_DAY, random)).collect();
    for jobs in jobs.chunks(1_000) {
        for ended in [false, true] {
            let events: Vec<JobEvent> = jobs.iter().flat_map(|job| job.events(ended)).collect();
            assert_eq!(registry.apply(&events, now).unwrap().rejected, 0);
        }
        let records: Vec<JobRecord> = jobs.iter().map(Made::ended).collect();
        assert_eq!(registry.ingest(&records, now).unwrap().rejected, 0);
    }
}

/// Copies these rows `times` times with new IDs and later times. Reporting each of 1 000 000 jobs would
/// take 15 min. Indexes and triggers are recreated afterwards.
fn repeat(path: &Path, times: i64) {
    let db = rusqlite::Connection::open(path).unwrap();
    db.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; BEGIN").unwrap();
    let made = "SELECT type, name, sql FROM sqlite_schema
        WHERE type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY name";
    let made: Vec<[String; 3]> = db
        .prepare(made)
        .unwrap()
        .query_map([], |row| Ok([row.get(0)?, row.get(1)?, row.get(2)?]))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for [kind, name, _] in &made {
        db.execute_batch(&format!("DROP {kind} {name}")).unwrap();
    }
    let most: i64 = db.query_row("SELECT max(run) FROM runs", [], |row| row.get(0)).unwrap();
    assert!(most <= A_WHILE);
    for table in ["records", "shares", "steps", "runs", "visits"] {
        let columns = db
            .prepare("SELECT name FROM pragma_table_info(?1)")
            .unwrap()
            .query_map([table], |row| row.get(0))
            .unwrap()
            .collect::<Result<Vec<String>, _>>()
            .unwrap();
        let later = |column: &String| match (table, column.as_str()) {
            ("runs", "record_state") => column.clone(),
            (_, "record" | "run" | "id") => format!("{column} + ?1 * {A_WHILE}"),
            (_, "display_id") => format!("CAST(display_id + ?1 * {A_WHILE} AS TEXT)"),
            (_, "submit" | "received" | "start" | "stop" | "last_start" | "reported_stop") => {
                format!("{column} + ?1 * {LATER}")
            }
            (_, "record_start" | "record_stop") => format!("{column} + ?1 * {LATER}"),
            _ => column.clone(),
        };
        let values: Vec<String> = columns.iter().map(later).collect();
        let place = if matches!(table, "runs" | "visits") { "run" } else { "record" };
        let sql = format!(
            "INSERT INTO {table} ({}) SELECT {} FROM {table} WHERE {place} <= {A_WHILE}",
            columns.join(", "),
            values.join(", ")
        );
        let mut insert = db.prepare(&sql).unwrap();
        for time in 1..times {
            insert.execute([time]).unwrap();
        }
    }
    for [_, _, sql] in &made {
        db.execute_batch(sql).unwrap();
    }
    db.execute_batch(
        "UPDATE counts SET value = (SELECT count(*) FROM visits) WHERE name = 'visits';
         UPDATE counts SET value = (SELECT count(*) FROM records) WHERE name = 'records';
         COMMIT; PRAGMA wal_checkpoint(TRUNCATE)",
    )
    .unwrap();
}

/// Inserts running jobs of the last half hour.
fn run_some(registry: &Registry, first: i64, now: Timestamp, random: &mut Random) {
    let begun = now.0 / Timestamp::SECOND - BEGIN - 2400;
    let jobs: Vec<Made> =
        (0..RUNNING).map(|n| made(first + n, begun + n * 1200 / RUNNING, random)).collect();
    let records: Vec<JobRecord> = jobs.iter().map(|job| job.record.clone()).collect();
    assert_eq!(registry.ingest(&records, now).unwrap().rejected, 0);
    let events: Vec<JobEvent> = jobs.iter().flat_map(|job| job.events(false)).collect();
    assert_eq!(registry.apply(&events, now).unwrap().rejected, 0);
}

/// Measures the cost of a day: the processor time of each kind of report.
fn a_day(
    registry: &Registry,
    first: i64,
    day: i64,
    random: &mut Random,
    now: Timestamp,
) -> Vec<(&'static str, Duration, usize)> {
    let submit = |n: i64| now.0 / Timestamp::SECOND - BEGIN - DAY + n * (DAY - 9000) / day;
    let jobs: Vec<Made> = (0..day).map(|n| made(first + n, submit(n), random)).collect();
    let mut costs = vec![
        ("reported waiting", Duration::ZERO, 0),
        ("reported running", Duration::ZERO, 0),
        ("nodes tell the start", Duration::ZERO, 0),
        ("reported again, nothing new", Duration::ZERO, 0),
        ("nodes tell the end", Duration::ZERO, 0),
        ("reported ended", Duration::ZERO, 0),
    ];
    let mut add = |place: usize, begun: Duration, count: usize| {
        let (_, time, of) = costs.get_mut(place).unwrap();
        (*time, *of) = (*time + processor_time() - begun, *of + count);
    };
    for jobs in jobs.chunks(ROUND) {
        let ingest_all = |records: Vec<JobRecord>| {
            let begun = processor_time();
            assert_eq!(registry.ingest(&records, now).unwrap().rejected, 0);
            begun
        };
        let seen = |events: Vec<JobEvent>| {
            let begun = processor_time();
            assert_eq!(registry.apply(&events, now).unwrap().rejected, 0);
            begun
        };
        let running: Vec<JobRecord> = jobs.iter().map(|job| job.record.clone()).collect();
        add(0, ingest_all(jobs.iter().map(Made::waiting).collect()), jobs.len());
        add(1, ingest_all(running.clone()), jobs.len());
        add(2, seen(jobs.iter().flat_map(|job| job.events(false)).collect()), jobs.len());
        add(3, ingest_all(running), jobs.len());
        add(4, seen(jobs.iter().flat_map(|job| job.events(true)).collect()), jobs.len());
        add(5, ingest_all(jobs.iter().map(Made::ended).collect()), jobs.len());
    }
    costs
}

/// The times of a query: median, maximum, and processor time.
struct Took {
    middle: Duration,
    most: Duration,
    processor: Duration,
}

fn measure(mut question: impl FnMut(usize)) -> Took {
    let before = processor_time();
    let mut times: Vec<Duration> = (0..QUERIES)
        .map(|nth| {
            let begun = Instant::now();
            question(nth);
            begun.elapsed()
        })
        .collect();
    let processor = (processor_time() - before) / u32::try_from(QUERIES).unwrap();
    times.sort_unstable();
    Took { middle: *times.get(QUERIES / 2).unwrap(), most: *times.last().unwrap(), processor }
}

/// Returns the processor time of this thread, to a tick (proc(5), schedstat). Other load on the machine
/// does not count.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

fn main() {
    let arguments: Vec<i64> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let (days, day) = (
        arguments.first().copied().unwrap_or(40).max(2),
        arguments.get(1).copied().unwrap_or(A_DAY),
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    let open = || Registry::open(&path, Limits::default(), Users::default).unwrap();
    let mut out = std::io::stdout().lock();
    let mut random = Random(7);
    let begun = Instant::now();
    fill(&open(), &mut random);
    repeat(&path, 5 * days);
    let past = days * A_DAY;
    let (took, bytes) = (begun.elapsed().as_secs(), std::fs::metadata(&path).unwrap().len());
    let each = bytes / past.unsigned_abs();
    writeln!(out, "{past} past jobs in {took} s, {each} bytes on disk a job").unwrap();
    let empty = resident();
    let begun = Instant::now();
    let registry = open();
    registry.running().unwrap();
    let opened = begun.elapsed().as_secs_f64() * 1e3;
    writeln!(out, "opened in {opened:.1} ms").unwrap();
    let now = Timestamp::from_seconds(BEGIN + (days + 2) * DAY);
    let mut whole = Duration::ZERO;
    for (what, time, count) in a_day(&registry, past + 1, day, &mut random, now) {
        whole += time;
        let each = time.as_secs_f64() * 1e6 / count as f64;
        writeln!(out, "{what:<48} {each:9.1} µs of the processor a job").unwrap();
    }
    writeln!(out, "a day of {day} jobs takes {:.1} s of it", whole.as_secs_f64()).unwrap();
    run_some(&registry, past + day + 1, now, &mut random);
    let account = AccountKey { cluster: ClusterId::new("slurm").unwrap(), name: "account7".into() };
    let shown = AccountChange { members_see: None, users: vec![(MANAGER, Role::Manager)] };
    registry.change_account(&account, &shown).unwrap();
    let key = |_| {
        let id = JobId::new(1 + random.seconds(past.unsigned_abs())).unwrap();
        JobKey { cluster: ClusterId::new("slurm").unwrap(), id }
    };
    let keys: Vec<JobKey> = (0..QUERIES).map(key).collect();
    let middle = now.plus(-days / 2 * DAY * Timestamp::SECOND);
    questions_by_job(&registry, &keys, &mut out);
    lists(&registry, middle, &mut out);
    at_times(&registry, &keys, now, &mut out);
    measure_access(&registry, now, middle, &mut out);
    one_by_one(&registry, past + day + RUNNING + 1, now, &mut random, &mut out);
    let used = resident().saturating_sub(empty);
    writeln!(out, "{used} KiB of memory for the open registry").unwrap();
}

/// Returns the resident memory of the process in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Measures a query and prints its times.
fn ingest_all(out: &mut impl Write, what: &str, question: impl FnMut(usize)) {
    let Took { middle, most, processor } = measure(question);
    let [middle, most, processor] = [middle, most, processor].map(|time| time.as_secs_f64() * 1e3);
    writeln!(
        out,
        "{what:<48} {middle:9.3} ms, at most {most:9.3} ms, of the processor {processor:9.3} ms"
    )
    .unwrap();
}

fn hour_of(registry: &Registry, key: &JobKey) -> (Option<Timestamp>, Option<Timestamp>) {
    let from = registry.job(key).unwrap().unwrap().start.unwrap();
    (Some(from), Some(from.plus(3600 * Timestamp::SECOND)))
}

fn questions_by_job(registry: &Registry, keys: &[JobKey], out: &mut impl Write) {
    let key = |nth: usize| keys.get(nth).unwrap();
    ingest_all(out, "a name is resolved", |nth| {
        assert_eq!(registry.resolve(&JobName::number(key(nth).id)).unwrap(), *key(nth));
    });
    ingest_all(out, "a job with everything", |nth| {
        assert!(registry.whole(key(nth)).unwrap().is_some());
    });
    ingest_all(out, "its runs", |nth| assert!(!registry.runs(key(nth)).unwrap().is_empty()));
    ingest_all(out, "its owner", |nth| assert!(registry.owner(key(nth)).unwrap().is_some()));
    ingest_all(out, "its stays", |nth| {
        let window = Window { job: Some(key(nth).clone()), ..Window::default() };
        assert!(!registry.intervals(&window).unwrap().is_empty());
    });
    let hours: Vec<_> = keys.iter().map(|key| hour_of(registry, key)).collect();
    ingest_all(out, "its stays within an hour", |nth| {
        let (from, to) = *hours.get(nth).unwrap();
        let window = Window { job: Some(key(nth).clone()), from, to, ..Window::default() };
        assert!(!registry.intervals(&window).unwrap().is_empty());
    });
}

fn lists(registry: &Registry, middle: Timestamp, out: &mut impl Write) {
    let all = Filter::default;
    let fifty =
        |filter: Filter| registry.list(&Filter { limit: Some(50), ..filter }).unwrap().len();
    let found = |filter: Filter| assert!(fifty(filter) > 0);
    let none = |filter: Filter| assert_eq!(fifty(filter), 0);
    let user = |nth: usize| Some(format!("user{nth}"));
    let text = |text: &str| Some(text.to_owned());
    ingest_all(out, "how many run now", |_| assert!(registry.running().unwrap() > 0));
    ingest_all(out, "the 50 newest jobs", |_| found(all()));
    ingest_all(out, "the 1000 newest jobs", |_| {
        drop(registry.list(&Filter { limit: Some(1000), ..all() }))
    });
    ingest_all(out, "50 after one in the middle of all", |nth| {
        let start = middle;
        let id = JobId::new(i64::try_from(nth).unwrap() + 1).unwrap();
        let key = JobKey { cluster: ClusterId::new("slurm").unwrap(), id };
        found(Filter { after: Some(ListPosition { start, key }), ..all() });
    });
    ingest_all(out, "of a user, by number", |nth| {
        found(Filter { uid: Some(10_000 + u32::try_from(nth).unwrap()), ..all() });
    });
    ingest_all(out, "of a user, by name", |nth| found(Filter { user: user(nth), ..all() }));
    ingest_all(out, "of a user that has none", |_| none(Filter { user: text("nobody"), ..all() }));
    ingest_all(out, "of a user, in a rare queue", |nth| {
        fifty(Filter { user: user(1 + nth), queue: text("rare"), ..all() });
    });
    ingest_all(out, "of the user of a tenth of all, in a rare queue", |_| {
        fifty(Filter { user: user(0), queue: text("rare"), ..all() });
    });
    ingest_all(out, "of an account", |nth| {
        found(Filter { account: Some(format!("account{}", nth % 40)), ..all() });
    });
    ingest_all(out, "of a project", |nth| {
        found(Filter { project: Some(format!("project{}", nth % 100)), ..all() });
    });
    ingest_all(out, "of a rare queue", |_| {
        fifty(Filter { queue: text("rare"), ..all() });
    });
    ingest_all(out, "of a name", |nth| {
        found(Filter { name: Some(format!("solve-{nth}")), ..all() })
    });
    ingest_all(out, "that run", |_| found(Filter { state: Some(JobState::Running), ..all() }));
    ingest_all(out, "that ended", |_| found(Filter { state: Some(JobState::Ended), ..all() }));
    ingest_all(out, "that failed", |_| found(Filter { state: Some(JobState::Failed), ..all() }));
    ingest_all(out, "of a cluster that has none", |_| {
        none(Filter { cluster: Some(ClusterId::local()), ..all() });
    });
    ingest_all(out, "of a node", |nth| found(Filter { device: node(nth), ..all() }));
    ingest_all(out, "a user sees: the 50 newest", |nth| {
        let reader = Reader::User(10_000 + u32::try_from(nth).unwrap());
        found(Filter { reader, ..all() });
    });
    ingest_all(out, "a user sees: of a node", |nth| {
        let reader = Reader::User(10_000 + u32::try_from(1 + nth).unwrap());
        fifty(Filter { reader, device: node(nth), ..all() });
    });
    ingest_all(out, "the manager of an account sees: the 50 newest", |_| {
        found(Filter { reader: Reader::User(MANAGER), ..all() });
    });
}

/// The manager of an account with 25 000 jobs.
const MANAGER: u32 = 77;

fn node(nth: usize) -> Option<DeviceId> {
    Some(DeviceId::new(&format!("node-{nth}")).unwrap())
}

/// Queries of a time range.
fn at_times(registry: &Registry, keys: &[JobKey], now: Timestamp, out: &mut impl Write) {
    let hours: Vec<_> = keys.iter().map(|key| hour_of(registry, key)).collect();
    let hour = |nth: usize| *hours.get(nth).unwrap();
    let all = Filter::default;
    let fifty =
        |filter: Filter| registry.list(&Filter { limit: Some(50), ..filter }).unwrap().len();
    ingest_all(out, "the 50 newest of an hour", |nth| {
        let (from, to) = hour(nth);
        assert!(fifty(Filter { from, to, ..all() }) > 0);
    });
    ingest_all(out, "of a user, of an hour", |nth| {
        let (from, to) = hour(nth);
        fifty(Filter { user: Some(format!("user{nth}")), from, to, ..all() });
    });
    ingest_all(out, "of a node, of an hour", |nth| {
        let (from, to) = hour(nth);
        fifty(Filter { device: node(nth), from, to, ..all() });
    });
    let count_allocations = |window: Window| registry.intervals(&window).unwrap().len();
    ingest_all(out, "who is on any node now", |_| {
        assert!(
            count_allocations(Window { from: Some(now), to: Some(now), ..Window::default() }) > 0
        );
    });
    ingest_all(out, "who is on a node now", |nth| {
        let (from, to) = (Some(now), Some(now));
        count_allocations(Window { device: node(nth), from, to, ..Window::default() });
    });
    ingest_all(out, "who was on a node in an hour", |nth| {
        let (from, to) = hour(nth);
        count_allocations(Window { device: node(nth), from, to, ..Window::default() });
    });
    ingest_all(out, "who was on any node in an hour", |nth| {
        let (from, to) = hour(nth);
        assert!(count_allocations(Window { from, to, ..Window::default() }) > 0);
    });
    ingest_all(out, "where scheduler and nodes disagree", |_| {
        drop(registry.disagreements(now, |_| jobs::AgentPresence::Reporting).unwrap());
    });
}

/// Queries of the nodes that a user's jobs have or had.
fn measure_access(registry: &Registry, now: Timestamp, middle: Timestamp, out: &mut impl Write) {
    let after = |seconds: i64| Some(middle.plus(seconds * Timestamp::SECOND));
    let user = |nth: usize| Reader::Tenant(10_001 + u32::try_from(nth).unwrap());
    for (who, owners) in [
        ("a user", None),
        ("the user of a tenth", Some(Reader::Tenant(10_000))),
        ("an account's manager", Some(Reader::Tenant(MANAGER))),
    ] {
        for (when, from, to) in [
            ("now", Some(now), Some(now)),
            ("in an hour", after(0), after(3600)),
            ("in a day", after(0), after(DAY)),
        ] {
            ingest_all(out, &format!("nodes of {who}, {when}"), |nth| {
                let reader = owners.unwrap_or_else(|| user(nth));
                drop(
                    registry.intervals(&Window { reader, from, to, ..Window::default() }).unwrap(),
                );
            });
        }
    }
}

/// Reports one by one, each with a write to the disk.
fn one_by_one(
    registry: &Registry,
    first: i64,
    now: Timestamp,
    random: &mut Random,
    out: &mut impl Write,
) {
    let begun = now.0 / Timestamp::SECOND - BEGIN - 8000;
    let jobs: Vec<Made> = (first..).take(QUERIES).map(|id| made(id, begun, random)).collect();
    let job = |nth: usize| jobs.get(nth).unwrap();
    ingest_all(out, "a record is reported", |nth| {
        assert_eq!(registry.ingest(&[job(nth).record.clone()], now).unwrap().new, 1);
    });
    ingest_all(out, "a record is amended", |nth| {
        let name = Some(format!("again-{nth}").into());
        let amendment = RecordUpdate {
            facts: JobFacts { name, ..JobFacts::default() },
            ..RecordUpdate::new(job(nth).record.key.clone())
        };
        assert_eq!(registry.ingest_updates(vec![amendment], now).unwrap().changed, 1);
    });
    ingest_all(out, "its nodes tell its start", |nth| {
        let events: Vec<JobEvent> = job(nth).events(false).collect();
        assert_eq!(registry.apply(&events, now).unwrap().rejected, 0);
    });
}
