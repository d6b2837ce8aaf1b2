//! The devices of one origin, with their samples on the way to the server.

use super::outages::Missing;
use super::poll_metrics::PollValue;
use crate::polling::Reading;
use config::{PollerConfig, Spool, SpoolSettings};
use delivery::{
    Clock, Counters, Delivery, DeliveryError, Folders, Order, PendingEvents, Sealer, Settings,
    draw_boot,
};
use model::{DeviceId, Gap, Metric, Origin, Timestamp};
use sources::Sink;
use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Interval between batches.
pub(super) const SEAL_EVERY: Duration = Duration::from_secs(1);
/// Metric definitions in memory. Beyond it, all are built again.
const METRICS_MAX: usize = 65_536;

/// The devices of one origin.
#[derive(Debug)]
pub(super) struct Group {
    origin: Origin,
    sink: Sink,
    sealer: Sealer,
    delivery: Delivery,
    notes: Arc<PendingEvents>,
    metrics: HashMap<String, Arc<Metric>>,
}

impl Group {
    /// Starts the delivery of a group: devices with their shortest periods. `is_start`: nothing polled them before, so
    /// they have a gap. `folder` is its spool; `None` for none.
    pub(super) fn start(
        config: &PollerConfig,
        (origin, poller): (Origin, &DeviceId),
        (periods, is_start): (&[(DeviceId, Duration)], bool),
        folder: Option<&Path>,
        (clock, groups): (&Arc<dyn Clock>, usize),
    ) -> Result<Self, DeliveryError> {
        let devices = periods.iter().map(|(device, _)| device.clone()).collect();
        let notes = Arc::new(PendingEvents::of_devices(origin.clone(), devices));
        let counters = Arc::new(Counters::default());
        let mut spool = config.spool.clone();
        spool.spool = Some(folder.map_or(Spool::None, |dir| Spool::Folder(dir.to_owned())));
        share(&mut spool, groups);
        let folders = Folders::open(&spool, &notes, &counters)?;
        for (device, period) in periods.iter().filter(|_| is_start) {
            notes.add_down_of(device, folders.kept_until, clock.wall(), *period);
        }
        let boot = draw_boot()?;
        let (waker, _) = UnixStream::pair()?;
        let settings = Settings { server: &config.server, spool: &spool, local: false };
        let parts = (&notes, &counters, clock);
        let (delivery, inlet) =
            Delivery::start(settings, folders, parts, (&boot, SEAL_EVERY), waker)?;
        let sealer = Sealer::new(origin.clone(), boot, Arc::clone(&notes), Box::new(inlet), None);
        let sink = Sink::new(poller.clone());
        Ok(Self { origin, sink, sealer, delivery, notes, metrics: HashMap::new() })
    }

    /// Replaces the devices.
    pub(super) fn set_devices(&self, devices: Vec<DeviceId>) {
        self.notes.set_devices(devices);
    }

    /// Adds a value of a device.
    pub(super) fn add(&mut self, reading: &Reading) {
        let metric = self.metric(reading);
        self.sink.begin(reading.at);
        self.sink.of(&reading.device).reported(&metric, &reading.labels, None, reading.value);
    }

    /// Adds a value about polling.
    pub(super) fn add_poll(&mut self, at: Timestamp, poll: &PollValue<'_>) {
        self.sink.begin(at);
        let PollValue { device, metric, labels, start, value } = poll;
        self.sink.of(device).reported(metric, labels, *start, *value);
    }

    /// Adds a gap of a device.
    pub(super) fn miss(&self, missing: Missing) {
        let Missing { device, source, span: (from, to), cause, detail } = missing;
        let (origin, source, detail) = (self.origin.clone(), source.into(), detail.into());
        self.notes.put(Gap { origin, device, source, from, to, cause, detail });
    }

    /// Passes the samples on.
    pub(super) fn seal(&mut self) {
        let before = self.sink.counts().series_rejected;
        self.sealer.seal(&mut self.sink);
        let rejected = self.sink.counts().series_rejected - before;
        if rejected > 0 {
            log::error!("{}: {rejected} samples of too many series are dropped", self.origin);
        }
    }

    /// Ends the delivery: what the server does not accept at once goes to the spool.
    pub(super) fn end(mut self) {
        self.delivery.order(Order::End);
        self.seal();
        self.delivery.end();
    }

    /// The definition that all series of a metric share.
    fn metric(&mut self, reading: &Reading) -> Arc<Metric> {
        let meaning = &reading.meaning;
        if let Some(known) = self.metrics.get(&reading.metric)
            && (known.kind, known.unit, &*known.help) == (meaning.kind, meaning.unit, &reading.help)
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
