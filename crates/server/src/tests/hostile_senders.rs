//! Senders that try to harm others: what the server rejects, and that other senders are not affected.

use super::ingest::{batch, frame, post, statuses};
use super::{Answer, Site};
use model::{
    Batch, Cause, ClusterId, DeviceId, Gap, JobId, JobKey, Kind, Labels, Metric, SeriesEntry,
    SeriesTable, Tick, Timestamp, Unit,
};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::AckStatus::{self, RejectedPermanently, RejectedTemporarily, Stored};

const USER: &str = "Authorization: Bearer token-of-1234\r\n";
const NODE: &str = "Authorization: Bearer token-of-n1\r\n";

fn metric(name: &str, unit: Unit, help: &str) -> Metric {
    let (name, help) = (name.to_owned().into(), help.to_owned().into());
    Metric { name, unit, kind: Kind::Gauge, help, divisor: 1, assumed: false }
}

/// A batch with one sample of each of these metrics, with or without a job.
fn of_metrics(origin: &str, seq: u64, job: Option<&JobKey>, metrics: &[Metric]) -> Batch {
    let mut batch = batch(origin, seq);
    let entry = |metric: &Metric| SeriesEntry {
        metric: Arc::new(metric.clone()),
        device: DeviceId::new("n1").unwrap(),
        job: job.cloned(),
        labels: Labels::default(),
        start: None,
    };
    let count = u32::try_from(metrics.len()).unwrap();
    batch.table = Arc::new(SeriesTable { entries: metrics.iter().map(entry).collect() });
    batch.ticks = vec![Tick { at: crate::now(), samples: count }];
    (batch.index, batch.values) = ((0..count).collect(), vec![0.5; metrics.len()]);
    batch
}

/// A local job of user 1234, and the origin of its samples.
fn job(site: &Site) -> (JobKey, String) {
    let headers = format!("Host: localhost\r\nContent-Type: application/json\r\n{USER}");
    let answer = site.send("POST /api/v1/jobs", &headers, br#"{"device": "n1"}"#);
    let id = answer.json()["id"].as_i64().unwrap();
    let key = JobKey { cluster: ClusterId::local(), id: JobId::new(id).unwrap() };
    (key, format!("n1/run-{id}"))
}

fn catalogue(site: &Site) -> Vec<serde_json::Value> {
    let page = site.get("/api/v1/catalogue").json();
    page.as_array().unwrap().clone()
}

fn count_rejected(answer: &Answer) -> u32 {
    let acks = wire::Answer::decode(&answer.body).unwrap().acks;
    acks.iter().map(|ack| ack.samples_rejected).sum()
}

fn gap(origin: &str, from: Timestamp) -> Gap {
    Gap {
        origin: model::Origin::new(origin).unwrap(),
        device: DeviceId::new("n1").unwrap(),
        source: "".into(),
        from,
        to: from.plus(1),
        cause: Cause::EventsLost,
        detail: "invented".into(),
    }
}

#[test]
fn a_user_defines_no_metric_and_changes_none() {
    let site = Site::start();
    let (own, origin) = job(&site);
    let send = |seq, metrics: &[Metric]| {
        let body = frame(&of_metrics(&origin, seq, Some(&own), metrics));
        let answer = post(&site, USER, &body);
        (statuses(&answer), count_rejected(&answer))
    };
    // 20 000 metrics, the catalogue's capacity: each is rejected, and its samples are counted.
    for part in 0..10 {
        let names: Vec<Metric> =
            (0..2000).map(|n| metric(&format!("mine_{part}_{n}"), Unit::Count, "Mine.")).collect();
        assert_eq!(send(part, &names), (vec![Stored], 2000));
    }
    // Names that agents send later, with and without another unit; and one of `run`'s metrics with another unit.
    for (seq, (name, unit)) in (20..).zip([
        ("memory_available_bytes", Unit::Joules),
        ("memory_available_bytes", Unit::Bytes),
        ("run_threads", Unit::Seconds),
    ]) {
        assert_eq!(send(seq, &[metric(name, unit, "Mine.")]), (vec![Stored], 1), "{name}");
    }
    assert_eq!(catalogue(&site), [] as [serde_json::Value; 0]);
    // A metric of `run` is accepted, but not the user's help text.
    let both = [metric("mine", Unit::Count, ""), metric("run_threads", Unit::Count, "Mine.")];
    assert_eq!(send(30, &both), (vec![Stored], 1), "the rest of the batch is stored");
    let mut labelled =
        of_metrics(&origin, 31, Some(&own), &[metric("run_threads", Unit::Count, "")]);
    for (seq, label) in (31..).zip(["_device_alias", "_job_id", "anything"]) {
        labelled.seq = seq;
        let mut entry = labelled.table.entries[0].clone();
        entry.labels = Labels::new([(label, "n2")]).unwrap();
        labelled.table = Arc::new(SeriesTable { entries: vec![entry] });
        assert_eq!(count_rejected(&post(&site, USER, &frame(&labelled))), 1, "{label}");
    }
    // The node's agent sends last, and its metrics have their own meaning.
    let agents = of_metrics(
        "n1",
        0,
        None,
        &[metric("memory_available_bytes", Unit::Bytes, ""), metric("site_power", Unit::Watts, "")],
    );
    let answer = post(&site, NODE, &frame(&agents));
    assert_eq!((statuses(&answer), count_rejected(&answer)), (vec![Stored], 0));
    let known = catalogue(&site);
    let names: Vec<_> = known.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["memory_available_bytes", "run_threads", "site_power"]);
    assert!(known.iter().all(|one| one["help"] != "Mine."), "{known:?}");
}

