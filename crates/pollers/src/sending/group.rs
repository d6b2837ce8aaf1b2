//! The devices of one origin, with their samples on the way to the server.

use super::completeness::{CompleteUntil, Completeness, GroupComplete};
use super::missing::Missing;
use super::name_share::NameShare;
use super::patient_output::PatientOutput;
use crate::PROGRAM;
use crate::descriptions::Target;
use crate::polling::Reading;
use config::{PollerConfig, Spool, SpoolSettings};
use delivery::{
    BatchOutput, Clock, Counters, Delivery, DeliveryError, Folders, Order, PendingEvents, Sealer,
    Settings, draw_boot,
};
use model::{Cause, DeviceId, Gap, JobEvent, JobKey, Labels, Metric, Origin, Timestamp};
use sources::Sink;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval between batches.
pub(crate) const SEAL_EVERY: Duration = Duration::from_secs(1);
/// Source of the gap of a device that failed when the poller ended.
const FAILED: &str = "poller";
/// Bytes of frames in memory at which an input without a spool waits: half of what memory holds.
const UNSENT_MAX: u64 = 512 << 10;
/// Free bytes of a spool at which an input waits: those that are in memory and on the way to it.
const SPOOL_FREE_MIN: u64 = 2 << 20;
/// Metric definitions in memory. Beyond it, all are built again.
const METRICS_MAX: usize = 65_536;

/// What a group is started with.
pub(crate) struct GroupStart<'a> {
    pub(crate) config: &'a PollerConfig,
    pub(crate) origin: Origin,
    /// The name of the poller.
    pub(crate) poller: &'a DeviceId,
    pub(crate) devices: Vec<DeviceId>,
    /// The folder of its spool; `None` for none.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) clock: &'a Arc<dyn Clock>,
    /// The number of groups, which share the limits of the spool.
    pub(crate) groups: usize,
    /// Of an input: what the gaps state in which it did not run. Sealing then waits while the delivery has more than it can
    /// pass on.
    pub(crate) input_down: Option<&'static str>,
}

/// The devices of one origin.
#[derive(Debug)]
pub(crate) struct Group {
    origin: Origin,
    sink: Sink,
    sealer: Sealer,
    delivery: Delivery,
    notes: Arc<PendingEvents>,
    counters: Arc<Counters>,
    /// Time until which an earlier start kept everything, and of devices that failed then.
    kept_until: Option<Timestamp>,
    kept_of: BTreeMap<DeviceId, Timestamp>,
    completeness: Completeness,
    /// What is complete once so many batches are encoded.
    sealed: (u64, GroupComplete),
    metrics: HashMap<String, Arc<Metric>>,
    names: NameShare,
    input_down: Option<&'static str>,
    /// The limit of its spool; `None` without one.
    spool_bytes_max: Option<u64>,
}

impl Group {
    /// Starts the delivery of a group.
    pub(crate) fn start(of: GroupStart<'_>) -> Result<Self, DeliveryError> {
        let GroupStart { config, origin, folder, clock, .. } = of;
        let notes = Arc::new(PendingEvents::of_devices(origin.clone(), of.devices));
        let counters = Arc::new(Counters::default());
        let mut spool = config.spool.clone();
        spool.spool = Some(folder.map_or(Spool::None, |dir| Spool::Folder(dir.to_owned())));
        share(&mut spool, of.groups);
        let folders = Folders::open(&spool, &notes, &counters)?;
        let (kept_until, has_spool) = (folders.kept_until, folders.dir().is_some());
        let (completeness, kept_of) = Completeness::open(&origin, folders.dir());
        let boot = draw_boot()?;
        let (waker, _) = UnixStream::pair()?;
        let settings =
            Settings { server: &config.server, spool: &spool, local: false, program: PROGRAM };
        let parts = (&notes, &counters, clock);
        let (delivery, inlet) =
            Delivery::start(settings, folders, parts, (&boot, SEAL_EVERY), waker)?;
        let outlet: Box<dyn BatchOutput> = match of.input_down.is_some() {
            true => Box::new(PatientOutput::new(inlet, &counters, has_spool)),
            false => Box::new(inlet),
        };
        let sealer = Sealer::new(origin.clone(), boot, Arc::clone(&notes), outlet, None);
        let (sink, metrics) = (Sink::new(of.poller.clone()), HashMap::new());
        let spool_bytes_max = has_spool.then_some(spool.spool_bytes_max.0);
        let sealed = (0, GroupComplete::default());
        Ok(Self {
            origin,
            sink,
            sealer,
            delivery,
            notes,
            counters,
            kept_until,
            kept_of,
            completeness,
            sealed,
            metrics,
            names: NameShare::default(),
            input_down: of.input_down,
            spool_bytes_max,
        })
    }

