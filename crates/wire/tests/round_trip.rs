//! Encoded batches decode to the same; invalid bytes are rejected and never panic; old frames still decode.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use model::{
    Batch, Boot, Cause, ClusterId, DeviceId, Gap, JobEvent, JobId, JobKey, Kind, Labels, Metric,
    OomKill, Origin, SeriesEntry, SeriesTable, Tick, Timestamp, Unit,
};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use wire::{DecodeError, Decoder, Encoder, Frames, LimitError};

fn decode(bytes: &[u8]) -> Result<Batch, DecodeError> {
    let mut frames = Frames::of(bytes);
    let frame = frames.next().unwrap_or(Err(wire::FrameError::Cut { at: 0, have: 0, want: 12 }))?;
    Decoder::default().decode(&frame)?.into_batch()
}

fn encode(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::default().encode(batch, &mut bytes).unwrap();
    bytes
}

fn metrics() -> impl Strategy<Value = Arc<Metric>> {
    let flags = any::<(bool, bool)>();
    let parts = ("[a-z][a-z0-9_]{0,20}", 0..Unit::ALL.len(), flags, 1..2_000_000_u32);
    parts.prop_map(|(name, unit, (counter, assumed), divisor)| {
        let kind = if counter { Kind::Counter } else { Kind::Gauge };
        // One name has one definition; otherwise its help would be sent only once for both.
        let name = format!("{name}_{unit}_{counter}_{divisor}");
        let help = format!("What {name} is.").into();
        Arc::new(Metric { name: name.into(), unit: Unit::ALL[unit], kind, help, divisor, assumed })
    })
}

/// Texts of printable characters: the wire replaces the others.
fn printable(max: usize) -> impl Strategy<Value = String> {
    let text = proptest::string::string_regex(&format!("\\PC{{0,{max}}}")).unwrap();
    text.prop_map(|text| model::printable(&text).into_owned())
}

fn series() -> impl Strategy<Value = SeriesEntry> {
    let job = proptest::option::of(("[a-z]{1,6}", 1..i64::MAX));
    let labels = proptest::collection::vec(("[a-z]{1,5}", printable(8)), 0..3);
    let start = proptest::option::of(-10_i64..1 << 50);
    (metrics(), "[a-z0-9][a-z0-9-]{0,11}", job, labels, start).prop_map(
        |(metric, device, job, labels, start)| {
            let pairs = labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
            SeriesEntry {
                metric,
                device: DeviceId::new(&device).unwrap(),
                job: job.map(|(cluster, id)| JobKey {
                    cluster: ClusterId::new(&cluster).unwrap(),
                    id: JobId::new(id).unwrap(),
                }),
                labels: Labels::new(pairs).unwrap(),
                start: start.map(Timestamp),
            }
        },
    )
}

fn values() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        (-1_000_000_i64..1 << 50).prop_map(|n| n as f64),
        (0_i64..1 << 50).prop_map(|n| n as f64 / 1e6),
    ]
}

fn gaps() -> impl Strategy<Value = Gap> {
    let parts = ("[a-z]{0,9}", 0..Cause::ALL.len(), any::<i32>(), printable(20));
    parts.prop_map(|(source, cause, from, detail)| Gap {
        origin: Origin::new("o").unwrap(),
        device: DeviceId::new("n1").unwrap(),
        source: source.into(),
        from: Timestamp(from.into()),
        to: Timestamp(i64::from(from) + 5),
        cause: Cause::ALL[cause],
        detail: detail.into(),
    })
}

fn job_events() -> impl Strategy<Value = JobEvent> {
    let times = (any::<Option<u16>>(), any::<Option<i32>>());
    let monitor = proptest::option::of(".{0,9}");
    let kills = proptest::collection::vec(oom_kills(), 0..3);
    let parts = ("[a-z]{1,6}", 1..i64::MAX, "[1-9]{1,4}_[0-9]{1,4}", times, monitor, kills);
    parts.prop_map(|(cluster, id, display_id, (uid, stop), monitor, oom_kills)| JobEvent {
        key: JobKey { cluster: ClusterId::new(&cluster).unwrap(), id: JobId::new(id).unwrap() },
        display_id: display_id.into(),
        device: DeviceId::new("n1").unwrap(),
        user: uid.map(|uid| format!("u{uid}").into()),
        uid: uid.map(u32::from),
        start: Timestamp(7),
        stop: stop.map(|stop| Timestamp(stop.into())),
        monitor: monitor.map(Into::into),
        oom_kills,
    })
}

