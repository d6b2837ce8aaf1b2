//! The ports of a meter in their groups.

use super::feed_program::FeedOptions;
use super::line::{LineFault, PORTS_MAX, PortValue, parse};
use super::mapping::{Mapping, MappingError};
use super::port::Port;
use super::recent_rows::RecentRows;
use super::row_order::{Placement, RowOrder};
use crate::polling::instant;
use crate::running::{Demand, DemandNames, Names, follow_demand};
use crate::sending::{Group, GroupStart, earlier_groups, spool_folder};
use config::PollerConfig;
use delivery::{Clock, DeliveryError};
use model::{DeviceId, Labels, Metric, NameError, Origin, Timestamp, Unit};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Ports of a group. With the meter itself, the first one has 64 devices.
const GROUP_PORTS: usize = 63;
/// Interval between values of the counters.
const REPORT_US: i64 = 60 * Timestamp::SECOND;
/// A sample further ahead is wrong.
const AHEAD_MAX_US: i64 = 24 * 3600 * Timestamp::SECOND;
/// Shortest time without samples between two starts that is a gap: for means, and for each sample.
const PERIODS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(10)];

/// Why a feed does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The ID of the meter is no name of a device.
    #[error("--id {id}: {why}")]
    Id {
        /// The ID.
        id: String,
        /// What is wrong.
        why: NameError,
    },
    /// The mapping file.
    #[error("mapping: {0}")]
    Mapping(#[from] MappingError),
    /// A group cannot start.
    #[error(transparent)]
    Delivery(#[from] DeliveryError),
    /// The input cannot be read.
    #[error("standard input: {0}")]
    Input(#[from] io::Error),
}

/// The metrics of a feed.
#[derive(Debug)]
struct Metrics {
    power: Arc<Metric>,
    samples: Arc<Metric>,
    lines: Arc<Metric>,
}

impl Metrics {
    fn new() -> Self {
        let counter = |name, help| Arc::new(Metric::counter(name, Unit::Count, help));
        Self {
            power: Arc::new(Metric::gauge(
                "wattmetre_power_watt",
                Unit::Watts,
                "Power at a port of a wattmeter.",
            )),
            samples: counter(
                "wattmetre_samples_total",
                "Samples of a port by state, since the feed began: ok, missing, bad.",
            ),
            lines: counter(
                "wattmetre_lines_total",
                "Lines of a wattmeter by state, since the feed began: ok, broken, not_ok, out_of_order, wrong_time.",
            ),
        }
    }
}

/// A meter with its ports.
#[derive(Debug)]
pub(super) struct Feed<'a> {
    config: &'a PollerConfig,
    options: &'a FeedOptions,
    clock: &'a Arc<dyn Clock>,
    meter: DeviceId,
    mapping: Mapping,
    folder: Option<PathBuf>,
    metrics: Metrics,
    /// The names that the server is queried for: the ports, and the nodes that they feed.
    names: Names,
    demand: watch::Receiver<Arc<Demand>>,
    groups: Vec<Group>,
    /// The number of groups at the start, which share the limits of the spool.
    groups_at_start: usize,
    ports: Vec<Port>,
    order: RowOrder,
    recent: RecentRows,
    /// The values of the current line.
    values: Vec<PortValue>,
    /// Instant of the latest row.
    at: Timestamp,
    /// Start of the counters.
    begun: Option<Timestamp>,
    /// Instant of the latest values of the counters.
    reported: Timestamp,
    /// Lines by state.
    lines: [f64; 5],
    /// Lines that were not used.
    faults: f64,
    /// The fault that the log states.
    fault: Option<LineFault>,
}

impl<'a> Feed<'a> {
    /// A meter. Its groups start with its first row.
    pub(super) fn new(
        config: &'a PollerConfig,
        options: &'a FeedOptions,
        clock: &'a Arc<dyn Clock>,
    ) -> Result<Self, FeedError> {
        let id = &options.id;
        let wrong = |why| FeedError::Id { id: id.clone(), why };
        DeviceId::new(&port_name(id, PORTS_MAX)).map_err(wrong)?;
        let meter = DeviceId::new(id).map_err(wrong)?;
        Origin::of_poller_group(&meter, PORTS_MAX).map_err(wrong)?;
        let mapping = options.mapping.as_deref().map(Mapping::read).transpose()?;
        let name = format!("feed-{id}");
        let names = Names::default();
        let demand = follow_demand(config, &meter, &names)?;
        Ok(Self {
            names,
            demand,
            folder: spool_folder(config, &name, Some(&name))?,
            config,
            options,
            clock,
            meter,
            mapping: mapping.unwrap_or_default(),
            metrics: Metrics::new(),
            groups: Vec::new(),
            groups_at_start: 0,
            ports: Vec::new(),
            order: RowOrder::default(),
            recent: RecentRows::default(),
            values: Vec::new(),
            at: Timestamp(0),
            begun: None,
            reported: clock.wall(),
            lines: [0.0; 5],
            faults: 0.0,
            fault: None,
        })
    }

    /// Takes a line; `None` for one that is too long.
    pub(super) fn take(&mut self, line: Option<&[u8]>, now: Timestamp) -> Result<(), FeedError> {
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        let at = match line {
            Some(line) => parse(self.options.version, line, &mut values),
            None => Err(LineFault::Broken("it is too long")),
        };
        let is_possible =
            |at: &Timestamp| (Timestamp::YEAR_2000..=now.plus(AHEAD_MAX_US)).contains(at);
        let placed = match at {
            Ok(at) if is_possible(&at) => self.place(at, &values),
            Ok(_) => {
                self.count_line(Some(LineFault::WrongTime));
                Ok(())
            }
            Err(fault) => {
                self.count_line(Some(fault));
                Ok(())
            }
        };
        self.values = values;
        placed
    }

    fn place(&mut self, at: Timestamp, values: &[PortValue]) -> Result<(), FeedError> {
        match self.order.place(at, values) {
            Placement::Next { is_one_dropped } => {
                self.count_dropped(is_one_dropped);
                self.accept(at, values)
            }
            Placement::Confirms(row) => {
                self.accept(row.at, &row.values)?;
                self.accept(at, values)
            }
            Placement::Waits { is_one_dropped } => {
                self.count_dropped(is_one_dropped);
                Ok(())
            }
        }
    }

    fn count_dropped(&mut self, is_one_dropped: bool) {
        if is_one_dropped {
            self.count_line(Some(LineFault::OutOfOrder));
        }
    }

    /// Counts a line, and logs when its state is another than that of the line before.
    fn count_line(&mut self, fault: Option<LineFault>) {
        self.faults += if fault.is_some() { 1.0 } else { 0.0 };
        if let Some(count) = self.lines.get_mut(LineFault::state(fault)) {
            *count += 1.0;
        }
        if self.fault != fault {
            match fault {
                Some(fault) => log::warn!("{}: a line is not used: {fault}", self.meter),
                None => log::info!("{}: lines are used again", self.meter),
            }
            self.fault = fault;
        }
    }

    /// Takes a row that counts.
    fn accept(&mut self, at: Timestamp, values: &[PortValue]) -> Result<(), FeedError> {
        if second(at) != second(self.at) {
            self.end_second()?;
        }
        if values.len() > self.ports.len() {
            self.add_ports(values.len(), at)?;
        }
        self.count_line(None);
        self.at = at;
        if !self.options.is_every_sample {
            self.recent.begin(self.clock.wall());
            self.recent.push(at, values);
        }
        for (port, value) in self.ports.iter_mut().zip(values) {
            if let Some(watts) = port.take(*value, self.faults) {
                port.flushed = Some(at);
                store(&mut self.groups, &self.metrics.power, port, (at, watts));
            }
        }
        Ok(())
    }

    /// Stores the means of the second of the latest row, and the counters once a minute.
    fn end_second(&mut self) -> Result<(), FeedError> {
        let start = second(self.at);
        for port in &mut self.ports {
            if let Some(mean) = port.end_second() {
                store(&mut self.groups, &self.metrics.power, port, (start, mean));
            }
        }
        self.choose_samples();
        // The instants of rows may be older than the clock.
        if !self.ports.is_empty() && !(0..REPORT_US).contains(&self.at.since(self.reported)) {
            self.report(self.at)?;
        }
        Ok(())
    }

    /// Sets the names that the server is queried for.
    fn set_names(&self) {
        let aliases = self.ports.iter().filter_map(|port| port.labels.get("_device_alias"));
        let devices = self.ports.iter().map(|port| port.device.to_string());
        let names = devices.chain(aliases).collect();
        let names = DemandNames { names, ..DemandNames::default() };
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(names);
    }

    /// Chooses for each port between samples and means, for the seconds that follow: samples while it is promoted.
    fn choose_samples(&mut self) {
        let (demand, now) = (self.demand.borrow(), self.clock.wall());
        for port in &mut self.ports {
            let alias = port.labels.get("_device_alias");
            let device = (port.device.as_str(), alias.as_deref());
            port.is_every_sample = self.options.is_every_sample
                || demand.promotes(&self.metrics.power.name, device, now);
        }
    }

    fn add_ports(&mut self, count: usize, at: Timestamp) -> Result<(), FeedError> {
        let before = self.ports.len();
        let is_every_sample = self.options.is_every_sample;
        for number in before..count {
            let name = port_name(&self.options.id, number);
            let labels = self.mapping.labels(&name);
            let device = DeviceId::new(&name).map_err(|why| FeedError::Id { id: name, why })?;
            let mut port = Port::new(device, labels, number / GROUP_PORTS, is_every_sample);
            // A port that never has a value has a gap since then.
            port.covered(second(at));
            if let Some(group) = self.groups.get(port.group) {
                group.add_device(port.device.clone());
            }
            self.ports.push(port);
        }
        self.open_groups()?;
        if !is_every_sample {
            self.set_names();
        }
        if before == 0 {
            self.reported = at;
            self.begun.get_or_insert(second(at));
            let [of_means, of_samples] = PERIODS;
            let (first, period) =
                if is_every_sample { (at, of_samples) } else { (second(at), of_means) };
            for port in &self.ports {
                if let Some(group) = self.groups.get(port.group) {
                    group.note_down((&port.device, Timestamp(0)), first, period);
                }
            }
        }
        Ok(())
    }

    /// Starts the groups that the ports need, and at first those of an earlier start.
    fn open_groups(&mut self) -> Result<(), FeedError> {
        let mut needed = self.ports.len().div_ceil(GROUP_PORTS).max(1);
        if self.groups.is_empty() {
            needed = needed.max(self.folder.as_deref().map_or(0, earlier_groups));
            self.groups_at_start = needed;
        }
        for number in self.groups.len()..needed {
            let of_group = self.ports.iter().filter(|port| port.group == number);
            let mut devices: Vec<DeviceId> = of_group.map(|port| port.device.clone()).collect();
            devices.extend((number == 0).then(|| self.meter.clone()));
            let folder = self.folder.as_ref().map(|dir| dir.join(format!("group-{number}")));
            let origin = Origin::of_poller_group(&self.meter, number);
            let id = || self.options.id.clone();
            self.groups.push(Group::start(GroupStart {
                config: self.config,
                origin: origin.map_err(|why| FeedError::Id { id: id(), why })?,
                poller: &self.meter,
                devices,
                folder: folder.as_deref(),
                clock: self.clock,
                groups: self.groups_at_start.max(number + 1),
                input_down: Some("the feed did not run"),
            })?);
        }
        Ok(())
    }

    /// Stores the counters, and the gaps that last.
    fn report(&mut self, at: Timestamp) -> Result<(), FeedError> {
        self.open_groups()?;
        self.reported = at;
        let start = Some(self.begun.unwrap_or(at).min(at));
        let state = |state: Option<&&str>| {
            Labels::new([("state", state.copied().unwrap_or_default())]).unwrap_or_default()
        };
        for port in &mut self.ports {
            let Some(group) = self.groups.get_mut(port.group) else { continue };
            if let Some(missing) = port.gap_until_now(at, self.faults) {
                group.miss(missing);
                port.covered(at);
            }
            for (place, count) in port.counts() {
                let labels = state(Port::STATES.get(place));
                group.add_value(at, (&port.device, &self.metrics.samples, &labels), start, count);
            }
        }
        let Some(group) = self.groups.first_mut() else { return Ok(()) };
        for (place, count) in self.lines.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            let labels = state(LineFault::STATES.get(place));
            group.add_value(at, (&self.meter, &self.metrics.lines, &labels), start, *count);
        }
        Ok(())
    }

    /// Samples that are not sealed, of the group that has most of them.
    pub(super) fn unsealed(&self) -> usize {
        self.groups.iter().map(Group::unsealed).max().unwrap_or(0)
    }

    /// Stores the kept samples of the ports that a new flush of the server names, by themselves or by the node that they
    /// feed. A sample is stored once.
    fn carry_out_flushes(&mut self) {
        let demand = Arc::clone(&self.demand.borrow());
        for flush in &demand.flushes {
            if !instant(flush.made).is_some_and(|made| self.recent.is_new(flush.id, made)) {
                continue;
            }
            let mut count = 0_usize;
            for (place, port) in self.ports.iter_mut().enumerate() {
                let alias = port.labels.get("_device_alias");
                let is_its =
                    |name: &String| port.device.as_str() == name || alias.as_ref() == Some(name);
                if !flush.names.iter().any(is_its) {
                    continue;
                }
                let Some(group) = self.groups.get_mut(port.group) else { continue };
                for (at, watts) in self.recent.of_port(place, port.flushed) {
                    group.add_value(
                        at,
                        (&port.device, &self.metrics.power, &port.labels),
                        None,
                        watts,
                    );
                    count += 1;
                }
                port.flushed = Some(self.at);
                // The samples of a port are at most those of a batch.
                group.seal();
            }
            log::info!("flush {}: {count} samples", flush.id);
        }
    }

    /// Passes the samples on. A meter without a row reports its lines, too.
    pub(super) fn seal(&mut self, now: Timestamp) -> Result<(), FeedError> {
        if self.ports.is_empty() && self.faults > 0.0 && now.since(self.reported) >= REPORT_US {
            self.begun.get_or_insert(self.reported);
            self.report(now)?;
        }
        self.carry_out_flushes();
        for port in &self.ports {
            if let Some(group) = self.groups.get_mut(port.group) {
                group.set_complete(&port.device, 0, port.complete_until(self.at));
            }
        }
        self.groups.iter_mut().for_each(Group::seal);
        Ok(())
    }

    /// Stores what is left after the last line.
    pub(super) fn flush(&mut self, now: Timestamp) -> Result<(), FeedError> {
        match self.order.end() {
            Placement::Confirms(row) => self.accept(row.at, &row.values)?,
            Placement::Next { is_one_dropped } | Placement::Waits { is_one_dropped } => {
                self.count_dropped(is_one_dropped);
            }
        }
        self.end_second()?;
        let at = if self.ports.is_empty() { now } else { self.at };
        self.report(at)?;
        self.seal(now)
    }

    /// Whether the server has everything that is sealed.
    pub(super) fn is_sent(&self) -> bool {
        self.groups.iter().all(Group::is_sent)
    }

    /// Batches that the server acknowledged.
    pub(super) fn sent_batches(&self) -> u64 {
        self.groups.iter().map(Group::sent_batches).sum()
    }

    /// Ends the groups, together: each waits a moment for the server. Returns how many samples are lost.
    pub(super) fn end(self) -> u64 {
        std::thread::scope(|scope| {
            let ends: Vec<_> =
                self.groups.into_iter().map(|group| scope.spawn(move || group.end())).collect();
            // The thread of a group that panics has ended the program.
            ends.into_iter().map(|end| end.join().unwrap_or(0)).sum()
        })
    }
}

/// Stores a power, and the gap before it.
fn store(
    groups: &mut [Group],
    power: &Arc<Metric>,
    port: &mut Port,
    (at, watts): (Timestamp, f64),
) {
    let Some(group) = groups.get_mut(port.group) else { return };
    if let Some(missing) = port.gap_before(at) {
        group.miss(missing);
    }
    port.covered(at);
    group.add_value(at, (&port.device, power, &port.labels), None, watts);
}

/// The start of an instant's second.
const fn second(at: Timestamp) -> Timestamp {
    Timestamp(at.0 - at.0.rem_euclid(Timestamp::SECOND))
}

fn port_name(meter: &str, number: usize) -> String {
    format!("{meter}-port{number}")
}
