//! Tests of the listener with messages in memory, and a server.

use super::*;
use crate::sending::Group;
use colmet::backends::{Backend, JOBPROC, NVIDIA, PROCSTATS, TASKSTATS};
use colmet::frame::encode;
use colmet::record::{NO_JOB, Value};
use config::{ConfigFile, ConfigInputs, Raw, load_poller};
use delivery::MachineClock;
use server::{Reply, Server};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use wire::AckStatus;

#[path = "../../../../delivery/tests/server/mod.rs"]
mod server;

/// Longest wait.
const LIMIT_US: i64 = 60 * Timestamp::SECOND;
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn storing() -> Server {
    let server = Server::start(Box::new(|_, _| Reply::All(AckStatus::Stored)));
    set_agents(&server, "");
    server
}

/// Sets the hosts of which the server reports an agent: quoted names in a list.
fn set_agents(server: &Server, agents: &str) {
    let reply = format!(r#"{{"version": "1", "agents": [{agents}]}}"#);
    *server.demand.lock().unwrap() = Some(reply);
}

fn config(server: &str, spool: &Path, more: &[(&str, &str)]) -> PollerConfig {
    let of_test = [("server", server), ("spool", spool.to_str().unwrap())];
    let flag = |(key, text): &(&str, &str)| ((*key).to_owned(), Raw::One((*text).to_owned()));
    let flags = of_test.iter().chain(more).map(flag).collect();
    let given = ConfigInputs { file: ConfigFile::None, environment: &|_| None, flags };
    load_poller(&given).unwrap().config
}

/// The instant of a second after the begin of the tests.
fn second(number: i64) -> Timestamp {
    static BEGIN: LazyLock<Timestamp> = LazyLock::new(|| {
        let now = delivery::wall();
        Timestamp(now.0 - now.0.rem_euclid(10 * Timestamp::SECOND))
    });
    BEGIN.plus(number * Timestamp::SECOND)
}

fn record(backend: &'static Backend, host: &str, job: u64, at: Timestamp) -> Record {
    let mut record = Record::new(backend, host, job, at);
    record.set("meminfo_memtotal", Value::Unsigned(1));
    record.set("cpu_run_real_total", Value::Unsigned(1_000_000_000));
    record.set("power", Value::Signed(100));
    record
}

fn frames(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| encode(record, &mut bytes).unwrap());
    bytes
}

/// A message of a host with a job.
fn message(host: &str, at: Timestamp) -> Vec<u8> {
    frames(&[record(&TASKSTATS, host, 7, at), record(&PROCSTATS, host, NO_JOB, at)])
}