fn oom_kills() -> impl Strategy<Value = OomKill> {
    let sizes = proptest::option::of(0..u64::MAX);
    let parts = (any::<i64>(), any::<u32>(), proptest::option::of(0..u32::MAX), printable(15));
    (parts, sizes.clone(), sizes).prop_map(|((at, pid, uid, task), task_bytes, limit_bytes)| {
        OomKill { at: Timestamp(at), pid, uid, task: task.into(), task_bytes, limit_bytes }
    })
}

fn batches() -> impl Strategy<Value = Batch> {
    let table = proptest::collection::vec(series(), 1..12);
    let ticks = proptest::collection::vec((any::<i32>(), 0..9_usize), 0..6);
    let samples = proptest::collection::vec((any::<proptest::sample::Index>(), values()), 64);
    let parts = (table, ticks, samples, any::<[u8; 16]>(), any::<u64>());
    let gaps = proptest::collection::vec(gaps(), 0..3);
    (parts, gaps, proptest::collection::vec(job_events(), 0..3)).prop_map(
        |((entries, ticks, samples, boot, seq), gaps, jobs)| {
            let (mut index, mut values, mut taken) = (Vec::new(), Vec::new(), samples.iter());
            let mut instants = Vec::new();
            for (at, count) in ticks {
                for (place, value) in taken.by_ref().take(count) {
                    index.push(u32::try_from(place.index(entries.len())).unwrap());
                    values.push(*value);
                }
                instants.push(Tick {
                    at: Timestamp(at.into()),
                    samples: u32::try_from(count).unwrap(),
                });
            }
            Batch {
                origin: Origin::new("o").unwrap(),
                boot: Boot(boot),
                seq,
                table: Arc::new(SeriesTable { entries }),
                ticks: instants,
                index,
                values,
                gaps,
                jobs,
            }
        },
    )
}

/// Compares bit by bit, including NaN and -0.0.
fn same(a: &Batch, b: &Batch) -> bool {
    let bits = |batch: &Batch| batch.values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let plain = |batch: &Batch| Batch { values: Vec::new(), ..batch.clone() };
    bits(a) == bits(b) && plain(a) == plain(b)
}

proptest! {
    #[test]
    fn batches_round_trip(batch in batches()) {
        let back = decode(&encode(&batch)).unwrap();
        prop_assert!(same(&batch, &back), "{batch:?}\n{back:?}");
        let mut encoder = Encoder::default();
        // Batches with the table of an earlier one have no help.
        for _ in 0..3 {
            let mut bytes = Vec::new();
            encoder.encode(&batch, &mut bytes).unwrap();
            let again = decode(&bytes).unwrap();
            prop_assert_eq!(again.values.len(), batch.values.len());
            prop_assert_eq!((&again.index, &again.gaps), (&batch.index, &batch.gaps));
        }
    }

    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        decode(&bytes).ok();
        wire::Answer::decode(&bytes).ok();
    }

    /// Damage below the checksum: a payload that decompresses to any bytes.
    #[test]
    fn damaged_payloads_are_rejected_or_consistent(batch in batches(), at in any::<proptest::sample::Index>(), flip in 1_u8..) {
        let good = encode(&batch);
        let mut payload = zstd::decode_all(&good[wire::FRAME_HEADER_BYTES..]).unwrap();
        let at = at.index(payload.len());
        payload[at] ^= flip;
        let compressed = zstd::bulk::compress(&payload, 1).unwrap();
        let mut frame = b"JMB1".to_vec();
        frame.extend(u32::try_from(compressed.len()).unwrap().to_le_bytes());
        frame.extend(crc32c::crc32c(&compressed).to_le_bytes());
        frame.extend(compressed);
        if let Ok(batch) = decode(&frame) {
            prop_assert_eq!(batch.check(), Ok(()));
        }
    }
}