    /// Replaces the devices of a group that runs.
    pub(crate) fn set_devices(&mut self, devices: Vec<DeviceId>) {
        self.completeness.retain(&devices);
        self.notes.set_devices(devices);
    }

    /// Adds a device to a group that runs.
    pub(crate) fn add_device(&self, device: DeviceId) {
        self.notes.add_device(device);
    }

    /// Notes that a device has no samples from the end of an earlier start to `first`. It has no gap before it was described.
    /// Returns the instant from which samples or gaps of it follow.
    pub(crate) fn note_down(
        &self,
        (device, described): (&DeviceId, Timestamp),
        first: Timestamp,
        period: Duration,
    ) -> Timestamp {
        let detail = self.input_down.unwrap_or_default();
        // Without an end of an earlier start, a device that is new has no gap, too.
        let is_new = described > Timestamp(0);
        let kept_until = self.kept_until.max(is_new.then_some(described));
        let begin = self.notes.add_down_of(device, kept_until, first, period, detail);
        let failing = self.kept_of.get(device).map(|at| described.max(*at));
        let Some(failing) = failing.filter(|at| *at < first) else {
            return begin;
        };
        // A server moves the beginning of a gap of all sources to the latest sample of the group.
        self.miss(Missing {
            device: device.clone(),
            source: FAILED.to_owned(),
            span: (failing, first),
            cause: Cause::PollerDown,
            detail: "it failed when the poller ended".to_owned(),
        });
        first
    }

    /// States until when what a target returns of a device is complete; `None` if it does not return it any more.
    pub(crate) fn set_complete(
        &mut self,
        device: &DeviceId,
        target: u64,
        until: Option<CompleteUntil>,
    ) {
        self.completeness.set(device, target, until);
    }

    /// Whether an exporter of the group may have a metric of this name, both as hashes.
    pub(crate) fn admit_name(&mut self, exporter: u64, name: u64) -> bool {
        self.names.admit(exporter, name, self.metrics.len())
    }

    /// Adds a value of a device.
    pub(crate) fn add(&mut self, reading: &Reading) {
        let metric = self.metric(reading);
        let series = (&reading.device, &metric, &reading.labels);
        self.add_value(reading.at, series, None, reading.value);
    }

    /// Adds a value of a series. `start` is that of a counter.
    pub(crate) fn add_value(
        &mut self,
        at: Timestamp,
        series: (&DeviceId, &Arc<Metric>, &Labels),
        start: Option<Timestamp>,
        value: f64,
    ) {
        self.add_job_value(at, None, series, start, value);
    }

    /// Adds a value of a series of a job, or without one of the device.
    pub(crate) fn add_job_value(
        &mut self,
        at: Timestamp,
        job: Option<&JobKey>,
        (device, metric, labels): (&DeviceId, &Arc<Metric>, &Labels),
        start: Option<Timestamp>,
        value: f64,
    ) {
        self.sink.begin(at);
        self.sink.of_both(device, job).reported(metric, labels, start, value);
    }

    /// Adds a report about a job.
    pub(crate) fn put_job(&self, event: JobEvent) {
        self.notes.put_job(event);
    }

    /// Until when an earlier start kept everything of a device.
    pub(crate) fn kept_until(&self, device: &DeviceId) -> Option<Timestamp> {
        self.kept_of.get(device).copied().or(self.kept_until)
    }

    /// Whether an input must wait, because the server does not accept more and the spool is full.
    pub(crate) fn is_full(&self) -> bool {
        let unsent = self.counters.unsent_bytes.load(Ordering::Relaxed);
        let spooled = self.counters.spool_bytes.load(Ordering::Relaxed);
        match self.spool_bytes_max {
            Some(max) => spooled + unsent > max - SPOOL_FREE_MIN.min(max / 2),
            None => unsent > UNSENT_MAX,
        }
    }

