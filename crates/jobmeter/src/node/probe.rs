//! Opens and reads a source outside of the agent, for `jobmeter sources` and `jobmeter doctor`.

use cgroups::Jobs;
use kernel::{Root, clock};
use model::{DeviceId, Timestamp};
use serde::Serialize;
use sources::{Context, Open, Options, PartState, Sink, Source, SourceError, SourceSpec};
use std::time::Duration;

/// The state of a source, or of a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It exists and is readable.
    Ok,
    /// This machine does not have it.
    Absent,
    /// It exists, but permission to read it is denied.
    Denied,
    /// It exists, but its content is invalid or reading it fails.
    Broken,
    /// The settings disable it.
    Off,
}

impl State {
    /// The state's name in output.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Absent => "absent",
            Self::Denied => "denied",
            Self::Broken => "broken",
            Self::Off => "off",
        }
    }
}

/// State of a source or of a part of it, with what is missing and how to enable it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceState {
    pub(crate) state: State,
    pub(crate) what: String,
    pub(crate) grant: String,
}

impl SourceState {
    pub(crate) const OK: Self =
        Self { state: State::Ok, what: String::new(), grant: String::new() };

    /// Converts an error to a state.
    pub(crate) fn of(error: &SourceError) -> Self {
        let (state, what, grant) = match error {
            SourceError::Absent(what) => (State::Absent, what, ""),
            SourceError::Denied { what, grant } => (State::Denied, what, &**grant),
            SourceError::Broken(what) => (State::Broken, what, ""),
        };
        Self { state, what: what.to_string(), grant: grant.to_owned() }
    }

    /// The reason in one sentence.
    pub(crate) fn reason(&self) -> String {
        match &*self.grant {
            "" => self.what.clone(),
            grant => format!("{}; grant {grant}", self.what),
        }
    }
}

/// The machine that a source reads.
#[derive(Clone, Debug)]
pub(crate) struct ProbedMachine {
    pub(crate) root: Root,
    pub(crate) device: DeviceId,
    pub(crate) boot: Timestamp,
}

impl ProbedMachine {
    /// The machine at a root directory.
    pub(crate) fn new(root: Root, device: &str) -> anyhow::Result<Self> {
        let boot = agent::boot_of(&root)?;
        Ok(Self { root, device: DeviceId::new(device)?, boot })
    }
}

/// An opened source, and the result of its readings.
pub(crate) struct Probe {
    spec: &'static SourceSpec,
    source: Option<Box<dyn Source>>,
    sink: Sink,
    failed: Option<SourceError>,
}

impl Probe {
    /// Opens a source; [`Self::checked`] reports an error.
    pub(crate) fn open(
        spec: &'static SourceSpec,
        options: &Options,
        probed_machine: &ProbedMachine,
    ) -> Self {
        let sink = Sink::of_source(spec, probed_machine.device.clone());
        let opened =
            (spec.open)(&Open { root: &probed_machine.root, options, boot: probed_machine.boot });
        let (source, failed) = match opened {
            Ok(source) => (Some(source), None),
            Err(error) => (None, Some(error)),
        };
        Self { spec, source, sink, failed }
    }

    /// Reads the source once. Returns the used processor time in microseconds, or `None` if the source is not
    /// open. Closes an absent or denied source, as the agent does, which reopens it later.
    pub(crate) fn read(
        &mut self,
        probed_machine: &ProbedMachine,
        jobs: &Jobs,
        budget: Duration,
    ) -> Option<u64> {
        let source = self.source.as_mut()?;
        self.sink.sealed();
        let now = crate::clock();
        self.sink.begin(now);
        let before = clock::thread_cpu_us();
        let budget_us = u64::try_from(budget.as_micros()).unwrap_or(u64::MAX);
        let cx = Context {
            root: &probed_machine.root,
            now,
            boot: probed_machine.boot,
            jobs,
            budget_us,
            is_between: false,
        };
        self.failed = source.collect(&cx, &mut self.sink).err();
        let cpu_us = clock::thread_cpu_us().saturating_sub(before);
        if matches!(self.failed, Some(SourceError::Absent(_) | SourceError::Denied { .. })) {
            self.source = None;
        }
        Some(cpu_us)
    }

    /// Maximum interval between reads of the kernel's queue, if the source has one.
    pub(crate) fn drain_every(&self) -> Option<Duration> {
        self.source.as_ref()?.drain_every()
    }

    /// Reads the kernel's queue; returns processor time like [`Self::read`].
    pub(crate) fn drain(&mut self, probed_machine: &ProbedMachine, jobs: &Jobs) -> u64 {
        let Some(source) = self.source.as_mut() else { return 0 };
        let before = clock::thread_cpu_us();
        let now = crate::clock();
        let cx = Context {
            root: &probed_machine.root,
            now,
            boot: probed_machine.boot,
            jobs,
            budget_us: u64::MAX,
            is_between: false,
        };
        if let Err(error) = source.drain(&cx, &mut self.sink) {
            self.failed = Some(error);
        }
        clock::thread_cpu_us().saturating_sub(before)
    }

    /// The error of opening, or of a last reading without samples.
    pub(crate) const fn failed(&self) -> Option<&SourceError> {
        self.failed.as_ref()
    }

    /// Samples of the last reading.
    pub(crate) const fn sink(&self) -> &Sink {
        &self.sink
    }

    /// Number of metrics with a sample in the last reading.
    pub(crate) fn metrics(&self) -> usize {
        let mut names: Vec<&str> =
            self.sink.samples().map(|(entry, _, _)| &*entry.metric.name).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// The state of the source, then of each part without samples, with names.
    pub(crate) fn checked(&self) -> Vec<(String, SourceState)> {
        let whole = self.failed.as_ref().map_or(SourceState::OK, SourceState::of);
        let mut all = vec![(self.spec.name.to_owned(), whole)];
        for (part, state) in self.sink.parts() {
            if let PartState::Not(error) = state {
                all.push((format!("{}/{part}", self.spec.name), SourceState::of(error)));
            }
        }
        all
    }
}