#[test]
fn the_help_of_a_metric_is_sent_once_per_boot() {
    let metric = Metric::gauge("load_1m", Unit::Count, "How many tasks want to run.");
    let batch = fixture(Arc::new(metric));
    let mut encoder = Encoder::default();
    let mut help = || {
        let mut bytes = Vec::new();
        encoder.encode(&batch, &mut bytes).unwrap();
        decode(&bytes).unwrap().table.entries[0].metric.help.to_string()
    };
    assert_eq!([help(), help(), help()], ["How many tasks want to run.", "", ""]);
}

#[test]
fn each_limit_has_its_own_error() {
    let mut batch = fixture(Arc::new(Metric::gauge("x", Unit::Count, "")));
    batch.gaps = vec![gap(); wire::GAPS_MAX + 1];
    let error = Encoder::default().encode(&batch, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "the batch has 1025 gaps; 1024 at most");
    let mut batch = fixture(Arc::new(Metric::gauge("x", Unit::Count, "")));
    batch.jobs = vec![JobEvent {
        key: batch.table.entries[1].job.clone().unwrap(),
        display_id: "1234".into(),
        device: DeviceId::new("n1").unwrap(),
        user: None,
        uid: None,
        start: Timestamp(7),
        stop: None,
        monitor: Some("x".repeat(wire::MONITOR_BYTES_MAX + 1).into()),
        oom_kills: Vec::new(),
    }];
    let error = decode(&encode(&batch)).unwrap_err();
    assert_eq!(error.to_string(), "the job's JOBMETER_MONITOR has 1025 bytes; 1024 at most");
    batch.jobs[0].monitor = None;
    let kill = OomKill {
        at: Timestamp(8),
        pid: 1,
        uid: None,
        task: "x".repeat(wire::TASK_BYTES_MAX + 1).into(),
        task_bytes: None,
        limit_bytes: None,
    };
    batch.jobs[0].oom_kills = vec![kill; wire::OOM_KILLS_MAX + 1];
    let error = decode(&encode(&batch)).unwrap_err();
    assert_eq!(error.to_string(), "the batch has 65 OOM kills; 64 at most");
    batch.jobs[0].oom_kills.truncate(1);
    let error = decode(&encode(&batch)).unwrap_err();
    assert_eq!(error.to_string(), "the killed task's name has 65 bytes; 64 at most");
    let bomb = zstd::bulk::compress(&vec![0; wire::PAYLOAD_BYTES_MAX + 1], 1).unwrap();
    let mut frame = b"JMB1".to_vec();
    frame.extend(u32::try_from(bomb.len()).unwrap().to_le_bytes());
    frame.extend(crc32c::crc32c(&bomb).to_le_bytes());
    frame.extend(bomb);
    let error = decode(&frame).unwrap_err();
    assert!(
        matches!(error, DecodeError::Limit(LimitError::Bytes { what: "payload", .. })),
        "{error}"
    );
}

fn gap() -> Gap {
    let (origin, device) = (Origin::new("n1").unwrap(), DeviceId::new("n1").unwrap());
    let (from, to) =
        (Timestamp::from_seconds(1_767_706_400), Timestamp::from_seconds(1_767_706_500));
    Gap { origin, device, source: "".into(), from, to, cause: Cause::AgentDown, detail: "".into() }
}

fn fixture(load: Arc<Metric>) -> Batch {
    let cpu =
        Metric::counter("cgroup_cpu_seconds_total", Unit::Seconds, "Processor time of the job.");
    let device = DeviceId::new("n1").unwrap();
    let job = JobKey { cluster: ClusterId::new("oar").unwrap(), id: JobId::new(1234).unwrap() };
    let start = Some(Timestamp::from_seconds(1_767_700_000));
    let labels = Labels::new([("cpu", "0")]).unwrap();
    let entries = vec![
        SeriesEntry {
            metric: load,
            device: device.clone(),
            job: None,
            labels: Labels::default(),
            start: None,
        },
        SeriesEntry {
            metric: Arc::new(cpu.steps(1_000_000)),
            device,
            job: Some(job),
            labels,
            start,
        },
    ];
    let at = Timestamp::from_seconds(1_767_706_500);
    Batch {
        origin: Origin::new("n1").unwrap(),
        boot: Boot([0x5a; 16]),
        seq: 41,
        table: Arc::new(SeriesTable { entries }),
        ticks: vec![Tick { at, samples: 2 }, Tick { at: at.plus(Timestamp::SECOND), samples: 1 }],
        index: vec![0, 1, 1],
        values: vec![0.123_456_789, 8.537362, 9.0],
        gaps: vec![gap()],
        jobs: vec![],
    }
}