fn from(peer: IpAddr, bytes: Vec<u8>) -> Arrival {
    Arrival::Message(Message { peer, bytes })
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = MachineClock.steady_us();
    while !is_so() {
        assert!(MachineClock.steady_us() - begun < LIMIT_US, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A listener. Threads of an earlier one may have its spools for a moment.
fn open<'a>(config: &'a PollerConfig, clock: &'a Arc<dyn Clock>) -> Listener<'a> {
    let mut listener = None;
    until("the spools are free", || {
        listener = Listener::new(config, clock).ok();
        listener.is_some()
    });
    listener.unwrap()
}

/// Follows the agents until no message waits.
fn settle(listener: &mut Listener<'_>) {
    listener.seal(delivery::wall()).unwrap();
    until("the server's report of agents", || {
        listener.follow_agents().unwrap();
        listener.held.is_empty() && !listener.waits_for_agents
    });
}

/// Ends the listener once the server has everything.
fn finish(mut listener: Listener<'_>) {
    listener.seal(delivery::wall()).unwrap();
    until("the server has all", || listener.hosts.groups.iter().all(Group::is_sent));
    assert_eq!(listener.end(delivery::wall()).unwrap(), 0);
}

/// Instants in seconds since the first one, and values, of a metric of a device.
fn stored(server: &Server, device: &str, metric: &str) -> Vec<(i64, f64)> {
    let mut found = Vec::new();
    for batch in server.posts().iter().flat_map(|post| &post.batches) {
        assert!(batch.origin.as_str().starts_with("poller-colmet-oar/group-"), "{}", batch.origin);
        for (entry, at, value) in batch.samples() {
            if entry.device.as_str() == device && *entry.metric.name == *metric {
                found.push((at.since(second(0)) / Timestamp::SECOND, value));
            }
        }
    }
    found
}

fn states(faults: &FaultCounts) -> Vec<(&'static str, u64)> {
    faults.states().collect()
}

const MEMORY_OF_NODE: &str = "memory_total_bytes";

#[test]
fn ten_thousand_damaged_messages_cost_a_good_host_nothing() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let config = config(&server.url, spool.path(), &[("colmet.hosts", "good-[1-2]")]);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut listener = open(&config, &clock);
    listener.take(from(PEER, message("good-1.cluster", second(0)))).unwrap();
    settle(&mut listener);
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/colmet/");
    let read = |name: &str| std::fs::read(format!("{dir}{name}")).unwrap();
    let fixtures = [
        read("colmet_py0610_procstats_only_9202B.bin"),
        read("colmet_rs_msgpack_v1_99B.bin"),
        read("colmet_rust_branch_synthetic.bin"),
        read("colmet_collector_v1_expected_synthetic.bin"),
        read("colmet_rs_reconfig_msg.bin"),
        read("colmet_py0610_all10_synthetic.bin"),
    ];
    let other = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        usize::try_from(random >> 11).unwrap() % below
    };
    for number in 0..10_000 {
        // The longest one is rare: it takes most of the time.
        let fixture = &fixtures[if number % 100 == 0 { 5 } else { next(5) }];
        let mut damaged = fixture.get(..1 + next(fixture.len())).unwrap().to_vec();
        for _ in 0..1 + next(4) {
            let place = next(damaged.len());
            damaged[place] = u8::try_from(next(256)).unwrap();
        }
        listener.take(from(other, damaged)).unwrap();
        if number % 100 == 0 {
            let at = second(5 + 5 * number / 100);
            listener.take(from(PEER, message("good-1.cluster", at))).unwrap();
        }
    }
    let faults: u64 = states(&listener.faults).iter().map(|(_, count)| count).sum();
    assert!(faults > 9_000, "{faults}");
    assert!(listener.hosts.list.len() <= 2);
    finish(listener);
    let expected: Vec<(i64, f64)> = (0..101).map(|number| (5 * number, 1024.0)).collect();
    assert_eq!(stored(&server, "good-1", MEMORY_OF_NODE), expected);
    let jobs: Vec<_> = server
        .posts()
        .iter()
        .flat_map(|post| post.batches.clone())
        .flat_map(|batch| batch.jobs.clone())
        .collect();
    assert_eq!(jobs.len(), 1, "the job neither ended nor began again: {jobs:?}");
}

#[test]
fn what_ends_colmets_collector_costs_only_itself() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let config = config(&server.url, spool.path(), &[("colmet.hosts", "n1,n2")]);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut listener = open(&config, &clock);
    listener.take(from(PEER, message("n1", second(0)))).unwrap();
    settle(&mut listener);
    let good = message("n1", second(5));
    let mut unknown = good.clone();
    unknown[..7].copy_from_slice(b"unknown");
    let mut not_text = good.clone();
    not_text[255] = 0xff;
    let mut no_time = good.clone();
    no_time[518..526].fill(0xff);
    let cases: [(Vec<u8>, &str); 11] = [
        // §9.2, 23: an unknown backend, a truncated message, a name that is not UTF-8.
        (unknown, "bad"),
        (good[..good.len() - 1].to_vec(), "truncated"),
        (not_text, "bad"),
        (no_time, "wrong_time"),
        (vec![0xdf, 0xff, 0xff, 0xff, 0xff], "truncated"),
        (vec![b'x'; 4 << 20], "bad"),
        (frames(&[record(&PROCSTATS, ".n1", NO_JOB, second(5))]), "wrong_name"),
        (frames(&[record(&TASKSTATS, "n1", u64::MAX, second(5))]), "wrong_name"),
        (frames(&[record(&PROCSTATS, "n1", NO_JOB, Timestamp(0))]), "wrong_time"),
        (frames(&[record(&PROCSTATS, "n1", NO_JOB, second(3 * 86_400))]), "wrong_time"),
        (frames(&[record(&PROCSTATS, "n9", NO_JOB, second(5))]), "foreign_host"),
    ];
    for (bytes, state) in cases {
        let count = |listener: &Listener<'_>| {
            states(&listener.faults).iter().find(|(of, _)| *of == state).map_or(0, |it| it.1)
        };
        let before = count(&listener);
        listener.take(from(PEER, bytes)).unwrap();
        assert_eq!(count(&listener), before + 1, "{state}");
    }
    // §9.2, 24: a record of nvidia.
    let nvidia = [record(&NVIDIA, "n1", 7, second(10)), record(&JOBPROC, "n1", 7, second(10))];
    listener.take(from(PEER, frames(&nvidia))).unwrap();
    listener.take(from(PEER, message("n1", second(15)))).unwrap();
    listener.take(from(PEER, message("n1", second(15)))).unwrap();
    listener.take(from(PEER, Vec::new())).unwrap();
    let ok_and_repeated: Vec<_> = states(&listener.faults)
        .into_iter()
        .filter(|it| ["ok", "repeated"].contains(&it.0))
        .collect();
    assert_eq!(ok_and_repeated, [("ok", 4), ("repeated", 3)]);
    finish(listener);
    assert_eq!(stored(&server, "n1", "colmet_nvidia_power_watts"), [(10, 100.0)]);
    // The records before the end of the truncated message are stored, too.
    let of_job = stored(&server, "n1", "taskstats_cpu_run_real_seconds_total");
    assert_eq!(of_job.iter().map(|it| it.0).collect::<Vec<_>>(), [0, 5, 15]);
    let counts = stored(&server, "colmet-oar", "colmet_messages_total");
    // ok, bad, truncated, foreign_host, wrong_name, wrong_time, repeated
    assert_eq!(counts.len(), 7, "each state is a series");
}

