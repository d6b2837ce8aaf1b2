//! Gaps and job events that wait until a batch carries them.

use model::{Batch, Cause, DeviceId, Gap, JobEvent, Origin, Timestamp};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of waiting gaps. Above it, the two oldest of one source and cause are merged.
const WAITING_MAX: usize = 4096;
/// Maximum number of waiting job events. Above it, the oldest is dropped. The next start reports it again.
const JOBS_MAX: usize = 16_384;

/// A gap that starts before this instant has an unknown start, see [`PendingEvents::add_down`]: no period is longer than a day.
const UNKNOWN_START: Timestamp = Timestamp(86_400_000_000);

/// Gaps and job events that wait for a batch.
#[derive(Debug)]
pub struct PendingEvents {
    origin: Origin,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    devices: Vec<DeviceId>,
    waiting: VecDeque<Gap>,
    jobs: VecDeque<JobEvent>,
    /// Start of the first gap of each batch that has gaps and is on its way to the encoder thread.
    carried: VecDeque<Timestamp>,
    /// Instant from which samples or gaps are still to come, if the caller states it.
    complete_until: Option<Timestamp>,
}

impl PendingEvents {
    /// Creates an empty set of an origin with one device.
    pub fn new(origin: Origin, device: DeviceId) -> Self {
        Self::of_devices(origin, vec![device])
    }

    /// Creates an empty set of an origin with these devices.
    pub fn of_devices(origin: Origin, devices: Vec<DeviceId>) -> Self {
        let state = State { devices, ..State::default() };
        Self { origin, state: Mutex::new(state) }
    }

    /// Replaces the devices. Gaps of earlier ones that wait are sent.
    pub fn set_devices(&self, devices: Vec<DeviceId>) {
        self.state().devices = devices;
    }

    /// Adds a device.
    pub fn add_device(&self, device: DeviceId) {
        self.state().devices.push(device);
    }

    fn devices(&self) -> Vec<DeviceId> {
        self.state().devices.clone()
    }

    /// The origin of the batches.
    pub(crate) const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Notes that samples of `source` between two instants are missing, of every device. An empty `source` means all
    /// sources.
    pub fn add(
        &self,
        source: &str,
        (from, to): (Timestamp, Timestamp),
        cause: Cause,
        detail: &str,
    ) {
        for device in &self.devices() {
            self.put_of(device, source, (from, to), cause, detail);
        }
    }

    fn put_of(
        &self,
        device: &DeviceId,
        source: &str,
        (from, to): (Timestamp, Timestamp),
        cause: Cause,
        detail: &str,
    ) {
        let (origin, device) = (self.origin.clone(), device.clone());
        let (source, detail) = (source.into(), detail.into());
        self.put(Gap { origin, device, source, from, to, cause, detail });
    }

    /// Notes the time in which no program ran: from the end of what an earlier start kept to the first tick.
    /// Without a spool, or with a new one, that end is unknown. The gap then starts one period after 1970, which only
    /// states the period. The store moves the start to its last batch if that gap is longer than the period.
    pub fn add_down(&self, kept_until: Option<Timestamp>, first: Timestamp, period: Duration) {
        for device in &self.devices() {
            self.add_down_of(device, kept_until, first, period, "");
        }
    }

    /// The same for one device with a period of its own. Returns the instant from which samples or gaps of it follow.
    pub fn add_down_of(
        &self,
        device: &DeviceId,
        kept_until: Option<Timestamp>,
        first: Timestamp,
        period: Duration,
        detail: &str,
    ) -> Timestamp {
        let period = i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
        let from = kept_until.unwrap_or(Timestamp(period));
        if first.since(from) <= period {
            return from.min(first);
        }
        let cause = match self.origin.is_poller_group() {
            true => Cause::PollerDown,
            false => Cause::AgentDown,
        };
        self.put_of(device, "", (from, first), cause, detail);
        first
    }

    /// Notes a gap.
    pub fn put(&self, gap: Gap) {
        log::debug!(
            "gap: {} of {}, from {} to {}: {}",
            gap.cause.words(),
            if gap.source.is_empty() { "every source" } else { &gap.source },
            gap.from,
            gap.to,
            gap.detail
        );
        let waiting = &mut self.state().waiting;
        // A long gap is reported in adjacent pieces. They merge into one gap.
        let touches = |old: &&mut Gap| {
            (&old.source, old.cause, &old.device) == (&gap.source, gap.cause, &gap.device)
                && old.to == gap.from
        };
        if let Some(old) = waiting.iter_mut().rev().find(touches) {
            old.to = gap.to;
            old.detail = gap.detail;
            return;
        }
        if waiting.len() >= WAITING_MAX {
            merge_two(waiting);
        }
        waiting.push_back(gap);
    }

    /// Notes that a job started or ended.
    pub fn put_job(&self, event: JobEvent) {
        let mut state = self.state();
        if state.jobs.len() >= JOBS_MAX {
            log::warn!("too many job events wait for the server; the oldest was dropped");
            state.jobs.pop_front();
        }
        state.jobs.push_back(event);
    }

    /// Moves gaps and events into a batch on its way to the encoder thread, oldest first and up to the wire's limits.
    pub(crate) fn take(&self, batch: &mut Batch) {
        let mut state = self.state();
        let count = state.waiting.len().min(wire::GAPS_MAX);
        batch.gaps.extend(state.waiting.drain(..count));
        let count = state.jobs.len().min(wire::JOBS_MAX);
        batch.jobs.extend(state.jobs.drain(..count));
        if let Some(first) = batch.gaps.iter().map(|gap| gap.from).min() {
            state.carried.push_back(first);
        }
    }

