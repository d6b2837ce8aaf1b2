//! The registry with a million past jobs: what a day of 25 000 jobs costs, and what questions by job do.
//!
//! Every job has a record of its scheduler and a visit of each of its nodes (1 to 4 of 1000); it waits, runs and
//! ends, so that it is told three times, and a scheduler that repeats itself tells all that run once more.
//! Goal: a question by job takes 10 ms at most.
//!
//! ```text
//! cargo bench -p jobs --bench registry -- [PAST [DAY]]
//! ```

#![expect(clippy::unwrap_used, reason = "a bench that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "a bench measures time")]

use jobs::{Filter, JobName, Limits, NodeShare, Record, Registry, Resources, Step, Users, Window};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, JobState, Timestamp};
use std::io::Write;
use std::time::{Duration, Instant};

/// 2026-01-06T00:00:00Z.
const BEGIN: i64 = 1_767_657_600;
const NODES: u64 = 1000;
const DAY: i64 = 86_400;
/// Jobs told at once: what a round of a scheduler gives.
const ROUND: usize = 500;
const ASKED: usize = 300;

/// SplitMix64, by Sebastiano Vigna.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    fn seconds(&mut self, end: u64) -> i64 {
        i64::try_from(self.below(end)).unwrap()
    }
}

/// A job as the bench made it.
#[derive(Clone)]
struct Made {
    record: Record,
    stop: Timestamp,
}

fn made(id: i64, submit: i64, random: &mut Random) -> Made {
    let at = |second| Timestamp::from_seconds(BEGIN + second);
    let start = submit + random.seconds(600);
    let stop = start + 60 + random.seconds(7200);
    let first = random.below(NODES);
    let nodes = (0..=random.below(4)).map(|n| NodeShare {
        device: DeviceId::new(&format!("node-{}", (first + n) % NODES)).unwrap(),
        cpus: Some(32),
        cpu_list: "0-31".into(),
        gpus: None,
        gpu_list: Box::default(),
        memory_bytes: Some(64 << 30),
    });
    let user = random.below(500);
    let record = Record {
        key: JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(id).unwrap() },
        submit: at(submit),
        spelling: Box::default(),
        part_of: None,
        array_index: None,
        user: Some(format!("user{user}").into()),
        uid: Some(u32::try_from(10_000 + user).unwrap()),
        account: Some(format!("account{}", user % 40).into()),
        project: None,
        name: Some(format!("solve-{}", id % 977).into()),
        queue: Some("long".into()),
        state: JobState::Running,
        state_word: "RUNNING".into(),
        start: Some(at(start)),
        stop: None,
        exit_code: None,
        types: Vec::new(),
        requested: Resources { cpus: Some(32), wall_seconds: Some(7200.0), ..Resources::default() },
        used: Resources::default(),
        nodes: nodes.collect(),
        steps: vec![Step {
            id: "batch".into(),
            name: "batch".into(),
            state_word: "RUNNING".into(),
            start: Some(at(start)),
            stop: None,
            exit_code: None,
        }],
    };
    Made { record, stop: at(stop) }
}

impl Made {
    fn waiting(&self) -> Record {
        let (state, state_word) = (JobState::Waiting, "PENDING".into());
        Record { state, state_word, start: None, nodes: Vec::new(), ..self.record.clone() }
    }

    fn ended(&self) -> Record {
        let (state, state_word, stop) = (JobState::Ended, "COMPLETED".into(), Some(self.stop));
        Record { state, state_word, stop, exit_code: Some(0), ..self.record.clone() }
    }

    fn events(&self, ended: bool) -> impl Iterator<Item = JobEvent> {
        self.record.nodes.iter().map(move |share| JobEvent {
            key: self.record.key.clone(),
            spelling: self.record.key.id.to_string().into(),
            device: share.device.clone(),
            user: None,
            uid: self.record.uid,
            start: self.record.start.unwrap(),
            stop: ended.then_some(self.stop),
        })
    }
}

fn fill(registry: &Registry, past: i64, random: &mut Random) -> Timestamp {
    // 25 000 jobs a day, for forty days.
    let jobs: Vec<Made> = (1..=past).map(|id| made(id, id * DAY / 25_000, random)).collect();
    let now = jobs.iter().map(|job| job.stop).max().unwrap().plus(DAY * Timestamp::SECOND);
    for jobs in jobs.chunks(2_000) {
        for ended in [false, true] {
            let events: Vec<JobEvent> = jobs.iter().flat_map(|job| job.events(ended)).collect();
            assert_eq!(registry.apply(&events, now).unwrap().refused, 0);
        }
        let records: Vec<Record> = jobs.iter().map(Made::ended).collect();
        assert_eq!(registry.tell(&records, now).unwrap().refused, 0);
    }
    now
}

/// What a day costs, in processor-bound time of each kind of telling.
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
        ("told waiting", Duration::ZERO, 0),
        ("told running", Duration::ZERO, 0),
        ("nodes tell the start", Duration::ZERO, 0),
        ("told again, nothing new", Duration::ZERO, 0),
        ("nodes tell the end", Duration::ZERO, 0),
        ("told ended", Duration::ZERO, 0),
    ];
    let mut add = |place: usize, begun: Instant, count: usize| {
        let (_, time, of) = costs.get_mut(place).unwrap();
        (*time, *of) = (*time + begun.elapsed(), *of + count);
    };
    for jobs in jobs.chunks(ROUND) {
        let told = |records: Vec<Record>| {
            let begun = Instant::now();
            assert_eq!(registry.tell(&records, now).unwrap().refused, 0);
            begun
        };
        let seen = |events: Vec<JobEvent>| {
            let begun = Instant::now();
            assert_eq!(registry.apply(&events, now).unwrap().refused, 0);
            begun
        };
        let running: Vec<Record> = jobs.iter().map(|job| job.record.clone()).collect();
        add(0, told(jobs.iter().map(Made::waiting).collect()), jobs.len());
        add(1, told(running.clone()), jobs.len());
        add(2, seen(jobs.iter().flat_map(|job| job.events(false)).collect()), jobs.len());
        add(3, told(running), jobs.len());
        add(4, seen(jobs.iter().flat_map(|job| job.events(true)).collect()), jobs.len());
        add(5, told(jobs.iter().map(Made::ended).collect()), jobs.len());
    }
    costs
}