#[test]
fn only_networks_of_the_list_may_send() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let settings = [("colmet.networks", "10.1.0.0/16"), ("colmet.hosts", "n1")];
    let config = config(&server.url, spool.path(), &settings);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut listener = open(&config, &clock);
    listener.take(from(PEER, message("n1", second(0)))).unwrap();
    assert_eq!(states(&listener.faults), [("foreign_address", 1)]);
    assert!(listener.hosts.list.is_empty());
    let mapped: IpAddr = "::ffff:10.1.2.3".parse().unwrap();
    listener.take(from(mapped, message("n1", second(0)))).unwrap();
    listener.take(Arrival::Fault(PEER, Fault::Oversized, "too long".to_owned())).unwrap();
    assert_eq!(listener.hosts.list.len(), 1);
    assert_eq!(states(&listener.faults), [("oversized", 1), ("foreign_address", 1)]);
}

#[test]
fn a_host_with_an_agent_is_never_stored_under_names_of_jobmeter() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    set_agents(&server, "\"n1\"");
    let config = config(&server.url, spool.path(), &[]);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut listener = open(&config, &clock);
    assert!(listener.is_open(), "without a host there is nothing to wait for");
    for (host, at) in [("n1", 0), ("n2", 0), ("n1", 5), ("n2", 5)] {
        listener.take(from(PEER, message(host, second(at)))).unwrap();
    }
    assert_eq!((listener.held.len(), listener.hosts.unsealed()), (4, 0));
    settle(&mut listener);
    finish(listener);
    assert_eq!(stored(&server, "n1", MEMORY_OF_NODE), []);
    let own = stored(&server, "n1", "colmet_procstats_meminfo_memtotal_bytes");
    assert_eq!(own, [(0, 1024.0), (5, 1024.0)]);
    assert_eq!(stored(&server, "n2", MEMORY_OF_NODE), [(0, 1024.0), (5, 1024.0)]);
    // Without a response, what the last start knew counts. Before, nothing is read.
    *server.demand.lock().unwrap() = None;
    let mut listener = open(&config, &clock);
    assert!(!listener.is_open());
    listener.answered_us -= AGENTS_WAIT_US;
    assert!(listener.is_open());
    for host in ["n1", "n3"] {
        listener.take(from(PEER, message(host, second(10)))).unwrap();
    }
    finish(listener);
    assert_eq!(stored(&server, "n1", MEMORY_OF_NODE), []);
    assert_eq!(stored(&server, "n3", MEMORY_OF_NODE), [(10, 1024.0)]);
}

#[test]
fn messages_that_wait_for_the_server_are_stored_at_the_end() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    *server.demand.lock().unwrap() = None;
    let config = config(&server.url, spool.path(), &[]);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut listener = open(&config, &clock);
    listener.take(from(PEER, message("n1", second(0)))).unwrap();
    listener.seal(delivery::wall()).unwrap();
    assert_eq!((listener.held.len(), listener.hosts.unsealed()), (1, 0));
    listener.end(delivery::wall()).unwrap();
    let listener = open(&config, &clock);
    until("the message", || stored(&server, "n1", MEMORY_OF_NODE) == [(0, 1024.0)]);
    drop(listener);
}

