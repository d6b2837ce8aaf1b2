//! Every known sender: what it sent, when, and which of its batches are stored.

use crate::answer::{BootInfo, OriginInfo};
use crate::json::{self, BootText};
use crate::settings::Settings;
use crate::window::{Mark, Missing, Spans};
use model::{Boot, Cause, DeviceId, Gap, Origin, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Boots that left the window and are remembered by name, so that a batch of theirs is not taken for new.
const GONE_MAX: usize = 1024;
/// An origin that sent nothing for so long is forgotten when the store is opened.
const FORGOTTEN_US: i64 = 90 * 24 * 60 * 60 * Timestamp::SECOND;
/// An origin with more devices than this has one gap under its own name instead of one for each.
const GAP_DEVICES_MAX: usize = 64;

/// A sender's place among those known; good as long as the process runs.
pub(crate) type OriginNumber = u32;

/// Whether a batch has been stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Not yet.
    New,
    /// It has.
    Before,
    /// Its boot has left the window: nobody knows.
    TooLate,
}

/// A sender.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OriginState {
    #[serde(deserialize_with = "json::name", serialize_with = "json::text")]
    pub(crate) name: Origin,
    #[serde(with = "json::time")]
    pub(crate) received: Timestamp,
    #[serde(with = "json::time")]
    pub(crate) sealed: Timestamp,
    pub(crate) clock_offset_us: i64,
    pub(crate) batches: u64,
    pub(crate) samples: u64,
    pub(crate) samples_refused: u64,
    boots: Vec<BootState>,
    gone: VecDeque<BootText>,
    devices: BTreeSet<DeviceText>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct BootState {
    boot: BootText,
    #[serde(with = "json::time")]
    received: Timestamp,
    spans: Spans,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct DeviceText(
    #[serde(deserialize_with = "json::name", serialize_with = "json::text")] DeviceId,
);

/// A stored batch, as its origin's books need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) boot: Boot,
    pub(crate) mark: Mark,
    pub(crate) samples: u64,
    pub(crate) samples_refused: u64,
}

impl OriginState {
    fn new(name: Origin) -> Self {
        Self {
            name,
            received: Timestamp(0),
            sealed: Timestamp(0),
            clock_offset_us: 0,
            batches: 0,
            samples: 0,
            samples_refused: 0,
            boots: Vec::new(),
            gone: VecDeque::new(),
            devices: BTreeSet::new(),
        }
    }

    /// Whether a batch has been stored.
    pub(crate) fn seen(&self, boot: Boot, seq: u64) -> Seen {
        match self.boots.iter().rev().find(|state| state.boot.0 == boot) {
            Some(state) if state.spans.contain(seq) => Seen::Before,
            Some(_) => Seen::New,
            None if self.gone.contains(&BootText(boot)) => Seen::TooLate,
            None => Seen::New,
        }
    }

    /// Notes a stored batch; returns gaps for numbers that are given up with it.
    pub(crate) fn note(&mut self, stored: &Stored, settings: &Settings) -> Vec<Gap> {
        let Stored { boot, mark, samples, samples_refused } = *stored;
        self.batches += 1;
        self.samples += samples;
        self.samples_refused += samples_refused;
        self.received = self.received.max(mark.received);
        let place = self.boots.iter().position(|state| state.boot.0 == boot);
        if place.is_none() {
            let (boot, received) = (BootText(boot), mark.received);
            self.boots.push(BootState { boot, received, spans: Spans::default() });
        }
        let newest = place.is_none_or(|place| place + 1 == self.boots.len());
        let place = place.unwrap_or(self.boots.len().saturating_sub(1));
        let Some(state) = self.boots.get_mut(place) else { return Vec::new() };
        if newest
            && state.spans.last().is_none_or(|span| span.last < mark.seq)
            && let Some((_, last)) = mark.instants
        {
            self.sealed = last;
            self.clock_offset_us = last.since(mark.received);
        }
        state.received = state.received.max(mark.received);
        state.spans.insert(mark);
        let mut given_up = state.spans.give_up(settings.holes_max);
        while self.boots.len() > settings.boots_max.max(1) {
            given_up.extend(self.forget(0));
        }
        self.lost(given_up, &[])
    }

    /// Lets boots without a batch for so long leave the window; returns gaps for what they never sent.
    fn expire(&mut self, now: Timestamp, settings: &Settings) -> Vec<Gap> {
        let mut given_up = Vec::new();
        while let Some(place) =
            self.boots.iter().position(|state| now.since(state.received) > settings.window_us)
        {
            given_up.extend(self.forget(place));
        }
        self.lost(given_up, &[])
    }

    /// Whether it sent nothing for so long that nobody asks for it any more.
    pub(crate) fn is_forgotten(&self, now: Timestamp) -> bool {
        now.since(self.received) > FORGOTTEN_US
    }

    fn forget(&mut self, place: usize) -> Vec<Missing> {
        let mut state = self.boots.remove(place);
        self.gone.push_back(state.boot);
        if self.gone.len() > GONE_MAX {
            self.gone.pop_front();
        }
        state.spans.give_up(0)
    }