/// The middle and the largest of the times of a question.
fn ask(mut question: impl FnMut(usize)) -> (Duration, Duration) {
    let mut times: Vec<Duration> = (0..ASKED)
        .map(|nth| {
            let begun = Instant::now();
            question(nth);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    (*times.get(ASKED / 2).unwrap(), *times.last().unwrap())
}

fn main() {
    let arguments: Vec<i64> =
        std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let (past, day) = (
        arguments.first().copied().unwrap_or(1_000_000),
        arguments.get(1).copied().unwrap_or(25_000),
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("registry.sqlite");
    let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
    let mut out = std::io::stdout().lock();
    let mut random = Random(7);
    let begun = Instant::now();
    let now = fill(&registry, past, &mut random);
    let bytes = std::fs::metadata(&path).unwrap().len();
    writeln!(
        out,
        "{past} past jobs in {:.0} s, {} bytes on disk a job",
        begun.elapsed().as_secs_f64(),
        bytes / past.unsigned_abs()
    )
    .unwrap();
    let mut whole = Duration::ZERO;
    for (what, time, count) in a_day(&registry, past + 1, day, &mut random, now) {
        whole += time;
        let each = time.as_secs_f64() * 1e6 / count as f64;
        writeln!(out, "{what:<24} {each:8.1} µs a job").unwrap();
    }
    writeln!(out, "a day of {day} jobs takes {:.1} s", whole.as_secs_f64()).unwrap();
    let key = |_| {
        let id = JobId::new(1 + random.seconds(past.unsigned_abs())).unwrap();
        JobKey { cluster: ClusterId::new("slurm").unwrap(), id }
    };
    let keys: Vec<JobKey> = (0..ASKED).map(key).collect();
    questions_by_job(&registry, &keys, &mut out);
    lists(&registry, &keys, now, &mut out);
}

/// Says how long a question takes.
fn told(out: &mut impl Write, what: &str, question: impl FnMut(usize)) {
    let (middle, most) = ask(question);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    writeln!(out, "{what:<40} {:9.3} ms, at most {:9.3} ms", ms(middle), ms(most)).unwrap();
}

fn hour_of(registry: &Registry, key: &JobKey) -> (Option<Timestamp>, Option<Timestamp>) {
    let from = registry.job(key).unwrap().unwrap().start.unwrap();
    (Some(from), Some(from.plus(3600 * Timestamp::SECOND)))
}

fn questions_by_job(registry: &Registry, keys: &[JobKey], out: &mut impl Write) {
    let key = |nth: usize| keys.get(nth).unwrap();
    told(out, "a name is resolved", |nth| {
        assert_eq!(registry.resolve(&JobName::number(key(nth).id)).unwrap(), *key(nth));
    });
    told(out, "a job with everything", |nth| {
        assert!(registry.whole(key(nth)).unwrap().is_some());
    });
    told(out, "its runs", |nth| assert!(!registry.runs(key(nth)).unwrap().is_empty()));
    told(out, "its owner", |nth| assert!(registry.owner(key(nth)).unwrap().is_some()));
    told(out, "its stays", |nth| {
        let window = Window { job: Some(key(nth).clone()), ..Window::default() };
        assert!(!registry.intervals(&window).unwrap().is_empty());
    });
    let hours: Vec<_> = keys.iter().map(|key| hour_of(registry, key)).collect();
    told(out, "its stays within an hour", |nth| {
        let (from, to) = *hours.get(nth).unwrap();
        let window = Window { job: Some(key(nth).clone()), from, to, ..Window::default() };
        assert!(!registry.intervals(&window).unwrap().is_empty());
    });
}

fn lists(registry: &Registry, keys: &[JobKey], now: Timestamp, out: &mut impl Write) {
    let node = |nth: usize| Some(DeviceId::new(&format!("node-{nth}")).unwrap());
    let fifty = |filter: Filter| {
        let filter = Filter { limit: Some(50), ..filter };
        assert!(!registry.list(&filter).unwrap().is_empty());
    };
    told(out, "jobs that run now", |_| {
        registry.running().unwrap();
    });
    told(out, "the 50 newest jobs", |_| fifty(Filter::default()));
    told(out, "of a user, by number", |nth| {
        let uid = Some(10_000 + u32::try_from(nth).unwrap());
        fifty(Filter { uid, ..Filter::default() });
    });
    told(out, "of a user, by name", |nth| {
        fifty(Filter { user: Some(format!("user{nth}")), ..Filter::default() });
    });
    told(out, "of a node", |nth| fifty(Filter { device: node(nth), ..Filter::default() }));
    told(out, "who is on any node now", |_| {
        let window = Window { from: Some(now), to: Some(now), ..Window::default() };
        drop(registry.intervals(&window).unwrap());
    });
    let hours: Vec<_> = keys.iter().map(|key| hour_of(registry, key)).collect();
    told(out, "who was on a node in an hour", |nth| {
        let (from, to) = *hours.get(nth).unwrap();
        let window = Window { device: node(nth), from, to, ..Window::default() };
        drop(registry.intervals(&window).unwrap());
    });
    told(out, "where scheduler and nodes disagree", |_| {
        drop(registry.disagreements(now, |_| true).unwrap());
    });
}