#[test]
fn a_restart_keeps_the_times_of_jobs_and_leaves_a_gap() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let config = config(&server.url, spool.path(), &[]);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    for seconds in [[0, 5, 10], [60, 65, 70]] {
        let mut listener = open(&config, &clock);
        for at in seconds {
            let both = [
                record(&TASKSTATS, "n1", 8, second(at)),
                record(&PROCSTATS, "n1", NO_JOB, second(at)),
            ];
            let bytes = if at < 60 { frames(&both) } else { message("n1", second(at)) };
            listener.take(from(PEER, bytes)).unwrap();
        }
        settle(&mut listener);
        finish(listener);
    }
    let posts = server.posts();
    let batches: Vec<_> = posts.iter().flat_map(|post| post.batches.clone()).collect();
    let since = |at: Timestamp| at.since(second(0)) / Timestamp::SECOND;
    let jobs: Vec<_> = batches
        .iter()
        .flat_map(|batch| &batch.jobs)
        .map(|event| (event.key.to_string(), since(event.start), event.stop.map(since)))
        .collect();
    let job = |id: &str, start, stop| (format!("oar:{id}"), start, stop);
    assert_eq!(jobs, [job("8", 0, None), job("7", 60, None), job("8", 0, Some(60))]);
    let gaps: Vec<_> = batches
        .iter()
        .flat_map(|batch| &batch.gaps)
        .filter(|gap| gap.from > Timestamp(1_000_000_000_000))
        .map(|gap| (gap.device.as_str().to_owned(), gap.cause, since(gap.from), since(gap.to)))
        .collect();
    assert_eq!(gaps, [("n1".to_owned(), Cause::PollerDown, 10, 60)]);
}

#[test]
fn a_silent_host_has_a_gap_when_it_sends_again() {
    let (server, spool) = (storing(), tempfile::tempdir().unwrap());
    let config = config(&server.url, spool.path(), &[]);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut listener = open(&config, &clock);
    for at in [0, 5, 10, 60, 65] {
        listener.take(from(PEER, message("n1", second(at)))).unwrap();
    }
    settle(&mut listener);
    finish(listener);
    let posts = server.posts();
    let gaps = posts.iter().flat_map(|post| &post.batches).flat_map(|batch| batch.gaps.clone());
    let found: Vec<_> = gaps
        .filter(|gap| &*gap.source == SOURCE)
        .map(|gap| (gap.cause, gap.from.since(second(10)), gap.to.since(second(60))))
        .collect();
    assert_eq!(found, [(Cause::SourceTimeout, 0, 0)]);
}

#[test]
fn while_the_spool_is_full_nothing_is_read_and_nothing_is_lost() {
    let is_away = Arc::new(AtomicBool::new(true));
    let away = Arc::clone(&is_away);
    let server = Server::start(Box::new(move |_, _| match away.load(Ordering::SeqCst) {
        true => Reply::Close,
        false => Reply::All(AckStatus::Stored),
    }));
    set_agents(&server, "");
    let spool = tempfile::tempdir().unwrap();
    let config = config(&server.url, spool.path(), &[("spool_bytes_max", "1MiB")]);
    let clock: Arc<dyn Clock> = Arc::new(MachineClock);
    let mut listener = open(&config, &clock);
    listener.take(from(PEER, message("n1", second(0)))).unwrap();
    settle(&mut listener);
    let mut taken = 1;
    while listener.is_open() {
        assert!(taken < 20_000, "the spool is not full");
        let mut record = record(&PROCSTATS, "n1", NO_JOB, second(taken));
        // Values that differ take space in frames.
        for (place, value) in (1_u64..).zip(record.values.iter_mut().take(58)) {
            let factor = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(place);
            *value = Some(Value::Unsigned(taken.unsigned_abs().wrapping_mul(factor) >> 24));
        }
        listener.take(from(PEER, frames(&[record]))).unwrap();
        taken += 1;
        listener.seal(delivery::wall()).unwrap();
    }
    assert!(listener.hosts.is_full());
    is_away.store(false, Ordering::SeqCst);
    listener.take(from(PEER, message("n1", second(taken)))).unwrap();
    until("space in the spool", || listener.is_open());
    assert_eq!(listener.end(delivery::wall()).unwrap(), 0);
    // What remains in the spool is sent by the next start.
    let listener = open(&config, &clock);
    let instants = || -> BTreeSet<i64> {
        stored(&server, "n1", MEMORY_OF_NODE).iter().map(|(at, _)| *at).collect()
    };
    until("every message", || instants() == (0..=taken).collect());
    let posts = server.posts();
    let mut gaps = posts.iter().flat_map(|post| &post.batches).flat_map(|batch| &batch.gaps);
    assert!(!gaps.any(|gap| gap.cause == Cause::SpoolFull));
    drop(listener);
}
