//! One known sender: what it sent, when, and which of its batches are stored.

use crate::dedup_window::{Acknowledged, BatchMark, Missing, SentTimes, Span, Spans};
use crate::json;
use crate::json::BootText;
use crate::limits::Limits;
use model::{Boot, Cause, DeviceId, Gap, Origin, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use storage::{BootInfo, OriginInfo};

/// Boots outside the window that are remembered, so that their batches do not count as new.
const GONE_MAX: usize = 1024;
/// An origin without batches for this time is removed when the store is opened.
const FORGOTTEN_US: i64 = 90 * 24 * 60 * 60 * Timestamp::SECOND;
/// The same for the origin of one program run on a node.
const RUN_FORGOTTEN_US: i64 = 2 * 60 * 60 * Timestamp::SECOND;
/// The same for the origin of rows that a user inserts: the server remembers keys of requests for 24 h.
const USER_PUSH_FORGOTTEN_US: i64 = 25 * 60 * 60 * Timestamp::SECOND;
/// The clock of a boot becomes the origin's when the previous boot sent nothing for this time.
const FRONT_US: i64 = 10 * 60 * Timestamp::SECOND;
/// A boot with its first batches in a damaged place of the log sends again within this time.
const DAMAGE_DELAY_US: i64 = 60 * 60 * Timestamp::SECOND;
/// Inserted rows of any time may follow each other. A batch so much later than the one before it says nothing of the time between.
const ROWS_AHEAD_US: i64 = 60 * Timestamp::SECOND;
/// An origin with more devices has one gap under its own name instead of one for each device.
const GAP_DEVICES_MAX: usize = 64;

/// The origin of gaps without a known origin.
pub(crate) const LOG: &str = "log";

/// Whether a batch is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Not yet.
    New,
    /// It is.
    Before,
    /// Unknown: its boot has left the window.
    TooLate,
}

/// A sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OriginState {
    /// Its name.
    #[serde(deserialize_with = "json::name", serialize_with = "json::text")]
    pub name: Origin,
    #[serde(with = "json::time")]
    pub(crate) received: Timestamp,
    #[serde(with = "json::time")]
    pub(crate) sealed: Timestamp,
    pub(crate) clock_offset_us: i64,
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    #[serde(rename = "samples_refused")]
    pub(crate) samples_rejected: u64,
    pub(crate) boots: Vec<BootState>,
    gone: VecDeque<PastBoot>,
    /// The boot with the origin's clock.
    #[serde(default)]
    front: Option<BootText>,
    devices: BTreeSet<DeviceText>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct BootState {
    boot: BootText,
    #[serde(with = "json::time")]
    received: Timestamp,
    pub(crate) spans: Spans,
    /// Its first number that may be missing.
    #[serde(default)]
    pub(crate) base: u64,
    /// What a restored store lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acknowledged: Option<Acknowledged>,
    /// When its acknowledged batches were, also those that a restored store lacks.
    #[serde(default, skip_serializing_if = "SentTimes::is_empty")]
    times: SentTimes,
}

impl BootState {
    fn new(boot: BootText, received: Timestamp, base: u64) -> Self {
        let (spans, times) = (Spans::default(), SentTimes::default());
        Self { boot, received, spans, base, acknowledged: None, times }
    }

    /// The missing numbers after the first stored one, and those that were acknowledged.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Missing> {
        let lost = self.acknowledged.as_ref();
        let after = lost.and_then(|lost| self.spans.missing_after(lost, self.base));
        self.spans.missing().chain(after).flat_map(move |missing| missing.parts(lost, &self.times))
    }

    /// Missing numbers of it, those that were acknowledged apart.
    pub(crate) fn parts(&self, missing: Missing) -> Vec<Missing> {
        missing.parts(self.acknowledged.as_ref(), &self.times)
    }

    /// The last number that was acknowledged.
    fn last(&self) -> Option<u64> {
        let stored = self.spans.last().map(|span| span.last);
        stored.max(self.acknowledged.as_ref().map(Acknowledged::last))
    }

    /// Gives up all missing numbers. Returns them.
    pub(crate) fn give_up(&mut self) -> Vec<Missing> {
        let missing = self.missing().collect();
        self.spans.give_up(0);
        self.acknowledged = None;
        missing
    }
}

/// A boot that left the window.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum PastBoot {
    /// It is unknown which of its numbers were stored.
    All(BootText),
    /// The numbers up to the last one were stored, or never will be.
    Through { boot: BootText, last: u64 },
}

