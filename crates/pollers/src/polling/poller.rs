//! What every protocol does: exchanges with one target.

use super::ipmi::SdrCache;
use super::reading::{Failure, Reading};
use super::snmp::{Snmp, SnmpTransport};
use super::{document, exporter, ipmi, modbus};
use crate::descriptions::{Description, Target};
use crate::protocols::Protocol;
use model::{DeviceId, Labels, Timestamp};
use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What an exchange is while it runs.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A target with its sessions. A target has one exchange at a time.
pub(crate) trait Poller: Send {
    /// Reads the metrics of `due` and adds what arrives to `exchange`, in any order. The caller may drop the future
    /// at any moment, when time is up: what is in `exchange` then counts, and the next exchange must work.
    fn exchange<'a>(
        &'a mut self,
        due: &'a [&'a Description],
        exchange: &'a mut Exchange,
    ) -> Running<'a>;

    /// Ends the sessions with the target.
    fn close(&mut self) -> Running<'_> {
        Box::pin(async {})
    }
}

/// Longer than any exchange.
const NEVER: Duration = Duration::from_secs(366 * 24 * 3600);

/// Requests to the services of one host at the same time, without a setting.
const HOST_EXCHANGES_MAX: u64 = 8;

/// What the pollers of all targets share.
pub(crate) struct Common {
    snmp: Arc<SnmpTransport>,
    /// Empty for a poller that stores nothing.
    pub(crate) sdr_cache: SdrCache,
    /// The exchanges with each host.
    pub(crate) hosts: HostLimits,
    /// The readings of all records of a BMC: one that begins ends another one.
    record_readings: HostLimits,
}

impl Default for Common {
    fn default() -> Self {
        Self::new(SdrCache::default(), HOST_EXCHANGES_MAX)
    }
}

impl Common {
    /// Of a poller that stores the records of BMCs' sensors.
    pub(crate) fn new(sdr_cache: SdrCache, host_exchanges_max: u64) -> Self {
        Self {
            snmp: Arc::default(),
            sdr_cache,
            hosts: HostLimits::new(host_exchanges_max),
            record_readings: HostLimits::new(1),
        }
    }
}

/// A limit of each host, for all its targets together.
pub(crate) struct HostLimits {
    most: usize,
    hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
}

impl HostLimits {
    fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS);
        Self { most: most.min(Semaphore::MAX_PERMITS), hosts: Mutex::default() }
    }

    /// The limit of a host. It is never closed.
    pub(crate) fn of(&self, name: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // Hosts that no target uses any more.
        if !hosts.contains_key(name) {
            hosts.retain(|_, host| Arc::strong_count(host) > 1);
        }
        let new = || Arc::new(Semaphore::new(self.most));
        Arc::clone(hosts.entry(name.to_owned()).or_insert_with(new))
    }
}

/// Opens a target. Nothing is sent.
pub(crate) fn open(target: &Arc<Target>, common: &Common) -> Box<dyn Poller> {
    match target.protocol {
        Protocol::Snmp => Box::new(Snmp::new(target, &common.snmp)),
        Protocol::Ipmi => {
            let bmc = format!("{}\n{}", target.host, target.port);
            let readings = common.record_readings.of(&bmc);
            Box::new(ipmi::Ipmi::new(target, &common.sdr_cache, readings))
        }
        Protocol::Prometheus => Box::new(exporter::Exporter::new(target)),
        Protocol::Json => {
            let host = common.hosts.of(&target.host);
            Box::new(document::Documents::new(target, host))
        }
        Protocol::Modbus => Box::new(modbus::Modbus::new(target)),
    }
}

/// The parts of a target, such as units or documents, in the order of an exchange: first those that answered, then the
/// others, each of these in its turn. One that is silent may need the whole exchange.
#[derive(Debug)]
pub(crate) struct Turns<K> {
    count: u64,
    /// The parts without an answer: the place of each, and the number of attempts.
    unanswered: BTreeMap<K, (Place, u32)>,
}

/// The place of a part in the order: its latest attempt, and the number of it among all.
pub(crate) type Place = (Attempt, u64);

/// The latest attempt of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attempt {
    /// It was answered, or there was none.
    #[default]
    Answered,
    /// The exchange ended before the answer: others may have needed its time.
    Cut,
    /// It failed, or had no answer in its time.
    Failed,
}