    /// Takes back the gaps and events of the last batch, because the queue rejected it.
    pub(crate) fn take_back(&self, batch: &mut Batch) {
        if !batch.gaps.is_empty() {
            self.state().carried.pop_back();
        }
        self.put_all(std::mem::take(&mut batch.gaps), std::mem::take(&mut batch.jobs));
    }

    /// Restores the gaps and events of a lost batch.
    pub(crate) fn put_all(&self, gaps: Vec<Gap>, jobs: Vec<JobEvent>) {
        gaps.into_iter().for_each(|gap| self.put(gap));
        jobs.into_iter().for_each(|event| self.put_job(event));
    }

    /// Records that a batch with gaps has reached the encoder thread.
    pub(crate) fn arrived(&self) {
        self.state().carried.pop_front();
    }

    /// States the instant from which samples or gaps are still to come, whatever later ones are kept.
    pub fn set_complete_until(&self, until: Option<Timestamp>) {
        self.state().complete_until = until;
    }

    /// Start of the earliest gap that is not yet kept, or an earlier instant from which anything is still to come.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        let state = self.state();
        let waiting = state.waiting.iter().map(|gap| gap.from);
        waiting.chain(state.carried.iter().copied()).chain(state.complete_until).min()
    }

    /// Whether none waits.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.jobs.is_empty()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether samples are known to be missing: not at the first start of a program, which kept nothing before.
pub(crate) fn is_known(gap: &Gap) -> bool {
    !gap.cause.is_down() || gap.from > UNKNOWN_START
}

/// Merges the oldest gap with the next one of its source and cause, or with the next gap of any kind if there is
/// none. A gap that is too wide is better than a missing one.
fn merge_two(waiting: &mut VecDeque<Gap>) {
    let Some(oldest) = waiting.pop_front() else { return };
    let alike =
        waiting.iter_mut().find(|gap| (&gap.source, gap.cause) == (&oldest.source, oldest.cause));
    match alike {
        Some(gap) => gap.from = gap.from.min(oldest.from),
        None => {
            if let Some(next) = waiting.front_mut() {
                next.source = "".into();
                next.from = next.from.min(oldest.from);
                next.to = next.to.max(oldest.to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes() -> PendingEvents {
        PendingEvents::new(Origin::new("n").unwrap(), DeviceId::new("n").unwrap())
    }

    fn taken(notes: &PendingEvents) -> Vec<Gap> {
        let mut all = Vec::new();
        while !notes.is_empty() {
            let mut batch = crate::batches::seal::tests::batch(0);
            notes.take(&mut batch);
            notes.arrived();
            assert!(batch.gaps.len() <= wire::GAPS_MAX);
            all.append(&mut batch.gaps);
        }
        all
    }

    #[test]
    fn pieces_that_touch_become_one() {
        let notes = notes();
        notes.add("x", (Timestamp(1), Timestamp(2)), Cause::SourceTimeout, "a");
        notes.add("y", (Timestamp(1), Timestamp(2)), Cause::SourceTimeout, "a");
        notes.add("x", (Timestamp(2), Timestamp(5)), Cause::SourceTimeout, "b");
        notes.add("x", (Timestamp(7), Timestamp(8)), Cause::SourceTimeout, "c");
        let all = taken(&notes);
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].from, all[0].to, &*all[0].detail), (Timestamp(1), Timestamp(5), "b"));
        assert!(notes.is_empty());
    }

    #[test]
    fn a_loss_is_a_gap_of_every_device() {
        let devices = ["pdu-1", "pdu-2"].map(|name| DeviceId::new(name).unwrap());
        let origin = Origin::new("poller-a/group-0").unwrap();
        let notes = PendingEvents::of_devices(origin, devices[..1].to_vec());
        notes.add_device(devices[1].clone());
        notes.add("", (Timestamp(1), Timestamp(2)), Cause::SpoolFull, "");
        let of: Vec<_> = taken(&notes).into_iter().map(|gap| gap.device).collect();
        assert_eq!(of, devices);
    }

    #[test]
    fn a_first_start_is_no_known_gap() {
        let day = Duration::from_secs(86_400);
        for (kept_until, known) in
            [(None, false), (Some(Timestamp::from_seconds(1_700_000_000)), true)]
        {
            let notes = notes();
            notes.add_down(kept_until, Timestamp::from_seconds(1_767_706_500), day);
            let all = taken(&notes);
            assert_eq!((all.len(), is_known(&all[0])), (1, known), "{all:?}");
        }
    }

    #[test]
    fn bounded_without_losing_an_instant() {
        let notes = notes();
        for i in 0..3 * i64::try_from(WAITING_MAX).unwrap() {
            notes.add("x", (Timestamp(10 * i), Timestamp(10 * i + 1)), Cause::SourceBroken, "");
        }
        let all = taken(&notes);
        assert_eq!(all.len(), WAITING_MAX);
        assert!(all.iter().any(|gap| gap.from == Timestamp(0)));
    }

    #[test]
    fn what_nobody_keeps_yet_holds_back_how_far_everything_is_kept() {
        let notes = notes();
        assert_eq!(notes.earliest(), None);
        notes.add("x", (Timestamp(5), Timestamp(6)), Cause::SourceBroken, "");
        let mut batch = crate::batches::seal::tests::batch(0);
        notes.take(&mut batch);
        assert_eq!(notes.earliest(), Some(Timestamp(5)));
        notes.take_back(&mut batch);
        assert_eq!(notes.earliest(), Some(Timestamp(5)));
        notes.take(&mut batch);
        notes.arrived();
        assert_eq!(notes.earliest(), None);
        notes.set_complete_until(Some(Timestamp(4)));
        assert_eq!(notes.earliest(), Some(Timestamp(4)));
        notes.set_complete_until(None);
        assert_eq!(notes.earliest(), None);
    }
}