#[test]
fn one_nodes_token_takes_no_metric_from_others() {
    let site = Site::start();
    let mut rejected = 0;
    for part in 0..3 {
        let names: Vec<Metric> =
            (0..2000).map(|n| metric(&format!("mine_{part}_{n}"), Unit::Count, "Mine.")).collect();
        rejected +=
            count_rejected(&post(&site, NODE, &frame(&of_metrics("n1", part, None, &names))));
    }
    assert_eq!(rejected, 4_000, "a tenth of the catalogue for one origin");
    let taken = metric("memory_available_bytes", Unit::Joules, "Mine.");
    let first = post(&site, NODE, &frame(&of_metrics("n1", 10, None, &[taken])));
    assert_eq!(count_rejected(&first), 1);
    // Another agent has capacity for its own metrics, declared or not, and no other sender changes their help text.
    let agents = "Authorization: Bearer token-of-agents\r\n";
    let own = [
        metric("memory_available_bytes", Unit::Bytes, "Other."),
        metric("site_power", Unit::Watts, "Of n2."),
    ];
    let answer = post(&site, agents, &frame(&of_metrics("n2", 0, None, &own)));
    assert_eq!((statuses(&answer), count_rejected(&answer)), (vec![Stored], 0));
    let changed = metric("site_power", Unit::Watts, "Mine.");
    post(&site, NODE, &frame(&of_metrics("n1", 11, None, &[changed])));
    let help = |name: &str| {
        let all = catalogue(&site);
        let one = all.into_iter().find(|one| one["name"] == name).unwrap();
        one["help"].as_str().unwrap().to_owned()
    };
    assert_eq!(help("site_power"), "Of n2.");
    assert!(!["Mine.", "Other."].contains(&&*help("memory_available_bytes")));
    // Metrics of pollers and feeds, before the first poller sends one.
    let of_pollers = ["poll_success", "poll_period_seconds", "wattmetre_power_watt"];
    let of_pollers = of_pollers.map(|name| metric(name, Unit::Bytes, "Mine."));
    let answer = post(&site, NODE, &frame(&of_metrics("n1", 12, None, &of_pollers)));
    assert_eq!(count_rejected(&answer), 3);
    let success = [metric("poll_success", Unit::Count, "")];
    let answer = post(&site, agents, &frame(&of_metrics("poller-lab/group-0", 0, None, &success)));
    assert_eq!((statuses(&answer), count_rejected(&answer)), (vec![Stored], 0));
}