impl PastBoot {
    const fn boot(&self) -> &BootText {
        match self {
            Self::All(boot) | Self::Through { boot, .. } => boot,
        }
    }

    const fn last(&self) -> u64 {
        match self {
            Self::All(_) => u64::MAX,
            Self::Through { last, .. } => *last,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct DeviceText(
    #[serde(deserialize_with = "json::name", serialize_with = "json::text")] DeviceId,
);

/// A stored batch, as recorded for its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) boot: Boot,
    pub(crate) mark: BatchMark,
    pub(crate) samples: u64,
    pub(crate) samples_rejected: u64,
}

impl OriginState {
    pub(crate) fn new(name: Origin) -> Self {
        Self {
            name,
            received: Timestamp(0),
            sealed: Timestamp(0),
            clock_offset_us: 0,
            batches: 0,
            samples: 0,
            samples_rejected: 0,
            boots: Vec::new(),
            gone: VecDeque::new(),
            front: None,
            devices: BTreeSet::new(),
        }
    }

    /// The stored batch numbers, boot by boot in ascending order.
    pub fn spans(&self) -> impl Iterator<Item = (Boot, Span)> {
        self.boots.iter().flat_map(|boot| boot.spans.all().map(|span| (boot.boot.0, *span)))
    }

    /// The same without the stored batch numbers, for a store that keeps these separately.
    #[must_use]
    pub fn without_spans(&self) -> Self {
        let boot = |state: &BootState| BootState {
            spans: Spans::default(),
            times: state.times.clone(),
            ..*state
        };
        Self {
            name: self.name.clone(),
            boots: self.boots.iter().map(boot).collect(),
            gone: self.gone.clone(),
            devices: self.devices.clone(),
            ..*self
        }
    }

    /// Sets the stored batch numbers. Boots that are not in the window have none.
    pub fn set_spans(&mut self, mut spans: impl FnMut(Boot) -> Vec<Span>) {
        self.boots.iter_mut().for_each(|state| state.spans = Spans::of(spans(state.boot.0)));
    }

    /// Whether a batch is stored.
    pub(crate) fn seen(&self, boot: Boot, seq: u64) -> Seen {
        match self.boots.iter().rev().find(|state| state.boot.0 == boot) {
            Some(state) if state.spans.contain(seq) => Seen::Before,
            Some(state) if seq < state.base => Seen::TooLate,
            Some(_) => Seen::New,
            None if self.gone(boot).is_some_and(|last| seq <= last) => Seen::TooLate,
            None => Seen::New,
        }
    }

    /// The last number of a boot that left the window; no batch up to it is accepted any more.
    fn gone(&self, boot: Boot) -> Option<u64> {
        let gone = self.gone.iter().rev().find(|gone| gone.boot().0 == boot);
        gone.map(PastBoot::last)
    }

    /// Records a stored batch; returns gaps for numbers that are given up with it.
    pub(crate) fn note(&mut self, stored: &Stored, limits: &Limits) -> Vec<Gap> {
        let Stored { boot, mark, samples, samples_rejected } = *stored;
        self.batches += 1;
        self.samples += samples;
        self.samples_rejected += samples_rejected;
        self.received = self.received.max(mark.received);
        let place = self.boots.iter().position(|state| state.boot.0 == boot);
        if place.is_none() {
            let base = self.gone(boot).map_or(0, |last| last.saturating_add(1));
            self.boots.push(BootState::new(BootText(boot), mark.received, base));
        }
        let place = place.unwrap_or(self.boots.len().saturating_sub(1));
        self.follow(place, &mark);
        let Some(state) = self.boots.get_mut(place) else { return Vec::new() };
        state.received = state.received.max(mark.received);
        state.spans.insert(mark);
        if let Some(instants) = mark.instants {
            // Other senders send what they measured, in its order.
            let ahead_us = if self.name.is_push() { ROWS_AHEAD_US } else { i64::MAX };
            state.times.insert(mark.seq, instants, ahead_us);
        }
        let mut given_up = state.spans.give_up(limits.missing_max);
        while self.boots.len() > limits.boots_max.max(1) {
            given_up.extend(self.forget(0));
        }
        self.lost(given_up, &[])
    }

    /// Takes the origin's clock from a boot's batch, if it is the newest of the leading boot: the one with
    /// the latest instants.
    /// The late spool of an earlier boot does not count. A boot with its clock set back counts once the other
    /// one is silent.
    fn follow(&mut self, place: usize, mark: &BatchMark) {
        let (Some(state), Some((_, last))) = (self.boots.get(place), mark.instants) else { return };
        if state.spans.last().is_some_and(|span| span.last >= mark.seq) {
            return;
        }
        let front = match &self.front {
            Some(front) => self.boots.iter().find(|state| state.boot == *front),
            None => self.boots.iter().rev().find(|other| other.boot != state.boot),
        };
        let counts = front.is_none_or(|front| {
            front.boot == state.boot
                || last > self.sealed
                || mark.received.since(front.received) > FRONT_US
        });
        if counts {
            self.sealed = last;
            self.clock_offset_us = last.since(mark.received);
            self.front = Some(state.boot);
        }
    }

    /// The last instant before this one with samples of another boot. Not simply the origin's last sample:
    /// `boot` may have sent its newest first.
    pub(crate) fn last_before(&self, boot: Boot, before: Timestamp) -> Option<Timestamp> {
        let others = self.boots.iter().filter(|state| state.boot.0 != boot);
        let ends = others.flat_map(|state| state.spans.ends()).filter(|end| *end < before);
        // Boots that left the window are remembered by the origin's last sample alone.
        let last = Some(self.sealed).filter(|last| *last < before);
        ends.max().or(last).filter(|last| *last >= Timestamp::YEAR_2000)
    }

    /// The batches of a boot that are missing before its first one here: since the last sample of another boot.
    /// `None` if there are none, or nothing is known about the time before: for example when a running agent
    /// moves to a new server.
    pub(crate) fn missing_first(&self, state: &BootState) -> Option<Missing> {
        let missing = state.spans.missing_before(state.base)?;
        let from = self.last_before(state.boot.0, missing.to);
        let from = from.or(state.acknowledged.as_ref().map(Acknowledged::before))?;
        Some(Missing { from, before: missing.after, ..missing })
    }

    /// Removes idle boots from the window; returns gaps for their missing batches.
    pub(crate) fn expire(&mut self, now: Timestamp, limits: &Limits) -> Vec<Gap> {
        let mut given_up = Vec::new();
        while let Some(place) =
            self.boots.iter().position(|state| now.since(state.received) > limits.window_us)
        {
            given_up.extend(self.forget(place));
        }
        self.lost(given_up, &[])
    }

    /// Whether it was idle for so long that it is removed.
    pub fn is_forgotten(&self, now: Timestamp) -> bool {
        let after_us = match &self.name {
            name if name.as_run().is_some() => RUN_FORGOTTEN_US,
            name if name.is_user_push() => USER_PUSH_FORGOTTEN_US,
            _ => FORGOTTEN_US,
        };
        now.since(self.received) > after_us
    }

    fn forget(&mut self, place: usize) -> Vec<Missing> {
        let mut state = self.boots.remove(place);
        let last = state.last().unwrap_or(u64::MAX);
        let first = self.missing_first(&state);
        self.gone.retain(|gone| *gone.boot() != state.boot);
        self.gone.push_back(PastBoot::Through { boot: state.boot, last });
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
        let first = first.into_iter().flat_map(|missing| state.parts(missing)).collect();
        [first, state.give_up()].concat()
    }

    /// Gaps for missing batches, with the cause "log damaged" where damage of the log explains them.
    pub(crate) fn lost(&self, missing: Vec<Missing>, damage: &[Received]) -> Vec<Gap> {
        let devices = self.gap_devices();
        let gap = |missing: &Missing, device: &DeviceId| Gap {
            origin: self.name.clone(),
            device: device.clone(),
            source: "".into(),
            from: missing.from,
            to: missing.to.max(missing.from),
            cause: missing.cause(damage),
            detail: format!("{} batches", missing.batches).into(),
        };
        missing.iter().flat_map(|one| devices.iter().map(|device| gap(one, device))).collect()
    }

    /// The devices that a gap of the whole origin concerns.
    fn gap_devices(&self) -> Vec<DeviceId> {
        if (1..=GAP_DEVICES_MAX).contains(&self.devices.len()) {
            return self.devices.iter().map(|device| device.0.clone()).collect();
        }
        device_named_like(&self.name).into_iter().collect()
    }

    /// Whether a gap of one device concerns another: it is the same, or the gap is for all devices of the origin.
    pub(crate) fn concerns(&self, gap_device: &DeviceId, device: &DeviceId) -> bool {
        gap_device == device
            || self.devices.len() > GAP_DEVICES_MAX
                && Some(gap_device) == device_named_like(&self.name).as_ref()
                && self.devices.contains(&DeviceText(device.clone()))
    }

    /// Records what was acknowledged, as far as this state of a restored store lacks it. Returns whether it lacks anything.
    pub(crate) fn lacks(&mut self, before: &Self) -> bool {
        let mut lacks = false;
        for known in &before.boots {
            let acknowledged =
                known.spans.acknowledged().filter(|one| known.last() == Some(one.last()));
            let Some(acknowledged) = acknowledged.or(known.acknowledged) else { continue };
            if self.gone(known.boot.0).is_some_and(|last| acknowledged.last() <= last) {
                continue;
            }
            let place = self.boots.iter().position(|state| state.boot == known.boot);
            if place.is_none() {
                self.boots.push(BootState::new(known.boot, known.received, known.base));
            }
            let place = place.unwrap_or(self.boots.len().saturating_sub(1));
            let Some(state) = self.boots.get_mut(place) else { continue };
            if state.last().is_none_or(|last| last < acknowledged.last()) {
                let stored = state.spans.last();
                let first = stored.map_or(state.base, |span| span.last.saturating_add(1));
                (state.acknowledged, lacks) = (Some(acknowledged.since(first)), true);
                state.times = known.times.clone();
                self.received = self.received.max(before.received);
            }
        }
        lacks
    }

    /// Records that it sends samples of a device.
    pub(crate) fn claim(&mut self, device: &DeviceId) {
        if self.devices.len() < OriginInfo::DEVICES_MAX {
            self.devices.insert(DeviceText(device.clone()));
        }
    }

    /// Records that it sends samples of the same devices as another state of it.
    pub(crate) fn claim_as(&mut self, other: &Self) {
        other.devices.iter().for_each(|device| self.claim(&device.0));
    }

    pub(crate) fn info(&self) -> OriginInfo {
        let boot = |state: &BootState| BootInfo {
            boot: state.boot.0,
            received: state.received,
            last_seq: state.spans.last().map_or(0, |span| span.last),
            missing: state.missing().map(|missing| missing.batches).sum(),
            instants: state.spans.instants(),
        };
        OriginInfo {
            origin: self.name.clone(),
            received: self.received,
            sealed: self.sealed,
            clock_offset_us: self.clock_offset_us,
            batches: self.batches,
            samples: self.samples,
            samples_rejected: self.samples_rejected,
            boots: self.boots.iter().map(boot).collect(),
            devices: self.devices.iter().map(|device| device.0.clone()).collect(),
        }
    }
}

/// The times of receipt between which records of the log were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// The last receipt before them.
    #[serde(with = "json::time")]
    pub from: Timestamp,
    /// The first receipt after them.
    #[serde(with = "json::time")]
    pub to: Timestamp,
}

impl Received {
    /// The gap of a damaged place of the log, if its origin is unknown.
    pub(crate) fn gap(&self) -> Option<Gap> {
        Some(Gap {
            origin: Origin::new(LOG).ok()?,
            device: DeviceId::new(LOG).ok()?,
            source: "".into(),
            from: self.from.min(self.to),
            to: self.to,
            cause: Cause::LogDamaged,
            detail: "batches received meanwhile; their origin is unknown".into(),
        })
    }
}

impl Missing {
    fn cause(&self, damage: &[Received]) -> Cause {
        let explained = damage.iter().any(|lost| self.is_explained_by(lost));
        if explained { Cause::LogDamaged } else { Cause::BatchesLost }
    }

    pub(crate) fn is_explained_by(&self, lost: &Received) -> bool {
        self.before <= lost.to && lost.from <= self.after
    }

    /// The same for batches before the first stored one.
    pub(crate) fn is_first_and_explained_by(&self, lost: &Received) -> bool {
        lost.from <= self.after && self.after.since(lost.to) <= DAMAGE_DELAY_US
    }
}

/// The device that represents all devices of an origin: that of a run, or one with the origin's name.
pub(crate) fn device_named_like(origin: &Origin) -> Option<DeviceId> {
    let name = origin.as_run().map_or(origin.as_str(), |(device, _)| device);
    DeviceId::new(&name.replace([',', '/'], ";")).ok()
}
