//! Tests of queues that are drained between the ticks of their source.

use super::*;
use rustix::event::PollFlags;
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::time::Timespec;
use sources::IdleQueues;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;

#[test]
fn a_source_that_begins_to_want_it_is_drained_before_its_next_tick_and_no_longer_than_it_wants() {
    let mut bench = Bench::new(&first_only());
    bench.pass(1_500_000);
    bench.report("first", "begin");
    bench.pass(1_000_000);
    bench.report("first", "ok");
    bench.pass(1_000_000);
    let wanted_jobs = &Bench::samples(&bench.batches())["first_value"];
    assert_eq!(wanted_jobs[..], [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (2.1, 1.0), (3.0, 4.0)]);
}

#[test]
fn queues_are_emptied_at_the_multiples_of_what_they_want_and_with_the_ticks() {
    let mut bench = Bench::new(&plan());
    bench.pass(2_100_000);
    let wanted_jobs = &Bench::samples(&bench.batches())["second_value"];
    let times: Vec<f64> = wanted_jobs.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0.0, 0.4, 0.8, 1.0, 1.2, 1.6, 2.0]);
}

static EVENTS_READ: Metric = Metric::gauge("listening_heard", Unit::Count, "");
static LISTENING: SourceSpec =
    spec("listening", &[&EVENTS_READ], |open| listen(open, 720, Events::OfJobs));
static PATIENT: SourceSpec =
    spec("listening", &[&EVENTS_READ], |open| listen(open, 1300, Events::OfJobs));
static CALM: SourceSpec =
    spec("listening", &[&EVENTS_READ], |open| listen(open, 1000, Events::Calm));
static UNCONCERNED: SourceSpec =
    spec("listening", &[&EVENTS_READ], |open| listen(open, 720, Events::OfOthers));

/// The meaning of the bytes in a queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Events {
    OfJobs,
    /// They are about no job.
    OfOthers,
    /// They are about no job and may wait.
    Calm,
}

fn listen(
    open: &Open<'_>,
    at_most_ms: u64,
    events: Events,
) -> Result<Box<dyn Source>, SourceError> {
    let path = open.root.path().join("queue");
    let pipe = |path| {
        let queue = File::options().read(true).write(true).open(path);
        let queue = queue.map_err(|error| SourceError::broken(error.to_string()))?;
        rustix::io::ioctl_fionbio(&queue, true).unwrap();
        Ok::<File, SourceError>(queue)
    };
    let at_most = Duration::from_millis(at_most_ms);
    let moves = pipe(path.with_extension("moves")).ok();
    Ok(Box::new(Listening { queue: pipe(path)?, moves, found: 0, at_most, events }))
}

/// A source that counts the bytes in its queue at each drain.
struct Listening {
    queue: File,
    moves: Option<File>,
    found: usize,
    at_most: Duration,
    events: Events,
}

impl Source for Listening {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.drain(cx, out)
    }

    fn drain(&mut self, _: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.found = self.queue.read(&mut [0; 100]).unwrap_or(0);
        out.of_device().gauge(&EVENTS_READ, &[], self.found as f64);
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn quiet(&self) -> Option<IdleQueues<'_>> {
        let is_calm = self.events == Events::Calm;
        let moves = self.moves.as_ref().map(File::as_fd);
        let queues = [Some(self.queue.as_fd()), None];
        let quiet = IdleQueues { queues, is_calm, moves, at_most: self.at_most };
        match (self.events, self.found) {
            (Events::Calm, _) | (_, 0) => Some(quiet),
            (Events::OfJobs, _) => None,
            (Events::OfOthers, _) => Some(IdleQueues::default()),
        }
    }
}

/// A bench with this source alone, and its queue.
fn listening(spec: &'static SourceSpec, period_s: u64) -> (Bench, File) {
    let mut plan = first_only();
    plan.sources[0].spec = spec;
    plan.sources[0].period = Duration::from_secs(period_s);
    let mut bench = Bench::new(&plan);
    bench.sampler = bench.sampler.with_queues(Arc::new(Queues::new().unwrap()));
    let path = bench.dir.path().join("queue");
    mkfifoat(CWD, &path, Mode::RUSR).unwrap();
    let queue = File::options().read(true).write(true).open(path).unwrap();
    (bench, queue)
}

/// Times of the drains, and the bytes found.
fn drains(bench: &mut Bench) -> Vec<(f64, f64)> {
    bench.sampler.seal_now();
    Bench::samples(&bench.batches()).remove("listening_heard").unwrap_or_default()
}