/// A control character, one of U+0080 to U+009F, a directional mark, and a zero-width character.
const UNPRINTABLE: [&str; 4] = ["a\u{1b}[2J", "a\u{9b}2J", "a\u{202e}b", "a\u{200b}"];

#[test]
fn unprintable_characters_of_users_are_rejected_and_counted() {
    let site = Site::start();
    let (own, origin) = job(&site);
    let batch = of_metrics(&origin, 0, Some(&own), &[metric("run_threads", Unit::Count, "")]);
    let post_with = |key: &str, value: &str| {
        let mut hostile = batch.clone();
        let labels = Labels::new([(key, value)]).unwrap();
        let entry = SeriesEntry { labels, ..batch.table.entries[0].clone() };
        hostile.table = Arc::new(SeriesTable { entries: vec![entry] });
        post(&site, USER, &frame(&hostile))
    };
    let headers = format!("Host: localhost\r\nContent-Type: application/json\r\n{USER}");
    let register = |device: &str, name: &str| {
        let body = serde_json::json!({ "device": device, "name": name }).to_string();
        site.send("POST /api/v1/jobs", &headers, body.as_bytes())
    };
    for text in UNPRINTABLE {
        for answer in [post_with("comm", text), post_with(text, "x")] {
            assert_eq!(statuses(&answer), [RejectedPermanently], "{text:?}");
            let ack = &wire::Answer::decode(&answer.body).unwrap().acks[0];
            assert!(ack.reason.contains("control characters"), "{}", ack.reason);
        }
        // An unprintable name of a metric, and of a job.
        let named = Metric { name: text.into(), ..metric("run_threads", Unit::Count, "") };
        let named = of_metrics(&origin, 0, Some(&own), &[named]);
        assert_eq!(statuses(&post(&site, USER, &frame(&named))), [RejectedPermanently]);
        let answer = register("n1", text);
        assert_eq!(answer.status, 400);
        assert!(answer.text().contains("printable"), "{}", answer.text());
        assert_eq!(register(text, "x").status, 400);
    }
    assert_eq!(site.metric("jobmeter_ingest_frames_total{outcome=\"forbidden\"}"), 12.0);
    assert_eq!(site.metric("jobmeter_refusals_total{reason=\"malformed\"}"), 8.0);
    assert_eq!(statuses(&post_with("comm", "solve é")), [Stored]);
}

#[test]
fn no_node_of_a_registration_is_named_like_an_option_or_a_path() {
    let site = Site::start();
    let headers = format!("Host: localhost\r\nContent-Type: application/json\r\n{USER}");
    let long = "x".repeat(254);
    for device in ["-x", "--token-file=x", ".", "..", ".x", "a/b", "/", "", &long] {
        let body = serde_json::json!({ "device": device }).to_string();
        let answer = site.send("POST /api/v1/jobs", &headers, body.as_bytes());
        assert_eq!(answer.status, 400, "{device}");
    }
    let jobs = site.get("/api/v1/jobs").json();
    assert_eq!(jobs.as_array().map(Vec::len), Some(0));
    job(&site);
}

#[test]
fn a_user_reports_only_gaps_that_run_notes() {
    let site = Site::start();
    let (own, origin) = job(&site);
    for (seq, cause) in (0..).zip(Cause::ALL) {
        let mut batch =
            of_metrics(&origin, seq, Some(&own), &[metric("run_threads", Unit::Count, "")]);
        batch.gaps = vec![Gap { cause, ..gap(&origin, crate::now()) }];
        let of_the_node = matches!(
            cause,
            Cause::AgentDown | Cause::MissedTicks | Cause::SourceTimeout | Cause::PermissionLost
        );
        let taken = Cause::OF_RUNS.contains(&cause);
        assert!(!(taken && of_the_node), "{cause:?}");
        let status = if taken { Stored } else { RejectedPermanently };
        assert_eq!(statuses(&post(&site, USER, &frame(&batch))), [status], "{cause:?}");
    }
    let gaps = site.get("/api/v1/gaps").json();
    let causes = gaps.as_array().unwrap().iter().map(|gap| gap["cause"].as_str().unwrap());
    assert_eq!(BTreeSet::from_iter(causes), BTreeSet::from(Cause::OF_RUNS.map(Cause::words)));
}

