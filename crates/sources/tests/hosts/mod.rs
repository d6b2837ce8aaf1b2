//! Recorded machines with two ticks, `testdata/hosts/H/1` and `/2`, read by every source. The root steps from
//! one to the other, so the text of an open file changes, as on a live machine.

use cgroups::{Config, Discovery, Jobs};
use kernel::Root;
use model::{DeviceId, JobKey, Timestamp};
use sources::{Context, Open, Options, PartState, SOURCES, Sink, Source, SourceError, SourceSpec};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Time of the first tick of every recorded machine.
pub(crate) const FIRST_TICK: Timestamp = Timestamp(1_767_706_500_000_000);
/// Microseconds from the first tick to the second.
pub(crate) const PERIOD_US: i64 = 5_000_000;

/// An option set before the sources are opened: source, name, value.
pub(crate) type Setting = (&'static str, &'static str, &'static str);

/// Result of one source on a machine over both ticks.
pub(crate) struct SourceRun {
    pub(crate) spec: &'static SourceSpec,
    pub(crate) sink: Sink,
    /// Errors of the source or of a part of it, with their tick.
    pub(crate) rejections: Vec<String>,
}

/// The names of all recorded machines with two ticks.
pub(crate) fn hosts() -> Vec<String> {
    let entries = fs::read_dir(testdata().join("hosts")).unwrap().map(|entry| entry.unwrap());
    let two_ticks = entries.filter(|entry| {
        ["1", "2"].iter().all(|tick| entry.path().join(tick).try_exists().unwrap())
    });
    let mut names: Vec<_> =
        two_ticks.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Directory of recorded machines and golden files.
pub(crate) fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// Reads both ticks of a machine with every source.
pub(crate) fn read(host: &str, settings: &[Setting]) -> Vec<SourceRun> {
    let tick_dir = |tick: i64| testdata().join("hosts").join(host).join(tick.to_string());
    let mut root = Root::recorded(&tick_dir(1)).unwrap();
    let mut sources: Vec<Reader> =
        SOURCES.iter().map(|spec| Reader::new(spec, host, settings)).collect();
    let (mut discovery, mut jobs) = (Discovery::new(Config::default()), Jobs::default());
    for tick in [1, 2] {
        root.step_to(&tick_dir(tick)).unwrap();
        let now = FIRST_TICK.plus((tick - 1) * PERIOD_US);
        let boot = boot(&root);
        // Like the agent: ended jobs are read for the last time and dropped, which reveals jobs that
        // reuse their IDs; then everything is read.
        loop {
            let changes = discovery.update(&root, now, &mut jobs);
            let over: BTreeSet<JobKey> =
                changes.ended.iter().chain(&changes.emptied).cloned().collect();
            let cx = Context {
                root: &root,
                now,
                boot,
                jobs: &jobs,
                budget_us: 1_000_000,
                is_between: false,
            };
            sources.iter_mut().for_each(|source| source.ended(&cx, &over));
            if changes.ended.is_empty() {
                break;
            }
        }
        let cx = Context {
            root: &root,
            now,
            boot,
            jobs: &jobs,
            budget_us: 1_000_000,
            is_between: false,
        };
        sources.iter_mut().for_each(|source| source.tick(tick, &cx));
    }
    sources.into_iter().map(|source| source.run).collect()
}

fn boot(root: &Root) -> Timestamp {
    let mut text = Vec::new();
    root.read("proc/stat", &mut text).unwrap();
    let stat = kernel::stat::stat(&text, |_, _| ()).unwrap();
    Timestamp::from_seconds(i64::try_from(stat.boot_seconds.unwrap()).unwrap())
}

struct Reader {
    run: SourceRun,
    options: Options,
    source: Option<Box<dyn Source>>,
}

impl Reader {
    fn new(spec: &'static SourceSpec, host: &str, settings: &[Setting]) -> Self {
        let of_it = settings.iter().filter(|(source, ..)| *source == spec.name);
        let options = Options::of(spec, of_it.map(|(_, name, value)| (*name, *value))).unwrap();
        let sink = Sink::of_source(spec, DeviceId::new(host).unwrap());
        Self { run: SourceRun { spec, sink, rejections: Vec::new() }, options, source: None }
    }

    fn ended(&mut self, cx: &Context<'_>, over: &BTreeSet<JobKey>) {
        self.run.sink.begin(cx.now);
        if let Some(source) = &mut self.source {
            for key in over {
                source.job_ended(key, cx, &mut self.run.sink).unwrap();
            }
        }
    }

    fn tick(&mut self, tick: i64, cx: &Context<'_>) {
        self.run.sink.begin(cx.now);
        if let Err(error) = self.collect(cx) {
            self.run.rejections.push(format!("tick {tick}: {error}"));
        }
        for (entry, ..) in self.run.sink.samples() {
            let (spec, name) = (self.run.spec, &entry.metric.name);
            let declared = spec.metrics.iter().any(|metric| **metric == *entry.metric);
            assert!(declared, "{name} is not declared by {}", spec.name);
        }
        for (part, state) in self.run.sink.parts() {
            if let PartState::Not(error) = state {
                self.run.rejections.push(format!("tick {tick}: part {part}: {error}"));
            }
        }
    }

    fn collect(&mut self, cx: &Context<'_>) -> Result<(), SourceError> {
        let mut source = match self.source.take() {
            Some(source) => source,
            None => (self.run.spec.open)(&Open {
                root: cx.root,
                options: &self.options,
                boot: cx.boot,
            })?,
        };
        let result = source.collect(cx, &mut self.run.sink);
        self.source = Some(source);
        result
    }
}