impl<K> Default for Turns<K> {
    fn default() -> Self {
        Self { count: 0, unanswered: BTreeMap::new() }
    }
}

impl<K: Ord> Turns<K> {
    /// The place of a part in the order.
    pub(crate) fn place<Q: Ord + ?Sized>(&self, part: &Q) -> Place
    where
        K: Borrow<Q>,
    {
        self.unanswered.get(part).map(|(place, _)| *place).unwrap_or_default()
    }

    /// Notes an attempt: the exchange may end before the answer. Returns whether it must end before the next tick of the
    /// target, for the values of the other parts: it is another one after a silent one. Some of them, in growing distances,
    /// may last as long as the timeout, for parts that answer that slowly.
    pub(crate) fn begin(&mut self, part: K) -> bool {
        self.count += 1;
        let (place, attempts) = self.unanswered.entry(part).or_default();
        (*place, *attempts) = ((Attempt::Cut, self.count), attempts.saturating_add(1));
        *attempts > 1 && (*attempts < 8 || !attempts.is_power_of_two())
    }

    /// Notes that an attempt failed.
    pub(crate) fn failed<Q: Ord + ?Sized>(&mut self, part: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some(((attempt, _), _)) = self.unanswered.get_mut(part) {
            *attempt = Attempt::Failed;
        }
    }

    /// Notes an answer.
    pub(crate) fn answered<Q: Ord + ?Sized>(&mut self, part: &Q)
    where
        K: Borrow<Q>,
    {
        self.unanswered.remove(part);
    }
}

/// What an exchange returned so far.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The instant of its samples: the start of the period, or its own if it is late.
    pub(crate) at: Timestamp,
    /// Time from this instant to its begin.
    pub(crate) after_start: Duration,
    begun: Instant,
    /// Of each description: the longest time from the start to its request, with which the sample has the instant of the start.
    pub(crate) on_time: Vec<Duration>,
    /// The instant of the sample of each description.
    instants: Vec<Timestamp>,
    /// How late it is.
    pub(crate) late: Duration,
    /// Time to the next tick of the target.
    pub(crate) next_tick: Duration,
    /// Until when it waits for what was silent before.
    retry_until: Instant,
    /// Values.
    pub(crate) readings: Vec<Reading>,
    /// What failed: index of the description, and why.
    pub(crate) failures: Vec<(usize, Failure)>,
    /// What is wrong but costs no requested value: a bad line of an exporter.
    pub(crate) warnings: Vec<String>,
    /// Errors that fail no description, of the device of the description at this place: lines that are no samples, and
    /// missing metrics of a list.
    pub(crate) other_errors: Vec<(usize, u32)>,
    /// Whether each description has its values, or a failure.
    is_settled: Vec<bool>,
    /// Whether no request was sent to the target.
    pub(crate) is_untried: bool,
    /// The first failures, which are earlier ones: no request was sent for their descriptions.
    pub(crate) untried: usize,
}

impl Exchange {
    /// An exchange of some descriptions.
    pub(crate) fn new(at: Timestamp, descriptions: usize) -> Self {
        Self {
            at,
            after_start: Duration::ZERO,
            begun: Instant::now(),
            on_time: vec![NEVER; descriptions],
            instants: vec![at; descriptions],
            late: Duration::ZERO,
            next_tick: NEVER,
            retry_until: Instant::now() + NEVER,
            readings: Vec::new(),
            failures: Vec::new(),
            warnings: Vec::new(),
            other_errors: Vec::new(),
            is_settled: vec![false; descriptions],
            is_untried: false,
            untried: 0,
        }
    }

    /// Its longest duration: the longest timeout of its descriptions, less the time by which it is late. One that lasts
    /// as long as its period must not delay the next.
    pub(crate) fn limit(&self, due: &[&Description]) -> Duration {
        let longest = due.iter().map(|one| one.timeout).max().unwrap_or(Duration::ZERO);
        longest - self.late.min(longest / 2)
    }

    /// Until when it waits for a part; `must_be_short` is that of [`Turns::begin`].
    pub(crate) fn deadline(&self, must_be_short: bool) -> Instant {
        if must_be_short { self.retry_until } else { Instant::now() + NEVER }
    }