    /// Samples that are not sealed.
    pub(crate) fn unsealed(&self) -> usize {
        self.sink.len()
    }

    /// Whether the server has everything that is sealed.
    pub(crate) fn is_sent(&self) -> bool {
        let Counters { encoded_batches, unsent_bytes, spool_bytes, .. } = &*self.counters;
        // In this order: a batch that is encoded has bytes until it is acknowledged.
        encoded_batches.load(Ordering::Relaxed) >= self.sealer.counts.batches
            && unsent_bytes.load(Ordering::Relaxed) == 0
            && spool_bytes.load(Ordering::Relaxed) == 0
    }

    /// Batches that the server acknowledged.
    pub(crate) fn sent_batches(&self) -> u64 {
        self.counters.sent_batches.load(Ordering::Relaxed)
    }

    /// Adds a gap of a device that a target reports. Of a device with several targets the gap names the target.
    pub(crate) fn miss_of_target(&self, (target, number): (&Target, u64), mut missing: Missing) {
        if self.completeness.has_others(&missing.device, number) {
            missing.detail = format!("{target}: {}", missing.detail);
        }
        self.miss(missing);
    }

    /// Adds a gap of a device.
    pub(crate) fn miss(&self, missing: Missing) {
        let Missing { device, source, span: (from, to), cause, detail } = missing;
        let (origin, source, detail) = (self.origin.clone(), source.into(), detail.into());
        self.notes.put(Gap { origin, device, source, from, to, cause, detail });
    }

    /// Passes the samples on.
    pub(crate) fn seal(&mut self) {
        // Until then, samples may be in a queue in memory.
        if self.counters.encoded_batches.load(Ordering::Relaxed) >= self.sealed.0 {
            self.notes.set_complete_until(self.completeness.write(&self.sealed.1));
        }
        let complete = self.completeness.complete();
        let before = self.sink.counts().series_rejected;
        self.sealer.seal(&mut self.sink);
        self.sealed = (self.sealer.counts.batches, complete);
        self.sink.shrink();
        let rejected = self.sink.counts().series_rejected - before;
        if rejected > 0 {
            log::error!("{}: {rejected} samples of too many series are dropped", self.origin);
        }
    }

    /// Ends the delivery: what the server does not accept at once goes to the spool. Returns how many samples are lost
    /// meanwhile.
    pub(crate) fn end(mut self) -> u64 {
        let counters = Arc::clone(&self.counters);
        let lost = || counters.dropped_samples.load(Ordering::Relaxed);
        let before = lost();
        self.delivery.order(Order::End);
        self.seal();
        let complete = self.completeness.complete();
        self.notes.set_complete_until(self.completeness.write(&complete));
        // Also without samples, the server receives that this is the end.
        self.sealer.seal_empty();
        self.delivery.end();
        lost().saturating_sub(before)
    }

    /// The definition that all series of a metric share.
    fn metric(&mut self, reading: &Reading) -> Arc<Metric> {
        let meaning = &reading.meaning;
        if let Some(known) = self.metrics.get(&reading.metric)
            && (known.kind, known.unit, known.assumed)
                == (meaning.kind, meaning.unit, !meaning.is_declared)
            && *known.help == *reading.help
        {
            return Arc::clone(known);
        }
        if self.metrics.len() >= METRICS_MAX {
            self.metrics.clear();
        }
        let metric = Arc::new(reading.definition());
        self.metrics.insert(reading.metric.clone(), Arc::clone(&metric));
        metric
    }
}

/// A group's part of the limits of the spool.
fn share(spool: &mut SpoolSettings, groups: usize) {
    let groups = u64::try_from(groups.max(1)).unwrap_or(u64::MAX);
    let part = |bytes: u64, least: u64| (bytes / groups).max(least);
    spool.spool_bytes_max.0 = part(spool.spool_bytes_max.0, 1 << 20);
    spool.spool_send_bytes_per_second.0 = part(spool.spool_send_bytes_per_second.0, 64 << 10);
    spool.rejected_bytes_max.0 /= groups;
}