#[test]
fn invented_gaps_displace_no_other_gap() {
    let site = Site::start();
    let (own, origin) = job(&site);
    let long_ago = crate::now().plus(-3600 * Timestamp::SECOND);
    let mut real = batch("n2", 0);
    real.gaps = vec![gap("n2", long_ago)];
    let agents = "Authorization: Bearer token-of-agents\r\n";
    assert_eq!(statuses(&post(&site, agents, &frame(&real))), [Stored]);
    let mut taken = Vec::new();
    for seq in 0..220 {
        let mut flood =
            of_metrics(&origin, seq, Some(&own), &[metric("run_threads", Unit::Count, "")]);
        let number = i64::try_from(seq).unwrap();
        flood.gaps =
            (0..1024).map(|n| gap(&origin, long_ago.plus(2 * (1024 * number + n)))).collect();
        taken.extend(statuses(&post(&site, USER, &frame(&flood))));
        // A node's gaps are stored. 12 batches fill its quota; the store's own test uses 220.
        if seq >= 12 {
            continue;
        }
        let mut node = batch("n1", seq);
        node.gaps = (0..1024).map(|n| gap("n1", long_ago.plus(2 * (1024 * number + n)))).collect();
        assert_eq!(statuses(&post(&site, NODE, &frame(&node))), [Stored]);
    }
    assert_eq!(taken, vec![RejectedPermanently; 220]);
    let gaps = site.get("/api/v1/gaps").json();
    let of =
        |name: &str| gaps.as_array().unwrap().iter().filter(|gap| gap["origin"] == name).count();
    assert_eq!((of("n2"), of(&origin)), (1, 0), "the real one is there");
    assert!(of("n1") <= 10_000, "{}", of("n1"));
}

#[test]
fn a_flood_of_samples_of_one_node_leaves_capacity_for_others() {
    let site = Site::with(crate::Limits::default(), &[("samples_per_second_max", "100")]);
    let mut flood = batch("n1", 0);
    flood.ticks = vec![Tick { at: crate::now(), samples: 4000 }];
    (flood.index, flood.values) = (vec![0; 4000], vec![0.5; 4000]);
    let send = |seq| {
        let body = frame(&Batch { seq, ..flood.clone() });
        statuses(&post(&site, NODE, &body))
    };
    let all: Vec<AckStatus> = (0..20).flat_map(send).collect();
    let stored = all.iter().filter(|status| **status == Stored).count();
    // The limit is 6000 samples at once, and 100 more for each second of the test.
    assert!((1..10).contains(&stored), "{stored}");
    assert!(all.iter().all(|status| [Stored, RejectedPermanently].contains(status)), "{all:?}");
    let agents = "Authorization: Bearer token-of-agents\r\n";
    assert_eq!(statuses(&post(&site, agents, &frame(&batch("n2", 0)))), [Stored]);
    let limited = site.metric("jobmeter_ingest_frames_total{outcome=\"limited\"}");
    assert!(limited >= 10.0, "{limited}");
}

#[test]
fn a_flood_of_job_events_of_one_node_is_cut_and_others_go_on() {
    let site = Site::start();
    let event = |node: &str| model::JobEvent {
        key: JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(7).unwrap() },
        display_id: "7".into(),
        device: DeviceId::new(node).unwrap(),
        user: None,
        uid: None,
        start: crate::now(),
        stop: None,
        monitor: None,
        oom_kills: Vec::new(),
    };
    let send = |token: &str, node: &str, seq, count| {
        let jobs = vec![event(node); count];
        statuses(&post(&site, token, &frame(&Batch { jobs, ..batch(node, seq) })))
    };
    // A minute's worth at once are 12 000 events. The node keeps what exceeds it, and sends it later.
    let all: Vec<AckStatus> = (0..8).flat_map(|seq| send(NODE, "n1", seq, 4096)).collect();
    assert_eq!(all[..2], [Stored; 2]);
    assert!(all[2..].contains(&RejectedTemporarily), "{all:?}");
    assert!(all.iter().all(|status| [Stored, RejectedTemporarily].contains(status)), "{all:?}");
    let agents = "Authorization: Bearer token-of-agents\r\n";
    assert_eq!(send(agents, "n2", 0, 1), [Stored]);
    assert_eq!(send(NODE, "n1", 20, 0), [Stored], "batches without events");
}