    /// Gaps for missing batches. Those that the damaged places of the log explain say so.
    fn lost(&self, missing: Vec<Missing>, damage: &[Received]) -> Vec<Gap> {
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

    /// Whether a gap of this device concerns that one: the same, or all devices of the origin.
    fn concerns(&self, gap_device: &DeviceId, device: &DeviceId) -> bool {
        gap_device == device
            || self.devices.len() > GAP_DEVICES_MAX
                && Some(gap_device) == device_named_like(&self.name).as_ref()
                && self.devices.contains(&DeviceText(device.clone()))
    }

    /// Notes that it sends samples of a device.
    pub(crate) fn claim(&mut self, device: &DeviceId) {
        if self.devices.len() < OriginInfo::DEVICES_MAX {
            self.devices.insert(DeviceText(device.clone()));
        }
    }

    fn info(&self) -> OriginInfo {
        let boot = |state: &BootState| BootInfo {
            boot: state.boot.0,
            received: state.received,
            last_seq: state.spans.last().map_or(0, |span| span.last),
            missing: state.spans.missing().map(|missing| missing.batches).sum(),
        };
        OriginInfo {
            origin: self.name.clone(),
            received: self.received,
            sealed: self.sealed,
            clock_offset_us: self.clock_offset_us,
            batches: self.batches,
            samples: self.samples,
            samples_refused: self.samples_refused,
            boots: self.boots.iter().map(boot).collect(),
            devices: self.devices.iter().map(|device| device.0.clone()).collect(),
        }
    }
}

/// The times of receipt between which records of the log were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Received {
    #[serde(with = "json::time")]
    pub(crate) from: Timestamp,
    #[serde(with = "json::time")]
    pub(crate) to: Timestamp,
}

impl Missing {
    fn cause(&self, damage: &[Received]) -> Cause {
        let explains = |lost: &Received| self.before <= lost.to && lost.from <= self.after;
        if damage.iter().any(explains) { Cause::LogDamaged } else { Cause::BatchesLost }
    }
}

/// The device that stands for all of an origin's.
pub(crate) fn device_named_like(origin: &Origin) -> Option<DeviceId> {
    DeviceId::new(&origin.as_str().replace(',', ";")).ok()
}

/// All senders.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    list: Vec<OriginState>,
    by_name: HashMap<Origin, OriginNumber>,
    /// Damaged places of the log, newest last.
    pub(crate) damage: Vec<Received>,
}

impl Origins {
    pub(crate) fn new(list: Vec<OriginState>, damage: Vec<Received>) -> Self {
        let by_name = list.iter().zip(0..).map(|(state, n)| (state.name.clone(), n)).collect();
        Self { list, by_name, damage }
    }

    /// The number of a sender, which is given one if it has none and there is room.
    pub(crate) fn number(&mut self, name: &Origin, max: usize) -> Option<OriginNumber> {
        if let Some(number) = self.by_name.get(name) {
            return Some(*number);
        }
        let number = u32::try_from(self.list.len()).ok().filter(|_| self.list.len() < max)?;
        self.by_name.insert(name.clone(), number);
        self.list.push(OriginState::new(name.clone()));
        Some(number)
    }

    pub(crate) fn get(&self, number: OriginNumber) -> Option<&OriginState> {
        self.list.get(number as usize)
    }

    pub(crate) fn get_mut(&mut self, number: OriginNumber) -> Option<&mut OriginState> {
        self.list.get_mut(number as usize)
    }

    pub(crate) fn all(&self) -> &[OriginState] {
        &self.list
    }

    /// Lets old boots leave the window; returns gaps for what they never sent.
    pub(crate) fn expire(&mut self, now: Timestamp, settings: &Settings) -> Vec<Gap> {
        self.list.iter_mut().flat_map(|state| state.expire(now, settings)).collect()
    }

    /// What is known of each, ordered by name.
    pub(crate) fn infos(&self) -> Vec<OriginInfo> {
        let mut infos: Vec<_> = self.list.iter().map(OriginState::info).collect();
        infos.sort_by(|a, b| a.origin.cmp(&b.origin));
        infos
    }