/// The drains, if the given numbers of bytes arrive at the given instants in milliseconds.
fn observed(spec: &'static SourceSpec, comes: &[(i64, usize)], until_ms: i64) -> Vec<(f64, f64)> {
    let (mut bench, mut queue) = listening(spec, 2);
    let mut now_ms = 0;
    for (at_ms, bytes) in comes {
        bench.pass((at_ms - now_ms) * 1000);
        queue.write_all(&vec![0; *bytes]).unwrap();
        if bench.sampler.listens() {
            bench.sampler.ring();
        }
        now_ms = *at_ms;
    }
    bench.pass((until_ms - now_ms) * 1000);
    drains(&mut bench)
}

#[test]
fn a_quiet_queue_is_looked_into_when_something_comes_or_its_time_is_over() {
    assert_eq!(
        observed(&LISTENING, &[], 3_900),
        [(0.0, 0.0), (0.7, 0.0), (1.4, 0.0), (2.0, 0.0), (2.7, 0.0), (3.4, 0.0)]
    );
    assert_eq!(
        observed(&LISTENING, &[(130, 3)], 1_900),
        [(0.0, 0.0), (0.2, 3.0), (0.3, 0.0), (1.0, 0.0), (1.7, 0.0)],
        "at the next instant, and then until nothing is found"
    );
    let patient = observed(&PATIENT, &[(130, 3)], 3_900);
    let times: Vec<f64> = patient.iter().map(|(at, _)| *at).collect();
    assert_eq!(
        times,
        [0.0, 0.2, 0.3, 1.0, 2.0, 3.0],
        "where a second is not too long, with what wakes each second"
    );
}

#[test]
fn a_queue_into_which_much_comes_is_looked_into_as_often_as_is_wanted() {
    let comes: Vec<_> = (1..40).map(|at| (at * 10 + 5, 1)).collect();
    let observed = observed(&LISTENING, &comes, 900);
    let times: Vec<f64> = observed.iter().map(|(at, _)| *at).collect();
    // The bench wakes when data arrives, and nearly due drains join.
    assert_eq!(times, [0.0, 0.075, 0.175, 0.275, 0.375, 0.5, 0.6]);
    let all: f64 = observed.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(all, 39.0);
}

#[test]
fn a_job_that_comes_is_looked_at_at_once_though_nothing_comes_into_the_queue() {
    let (mut bench, _queue) = listening(&LISTENING, 10);
    let job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
    bench.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    bench.write(".jobmeter/owners", &format!("0 {} {job}\n", START - 9));
    bench.pass(150_000);
    bench.write(&format!("{job}/cgroup.events"), "populated 1\nfrozen 0\n");
    bench.sampler.note();
    bench.pass(350_000);
    assert_eq!(drains(&mut bench), [(0.0, 0.0), (0.15, 0.0)]);
}

#[test]
fn an_end_of_a_job_without_an_event_is_looked_for_when_a_task_ended() {
    let (mut bench, mut queue) = listening(&LISTENING, 10);
    let job = "sys/fs/cgroup/cpuacct/oar/someone_7";
    bench.write("proc/self/mounts", "cgroup /sys/fs/cgroup/cpuacct cgroup rw,cpuacct 0 0\n");
    bench.write(&format!("{job}/cgroup.procs"), "5\n");
    bench.write(&format!("{job}/tasks"), "5\n");
    let finds = |bench: &mut Bench, until_ms: i64| {
        let end = bench.clock.wall().plus(until_ms * 1000);
        let mut finds = Vec::new();
        loop {
            let generation = bench.sampler.generation;
            match bench.sampler.step() {
                Step::Read(reading) => bench.sampler.done(reading.make(&*bench.clock), generation),
                Step::Find(finding) => {
                    finds.push(bench.clock.wall().since(second(0)) / 1000);
                    bench.sampler.found(finding.make(), generation);
                }
                Step::Look(looking) => bench.sampler.looked(looking.make(), generation),
                Step::Wait(until) if until > end => break,
                Step::Wait(until) => bench.clock.pass(until.since(bench.clock.wall())),
                Step::End => panic!("it ended"),
            }
        }
        bench.clock.pass(end.since(bench.clock.wall()));
        finds
    };
    finds(&mut bench, 2_050);
    assert!(bench.sampler.jobs.iter().any(|job| job.populated), "{:?}", bench.sampler.jobs);
    assert_eq!(finds(&mut bench, 2_000), [3_000, 4_000], "nothing ends");
    queue.write_all(&[0]).unwrap();
    bench.sampler.ring();
    assert_eq!(
        finds(&mut bench, 2_000),
        [4_100, 4_200, 4_300, 5_000, 6_000],
        "until none ended since"
    );
    // No source hears of ends any more.
    bench.sampler.entries[0].enabled = false;
    let often = finds(&mut bench, 2_000);
    assert_eq!(often[..3], [7_000, 7_100, 7_200], "{often:?}");
}

static SEEN: Metric = Metric::gauge("companion_seen", Unit::Count, "");
static COMPANION: SourceSpec = spec("companion", &[&SEEN], |_| Ok(Box::new(Companion)));

/// A source without its own queue that waits for the queues of others.
struct Companion;