#[test]
fn a_request_ends_at_so_many_forbidden_frames() {
    let site = Site::start();
    let (key, origin) = job(&site);
    let of_another: Vec<u8> = (0..40).flat_map(|seq| frame(&batch("n1/run-999999", seq))).collect();
    assert_eq!(statuses(&post(&site, USER, &of_another)), [RejectedTemporarily; 40]);
    // A permitted batch is stored, but not after too many forbidden ones.
    let thread = metric("run_threads", Unit::Count, "");
    let own = frame(&of_metrics(&origin, 0, Some(&key), &[thread]));
    assert_eq!(
        statuses(&post(&site, USER, &[of_another, own.clone()].concat())),
        [RejectedTemporarily; 41]
    );
    assert_eq!(statuses(&post(&site, USER, &own)), [Stored]);
    assert_eq!(site.metric("jobmeter_ingest_frames_total{outcome=\"forbidden\"}"), 81.0);
}

/// A frame with a valid head and invalid samples, which cannot be decoded.
fn of_damaged_samples(origin: &str, seq: u64) -> Vec<u8> {
    let text = |tag: u8, bytes: &[u8]| {
        [&[tag << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat()
    };
    let samples = 60_000_usize;
    let septet = |at: usize| u8::try_from(samples >> (7 * at) & 0x7f).unwrap();
    let length = [septet(0) | 0x80, septet(1) | 0x80, septet(2)];
    let refs = [&[7 << 3 | 2][..], &length, &vec![0; samples]].concat();
    let seq = [3 << 3, u8::try_from(seq).unwrap()];
    let message = [text(1, origin.as_bytes()), text(2, &[7; 16]), seq.to_vec(), refs].concat();
    let payload = zstd::bulk::compress(&message, 1).unwrap();
    let mut frame = b"JMB1".to_vec();
    frame.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
    frame.extend(crc32c::crc32c(&payload).to_le_bytes());
    frame.extend(payload);
    frame
}

#[test]
fn samples_are_decoded_only_of_a_sender_who_may_send() {
    let site = Site::start();
    let (_, origin) = job(&site);
    let frames = |outcome: &str| {
        site.metric(&format!("jobmeter_ingest_frames_total{{outcome=\"{outcome}\"}}"))
    };
    let reason = |token: &str, origin: &str| {
        let answer = post(&site, token, &of_damaged_samples(origin, 3));
        wire::Answer::decode(&answer.body).unwrap().acks.remove(0).reason
    };
    let other = "Authorization: Bearer token-of-77\r\n";
    // Access is checked first: the error is about access, although the samples cannot be decoded.
    for (token, origin, why) in [
        (NODE, "n2", "not that of origin n2"),
        (USER, "n1", "n1 is not an origin of `jobmeter run`"),
        (USER, "n1/run-99", "user 1234 has no job"),
        (other, &*origin, "user 77 has no job"),
    ] {
        let reason = reason(token, origin);
        assert!(reason.contains(why), "{origin}: {reason}");
    }
    assert_eq!((frames("forbidden"), frames("malformed")), (4.0, 0.0));
    // A permitted sender gets the error about the samples.
    for (token, origin) in [(NODE, "n1"), (USER, &*origin)] {
        let reason = reason(token, origin);
        assert!(reason.contains("ticks of 0 samples"), "{reason}");
    }
    assert_eq!((frames("forbidden"), frames("malformed")), (4.0, 2.0));
    // The same for many frames in one request: each gets an ack.
    let many: Vec<u8> =
        (0..40).flat_map(|n| of_damaged_samples(&format!("n1/run-{}", 90 + n), 3)).collect();
    let answer = post(&site, USER, &many);
    assert_eq!(statuses(&answer), [RejectedTemporarily; 40]);
    assert_eq!((frames("forbidden"), frames("malformed")), (44.0, 2.0));
}