/// Every file under `testdata/wire/v1` must decode for ever. A new file is added when the schema grows;
/// existing files never change.
#[test]
fn recorded_frames_decode_for_ever() {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/wire/v1");
    let first = dir.join("first.bin");
    let want = fixture(Arc::new(Metric::gauge("load_1m", Unit::Count, "Load.").steps(100)));
    if !first.try_exists().unwrap() {
        std::fs::write(&first, encode(&want)).unwrap();
    }
    assert!(same(&decode(&std::fs::read(&first).unwrap()).unwrap(), &want));
    // With request environment variables of jobs.
    let (second, mut want) = (dir.join("second.bin"), want);
    let event = |monitor: Option<&str>| JobEvent {
        key: want.table.entries[1].job.clone().unwrap(),
        display_id: "1234".into(),
        device: DeviceId::new("n1").unwrap(),
        user: None,
        uid: Some(1000),
        start: Timestamp::from_seconds(1_767_700_000),
        stop: None,
        monitor: monitor.map(Into::into),
        oom_kills: Vec::new(),
    };
    want.jobs = [None, Some(""), Some("perf_.* bmc_.*")].map(event).to_vec();
    if !second.try_exists().unwrap() {
        std::fs::write(&second, encode(&want)).unwrap();
    }
    assert!(same(&decode(&std::fs::read(&second).unwrap()).unwrap(), &want));
    for file in std::fs::read_dir(&dir).unwrap() {
        let path = file.unwrap().path();
        assert!(decode(&std::fs::read(&path).unwrap()).is_ok(), "{}", path.display());
    }
}

#[test]
fn unprintable_characters_of_senders_are_cleaned() {
    let hostile = "a\u{1b}[2J\n\u{9b}b\u{202e}";
    let labels = Labels::new([("k", hostile)]).unwrap();
    let help = hostile.to_owned().into();
    let metric = Metric { help, ..Metric::gauge("load_1m", Unit::Count, "") };
    let entry = SeriesEntry {
        metric: Arc::new(metric),
        device: DeviceId::new("n1").unwrap(),
        job: None,
        labels,
        start: None,
    };
    let gap = Gap {
        origin: Origin::new("o").unwrap(),
        device: DeviceId::new("n1").unwrap(),
        source: hostile.into(),
        from: Timestamp(1),
        to: Timestamp(2),
        cause: Cause::ALL[0],
        detail: hostile.into(),
    };
    let task = hostile.into();
    let kill =
        OomKill { at: Timestamp(1), pid: 1, uid: None, task, task_bytes: None, limit_bytes: None };
    let event = JobEvent {
        key: JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(1).unwrap() },
        display_id: hostile.into(),
        device: DeviceId::new("n1").unwrap(),
        user: Some(hostile.into()),
        uid: None,
        start: Timestamp(7),
        stop: None,
        monitor: None,
        oom_kills: vec![kill],
    };
    let batch = Batch {
        origin: Origin::new("o").unwrap(),
        boot: Boot([0; 16]),
        seq: 0,
        table: Arc::new(SeriesTable { entries: vec![entry] }),
        ticks: vec![Tick { at: Timestamp(1), samples: 1 }],
        index: vec![0],
        values: vec![1.0],
        gaps: vec![gap],
        jobs: vec![event],
    };
    let back = decode(&encode(&batch)).unwrap();
    let (entry, gap, event) = (&back.table.entries[0], &back.gaps[0], &back.jobs[0]);
    let clean = "a [2J  b ";
    assert_eq!((&*entry.metric.help, entry.labels.get("k").unwrap().as_str()), (clean, clean));
    assert_eq!((&*gap.source, &*gap.detail), (clean, clean));
    assert_eq!((&*event.display_id, event.user.as_deref()), (clean, Some(clean)));
    assert_eq!(&*event.oom_kills[0].task, clean);
}