    /// Gaps for batches that are missing now, in holes older than `grace_us`, but for those that gaps
    /// among `told` cover: their sender knows of them and said why.
    pub(crate) fn missing<'a>(
        &self,
        now: Timestamp,
        grace_us: i64,
        told: impl Iterator<Item = &'a Gap>,
    ) -> Vec<Gap> {
        let mut by_origin: HashMap<&Origin, Vec<&Gap>> = HashMap::new();
        for gap in told.filter(|gap| gap.source.is_empty()) {
            by_origin.entry(&gap.origin).or_default().push(gap);
        }
        let mut gaps = Vec::new();
        for state in &self.list {
            let told = by_origin.get(&state.name).map(Vec::as_slice).unwrap_or_default();
            let open = state.boots.iter().flat_map(|boot| boot.spans.missing());
            let open = open.filter(|missing| {
                now.since(missing.after) >= grace_us
                    && !told.iter().any(|gap| gap.from <= missing.from && gap.to >= missing.to)
            });
            gaps.extend(state.lost(open.collect(), &self.damage));
        }
        gaps
    }

    /// The gap as this device's, if it concerns it.
    pub(crate) fn concerning(&self, mut gap: Gap, device: &DeviceId) -> Option<Gap> {
        let state = self.by_name.get(&gap.origin).and_then(|number| self.get(*number));
        let concerned = match state {
            Some(state) => state.concerns(&gap.device, device),
            None => gap.device == *device,
        };
        concerned.then(|| {
            gap.device = device.clone();
            gap
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(boot: u8, seq: u64, at: i64) -> Stored {
        let instants = Some((Timestamp(at), Timestamp(at)));
        let mark = Mark { seq, instants, received: Timestamp(at + 5) };
        Stored { boot: Boot([boot; 16]), mark, samples: 2, samples_refused: 1 }
    }

    fn origins() -> Origins {
        let mut origins = Origins::default();
        let number = origins.number(&Origin::new("n1").unwrap(), 10).unwrap();
        let state = origins.get_mut(number).unwrap();
        state.claim(&DeviceId::new("n1").unwrap());
        for (seq, at) in [(0, 100), (1, 200), (4, 500)] {
            assert_eq!(state.note(&stored(1, seq, at), &Settings::default()), []);
        }
        origins
    }

    #[test]
    fn batches_are_known_again() {
        let origins = origins();
        let state = origins.get(0).unwrap();
        assert_eq!(state.seen(Boot([1; 16]), 1), Seen::Before);
        assert_eq!(state.seen(Boot([1; 16]), 2), Seen::New);
        assert_eq!(state.seen(Boot([2; 16]), 1), Seen::New);
        let info = &origins.infos()[0];
        assert_eq!((info.batches, info.samples, info.samples_refused), (3, 6, 3));
        assert_eq!((info.sealed, info.clock_offset_us), (Timestamp(500), -5));
        assert_eq!((info.boots[0].last_seq, info.boots[0].missing), (4, 2));
    }

    #[test]
    fn an_older_batch_does_not_move_the_clock() {
        let mut origins = origins();
        origins.get_mut(0).unwrap().note(&stored(1, 2, 300), &Settings::default());
        assert_eq!(origins.infos()[0].sealed, Timestamp(500));
    }

    #[test]
    fn a_hole_that_stays_is_a_gap_unless_its_sender_told_it() {
        let origins = origins();
        assert_eq!(origins.missing(Timestamp(506), 10, [].iter()), []);
        let gaps = origins.missing(Timestamp(515), 10, [].iter());
        assert_eq!(gaps.len(), 1);
        assert_eq!((gaps[0].from, gaps[0].to), (Timestamp(200), Timestamp(500)));
        assert_eq!(gaps[0].cause, Cause::BatchesLost);
        let told = Gap { cause: Cause::SpoolFull, ..gaps[0].clone() };
        assert_eq!(origins.missing(Timestamp(515), 10, [told].iter()), []);
    }

    #[test]
    fn what_the_log_lost_says_so() {
        let mut origins = origins();
        origins.damage.push(Received { from: Timestamp(205), to: Timestamp(505) });
        let gaps = origins.missing(Timestamp(515), 10, [].iter());
        assert_eq!(gaps[0].cause, Cause::LogDamaged);
    }

    #[test]
    fn a_boot_that_left_the_window_is_too_late_and_its_hole_is_a_gap() {
        let mut origins = origins();
        let settings = Settings { window_us: 1000, ..Settings::default() };
        assert_eq!(origins.expire(Timestamp(1505), &settings), []);
        let gaps = origins.expire(Timestamp(1506), &settings);
        assert_eq!((gaps.len(), gaps[0].from), (1, Timestamp(200)));
        let state = origins.get(0).unwrap();
        assert_eq!(state.seen(Boot([1; 16]), 7), Seen::TooLate);
        assert_eq!(state.seen(Boot([3; 16]), 7), Seen::New);
    }

    #[test]
    fn boots_are_bounded() {
        let mut origins = origins();
        let settings = Settings { boots_max: 2, ..Settings::default() };
        let state = origins.get_mut(0).unwrap();
        assert_eq!(state.note(&stored(2, 0, 600), &settings), []);
        assert_eq!(state.note(&stored(3, 0, 700), &settings).len(), 1);
        assert_eq!(state.seen(Boot([1; 16]), 0), Seen::TooLate);
    }

    #[test]
    fn the_books_come_back() {
        let origins = origins();
        let text = serde_json::to_string(origins.all()).unwrap();
        let again = Origins::new(serde_json::from_str(&text).unwrap(), Vec::new());
        assert_eq!(again.infos(), origins.infos());
    }

    #[test]
    fn origins_are_bounded() {
        let mut origins = origins();
        assert_eq!(origins.number(&Origin::new("n2").unwrap(), 1), None);
        assert_eq!(origins.number(&Origin::new("n1").unwrap(), 1), Some(0));
    }
}