    /// Whether no time remains for a part with this place in [`Turns`].
    pub(crate) fn is_over_for(&self, (latest, _): Place) -> bool {
        latest != Attempt::Answered && Instant::now() >= self.retry_until
    }

    /// Notes that the request for the descriptions at these places leaves now.
    pub(crate) fn send(&mut self, places: impl IntoIterator<Item = usize>) {
        let passed = self.after_start + self.begun.elapsed();
        let now = self.at.plus(i64::try_from(passed.as_micros()).unwrap_or(i64::MAX));
        for place in places {
            let on_time = self.on_time.get(place).copied().unwrap_or_default();
            if let Some(instant) = self.instants.get_mut(place) {
                *instant = if passed <= on_time { self.at } else { now };
            }
        }
    }

    /// The instant of the sample of the description at a place.
    pub(crate) fn instant(&self, place: usize) -> Timestamp {
        self.instants.get(place).copied().unwrap_or(self.at)
    }

    /// The latest instant of a sample.
    pub(crate) fn last_instant(&self) -> Timestamp {
        self.instants.iter().copied().max().unwrap_or(self.at)
    }

    /// Adds the value of the description at `place` of those due.
    pub(crate) fn value(&mut self, place: usize, due: &[&Description], labels: Labels, value: f64) {
        if let Some(description) = due.get(place) {
            let at = self.instant(place);
            self.readings.push(Reading::of(description, labels, at, value));
            self.settle(place);
        }
    }

    /// Adds the value of a counter that has wrapped: the value beyond the wrap, then the counter as the device shows it.
    /// No growth is computed from or to the NaN between them.
    pub(crate) fn wrapped_value(
        &mut self,
        place: usize,
        due: &[&Description],
        labels: Labels,
        (beyond, value): (f64, f64),
    ) {
        let Some(description) = due.get(place) else { return };
        let samples = [(0, beyond), (1, f64::NAN), (2, value)];
        for (micros, value) in samples {
            let at = self.instant(place).plus(micros);
            self.readings.push(Reading::of(description, labels.clone(), at, value));
        }
        self.settle(place);
    }

    /// The descriptions without a result, with their places.
    pub(crate) fn open<'a>(
        &self,
        due: &[&'a Description],
    ) -> impl Iterator<Item = (usize, &'a Description)> {
        let all = self.is_settled.iter().enumerate().zip(due);
        all.filter(|((_, is_settled), _)| !**is_settled).map(|((place, _), one)| (place, *one))
    }

    /// Marks a description as answered: its readings are added, or the device has no value now.
    pub(crate) fn settle(&mut self, place: usize) {
        if let Some(is_settled) = self.is_settled.get_mut(place) {
            *is_settled = true;
        }
    }

    /// Adds why the descriptions at these places have no values.
    pub(crate) fn fail_all(&mut self, places: &[usize], failure: &Failure) {
        places.iter().for_each(|place| self.fail(*place, failure.clone()));
    }

    /// Adds why the description at `place` has no value.
    pub(crate) fn fail(&mut self, place: usize, failure: Failure) {
        self.settle(place);
        self.failures.push((place, failure));
    }

    /// Counts errors that fail no description, of each device of the descriptions at these places of `due`.
    pub(crate) fn count_errors(&mut self, places: &[usize], due: &[&Description], errors: usize) {
        if errors == 0 {
            return;
        }
        let mut devices: Vec<&DeviceId> = Vec::new();
        for place in places {
            let Some(Description { device, .. }) = due.get(*place).copied() else { continue };
            if !devices.contains(&device) {
                devices.push(device);
                self.other_errors.push((*place, u32::try_from(errors).unwrap_or(u32::MAX)));
            }
        }
    }

    /// Adds a failure to the description at `place`, unless it has a result.
    pub(crate) fn fail_open(&mut self, place: usize, failure: &Failure) {
        if self.is_settled.get(place) == Some(&false) {
            self.fail(place, failure.clone());
        }
    }

    /// Adds an earlier failure to some descriptions, without an attempt.
    pub(crate) fn fail_untried(&mut self, places: impl Iterator<Item = usize>, failure: &Failure) {
        places.for_each(|place| self.fail(place, failure.clone()));
        self.untried = self.failures.len();
        self.is_untried = self.untried >= self.is_settled.len();
    }