impl Source for Companion {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.drain(cx, out)
    }

    fn drain(&mut self, _: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        out.of_device().gauge(&SEEN, &[], 1.0);
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        Some(Duration::from_millis(100))
    }

    fn quiet(&self) -> Option<IdleQueues<'_>> {
        Some(IdleQueues { at_most: Duration::from_secs(1), ..IdleQueues::default() })
    }
}

#[test]
fn who_waits_for_anothers_queue_goes_along_and_does_not_turn_round_and_round() {
    let mut plan = plan();
    plan.sources[0].spec = &LISTENING;
    plan.sources[1].spec = &COMPANION;
    plan.sources.iter_mut().for_each(|source| source.period = Duration::from_secs(10));
    let mut bench = Bench::new(&plan);
    let queues = Arc::new(Queues::new().unwrap());
    bench.sampler = bench.sampler.with_queues(Arc::clone(&queues));
    let path = bench.dir.path().join("queue");
    mkfifoat(CWD, &path, Mode::RUSR).unwrap();
    let mut queue = File::options().read(true).write(true).open(path).unwrap();
    let is_readable = || {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(queues.fd(), PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    // Twice, a process starts shortly before an instant of drains and ends 2 ms later.
    let mut comes = vec![3_080, 3_082, 4_695, 4_697];
    let (mut wakes, end) = (0, second(0).plus(6_000_000));
    while bench.clock.wall() < end {
        let next = bench.work();
        if bench.sampler.listens() && is_readable() {
            wakes += 1;
            assert!(wakes < 100, "it does nothing else any more");
            bench.sampler.ring();
            continue;
        }
        let now = bench.clock.wall();
        let come = comes.first().map(|at_ms| second(0).plus(at_ms * 1000));
        let until = come.into_iter().chain([next, end]).min().unwrap();
        bench.clock.pass(until.since(now).max(1));
        if come == Some(until) {
            comes.remove(0);
            queue.write_all(&[0]).unwrap();
        }
    }
    bench.sampler.seal_now();
    let wanted_jobs = Bench::samples(&bench.batches());
    assert_eq!(wanted_jobs["listening_heard"].iter().map(|(_, bytes)| bytes).sum::<f64>(), 4.0);
    let times: Vec<f64> = wanted_jobs["companion_seen"].iter().map(|(at, _)| *at).collect();
    assert!(times.len() <= 14, "{times:?}");
    for end in [3.082, 4.697] {
        assert!(times.iter().any(|at| (end..end + 0.15).contains(at)), "{times:?}");
    }
}

#[test]
fn in_calm_only_moves_wake_the_agent() {
    let comes: Vec<_> = (1..18).map(|at| (at * 100 + 30, 1)).collect();
    let calm = observed(&CALM, &comes, 2_900);
    assert_eq!(calm, [(0.0, 0.0), (1.0, 9.0), (2.0, 8.0)], "they wait for the next drain");

    let (mut bench, mut queue) = listening(&CALM, 10);
    let path = bench.dir.path().join("queue.moves");
    mkfifoat(CWD, &path, Mode::RUSR).unwrap();
    let mut moves = File::options().read(true).write(true).open(path).unwrap();
    let queues = Arc::new(Queues::new().unwrap());
    bench.sampler = bench.sampler.with_queues(Arc::clone(&queues));
    let is_readable = || {
        let mut fds = [rustix::event::PollFd::from_borrowed_fd(queues.fd(), PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    };
    bench.pass(150_000);
    assert!(bench.sampler.listens());
    queue.write_all(&[0]).unwrap();
    assert!(!is_readable());
    moves.write_all(&[0]).unwrap();
    assert!(is_readable());
}

#[test]
fn events_about_no_job_cause_no_drain_of_other_sources() {
    for (events, drains) in [(&LISTENING, 3), (&UNCONCERNED, 2)] {
        let mut plan = plan();
        plan.sources[0].spec = events;
        plan.sources[1].spec = &COMPANION;
        plan.sources.iter_mut().for_each(|source| source.period = Duration::from_secs(10));
        let mut bench = Bench::new(&plan);
        bench.sampler = bench.sampler.with_queues(Arc::new(Queues::new().unwrap()));
        let path = bench.dir.path().join("queue");
        mkfifoat(CWD, &path, Mode::RUSR).unwrap();
        let mut queue = File::options().read(true).write(true).open(path).unwrap();
        bench.pass(330_000);
        queue.write_all(&[0]).unwrap();
        bench.sampler.ring();
        bench.pass(1_000_000);
        bench.sampler.seal_now();
        let samples = Bench::samples(&bench.batches());
        assert_eq!(samples["listening_heard"].iter().map(|(_, bytes)| bytes).sum::<f64>(), 1.0);
        assert_eq!(samples["companion_seen"].len(), drains, "{:?}", samples["companion_seen"]);
    }
}