    /// Adds a failure to all descriptions without a result.
    pub(crate) fn fail_rest(&mut self, failure: &Failure) {
        for (place, is_settled) in self.is_settled.iter_mut().enumerate() {
            if !std::mem::replace(is_settled, true) {
                self.failures.push((place, failure.clone()));
            }
        }
    }
}

/// Why a part that was silent before has no value again.
pub(crate) fn still_silent() -> Failure {
    Failure::timeout(
        "no answer until the next poll of its target; its request before had none in time",
    )
}

/// Why such a part was not requested: others of them needed the time.
pub(crate) fn waits_for_turn() -> Failure {
    Failure::timeout(
        "not requested: its request before had no answer in time, and other requests to its target needed the time",
    )
}

/// Runs an exchange until its limit. Each description then has its values or a failure.
pub(crate) async fn run(poller: &mut dyn Poller, due: &[&Description], exchange: &mut Exchange) {
    let limit = exchange.limit(due);
    // The rest is for the requests that follow it.
    exchange.retry_until = Instant::now() + limit.min(exchange.next_tick) * 19 / 20;
    let result = {
        let mut running = poller.exchange(due, exchange);
        // What a device sends must not end the polls of its target.
        let caught = std::future::poll_fn(|context| {
            catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context)))
                .map_or_else(|_| Poll::Ready(Err(())), |polled| polled.map(Ok))
        });
        tokio::time::timeout(limit, caught).await
    };
    exchange.fail_rest(&match result {
        Ok(Ok(())) => Failure::broken("the response does not contain it"),
        Ok(Err(())) => Failure::broken("the poller failed at this target; report its log"),
        Err(_) => Failure::timeout(format!("no complete answer within {} ms", limit.as_millis())),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;

    struct Defective;

    impl Poller for Defective {
        fn exchange<'a>(
            &'a mut self,
            due: &'a [&'a Description],
            exchange: &'a mut Exchange,
        ) -> Running<'a> {
            Box::pin(async {
                exchange.value(0, due, Labels::default(), 1.0);
                tokio::task::yield_now().await;
                panic!("a defect");
            })
        }
    }

    #[test]
    fn silent_parts_take_turns_after_those_that_answer() {
        let mut turns: Turns<String> = Turns::default();
        let mut first = Vec::new();
        for _ in 0..6 {
            let mut parts = ["a", "b", "c", "d"];
            parts.sort_by_key(|part| turns.place(*part));
            for part in parts {
                let is_silent = part == "b" || part == "c";
                if !is_silent {
                    turns.begin(part.to_owned());
                    turns.answered(part);
                    continue;
                }
                // It needs the rest of the exchange.
                first.push(part);
                assert_eq!(turns.begin(part.to_owned()), first.len() > 2);
                break;
            }
        }
        assert_eq!(first, ["b", "c", "b", "c", "b", "c"]);
        assert_eq!((turns.place("a"), turns.place("d")), (Place::default(), Place::default()));
        let long = (2..70).filter(|_| !turns.begin("b".to_owned())).count();
        assert_eq!(long, 4, "attempts 8, 16, 32 and 64");
        // One that had no time of its own comes before those that failed.
        turns.begin("a".to_owned());
        turns.failed("a");
        turns.begin("d".to_owned());
        assert!(turns.place("d") < turns.place("a") && turns.place("e") < turns.place("d"));
    }

    #[tokio::test]
    async fn a_panic_is_a_failure_and_costs_nothing_that_was_read() {
        let all = entries_of(
            "- {name: a, device_id: d, url: 'http://d/#a'}\n- {name: b, device_id: d, url: 'http://d/#b'}\n",
        );
        let due: Vec<&Description> = all.iter().collect();
        let mut exchange = Exchange::new(Timestamp(0), due.len());
        run(&mut Defective, &due, &mut exchange).await;
        assert_eq!(exchange.readings.len(), 1);
        let [(1, failure)] = &exchange.failures[..] else { panic!("{:?}", exchange.failures) };
        assert_eq!(failure.cause, model::Cause::SourceBroken);
    }
}
