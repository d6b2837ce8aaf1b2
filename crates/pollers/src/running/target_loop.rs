//! The exchanges with one target, each at its instant.

use super::demand::{Demand, Promotion};
use super::limits::exchange_limit::ExchangeLimit;
use super::limits::hash_file::delete_old;
use super::limits::series_limit::SeriesLimit;
use super::limits::stated_samples::StatedSamples;
use super::limits::text_limit::TextLimit;
use super::outages::Outages;
use super::poll_metrics::{PollMetrics, PollValue};
use super::problem_log::{ProblemLog, problems};
use super::rejections::Rejections;
use super::schedule::{Due, Schedule, on_time_us};
use crate::descriptions::{Description, Rare, Target};
use crate::polling::{self, Common, Exchange, Failure, Poller, Reading, SdrCache};
use crate::protocols::Protocol;
use crate::sending::{CompleteUntil, Group, Groups, Missing, chance};
use config::PollerSettings;
use delivery::wall;
use model::{Cause, DeviceId, Timestamp};
use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Longest sleep: a clock that is set forward is noticed by then.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// The folder of the records of BMCs' sensors, beside the groups' spools.
const SDR_FOLDER: &str = "sdr";
/// The folder of the samples of exporters that state their instants.
const STATED_FOLDER: &str = "stated";
/// The folder of the texts of targets.
const TEXTS_FOLDER: &str = "texts";
/// Longest time to complete an exchange, and to end the sessions with a target, at the end.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// What the loops of all targets share.
pub(super) struct Shared {
    pub(super) common: Common,
    pub(super) groups: Groups,
    demand: watch::Receiver<Arc<Demand>>,
    exchanges: ExchangeLimit,
    /// The folder of samples with stated instants.
    stated_folder: Option<PathBuf>,
    texts_folder: Option<PathBuf>,
    /// Makes numbers of targets.
    hasher: RandomState,
}

impl Shared {
    pub(super) fn new(
        groups: Groups,
        demand: watch::Receiver<Arc<Demand>>,
        limits: &PollerSettings,
    ) -> Self {
        let sdr_cache = SdrCache::new(groups.folder().map(|folder| folder.join(SDR_FOLDER)));
        let folder = |name| groups.folder().map(|folder| folder.join(name));
        let (stated_folder, texts_folder) = (folder(STATED_FOLDER), folder(TEXTS_FOLDER));
        [&stated_folder, &texts_folder].into_iter().flatten().for_each(|folder| delete_old(folder));
        Self {
            common: Common::new(sdr_cache, limits.host_exchanges_max),
            groups,
            demand,
            exchanges: ExchangeLimit::new(limits.exchanges_max),
            stated_folder,
            texts_folder,
            hasher: RandomState::new(),
        }
    }
}

/// The entries of a target.
#[derive(Clone, Default)]
pub(super) struct TargetEntries {
    pub(super) descriptions: Vec<Arc<Description>>,
    /// Number of targets before it with the same address: they differ in the user or the session.
    pub(super) nth_of_address: usize,
}

/// What a loop starts with.
pub(super) struct LoopStart {
    pub(super) target: Arc<Target>,
    /// Whether the poller starts.
    pub(super) is_first: bool,
    /// The instant of the latest exchange of the loop before, in microseconds; 0 for none.
    pub(super) polled: Arc<AtomicI64>,
}

/// Polls a target until `end` changes, or until it has no entries any more.
pub(super) async fn follow(
    LoopStart { target, is_first, polled }: LoopStart,
    mut entries: watch::Receiver<TargetEntries>,
    shared: Arc<Shared>,
    mut end: watch::Receiver<bool>,
) {
    let mut demand = shared.demand.clone();
    let poller = polling::open(&target, &shared.common);
    let first = entries.borrow().descriptions.first().map(|one| chance(&one.device));
    // In a box, as the exchange is: the task of a target that waits then needs little memory, and they are many.
    let mut follower = Box::new(TargetLoop {
        schedule: Schedule::new(first.unwrap_or_default()),
        outages: Outages::new(),
        rejections: Rejections::default(),
        metrics: PollMetrics::new(wall()),
        texts: TextLimit::default(),
        series: SeriesLimit::default(),
        stated: StatedSamples::new(shared.stated_folder.as_deref(), &target),
        host: shared.common.hosts.of(&target.host),
        log: ProblemLog::default(),
        is_on_demand: false,
        demand_end: None,
        number: shared.hasher.hash_one(&target),
        is_start: is_first,
        is_cut: false,
        failed_since: Some(polled.load(Ordering::Relaxed)).filter(|at| *at > 0).map(Timestamp),
        polled,
        target,
        descriptions: Vec::new(),
        periods: Vec::new(),
        shared,
        poller,
    });
    let (mut changed, mut is_over) = (true, false);
    while !is_over {
        let now = wall();
        if changed || follower.demand_end.is_some_and(|end| end <= now) {
            let TargetEntries { descriptions, nth_of_address } =
                entries.borrow_and_update().clone();
            let demand = Arc::clone(&demand.borrow_and_update());
            follower.metrics.set_target(&follower.target, nth_of_address);
            follower.set(descriptions, &demand, now);
        }
        let next = follower.demand_end.unwrap_or(Timestamp(i64::MAX));
        let wait_us = follower.schedule.next().min(next).since(wall());
        let wait = Duration::from_micros(u64::try_from(wait_us).unwrap_or(0)).min(SLEEP_MAX);
        changed = tokio::select! {
            _ = end.changed() => break,
            more = entries.changed() => {
                is_over = more.is_err();
                true
            }
            // The thread that sends them ends the program if it fails.
            Ok(()) = demand.changed() => follower.is_concerned(&demand.borrow()),
            () = tokio::time::sleep(wait) => false,
        };
        let is_due = !changed && follower.schedule.next() <= wall();
        is_over |= is_due && follower.exchange_or_end(&mut end).await;
    }
    follower.end().await;
}

struct TargetLoop {
    target: Arc<Target>,
    number: u64,
    /// Whether its first descriptions are those with which the poller starts.
    is_start: bool,
    /// Whether its last exchange did not complete.
    is_cut: bool,
    /// The instant of its latest exchange, for the loop that follows a panic.
    polled: Arc<AtomicI64>,
    /// After a panic: the latest exchange before.
    failed_since: Option<Timestamp>,
    descriptions: Vec<Arc<Description>>,
    /// The period of each description; `None` for one that is not polled now.
    periods: Vec<Option<Duration>>,
    shared: Arc<Shared>,
    schedule: Schedule,
    outages: Outages,
    rejections: Rejections,
    metrics: PollMetrics,
    texts: TextLimit,
    series: SeriesLimit,
    stated: StatedSamples,
    host: Arc<Semaphore>,
    poller: Box<dyn Poller>,
    /// The failure that the log states, and since when.
    log: ProblemLog,
    /// Whether promotions, jobs or a change of the server have an effect.
    is_on_demand: bool,
    /// When the next promotion or change ends, if it may have an effect.
    demand_end: Option<Timestamp>,
}

impl TargetLoop {
    /// Runs an exchange. Returns whether polling ends; the exchange then had a moment to complete.
    async fn exchange_or_end(&mut self, end: &mut watch::Receiver<bool>) -> bool {
        let is_complete = {
            let mut exchange = Box::pin(self.exchange());
            tokio::select! {
                _ = end.changed() => tokio::time::timeout(CLOSE_MAX, exchange).await.is_ok(),
                () = &mut exchange => return false,
            }
        };
        self.is_cut = !is_complete;
        true
    }

    /// Replaces the descriptions and their promotions. An unchanged description loses no tick.
    fn set(&mut self, mut new: Vec<Arc<Description>>, demand: &Demand, now: Timestamp) {
        let periods: Vec<_> = new.iter_mut().map(|one| period(one, demand, now)).collect();
        let mut is_free = vec![true; self.descriptions.len()];
        let mut before = Vec::new();
        for one in &new {
            let mut places = self.descriptions.iter().zip(&is_free).enumerate();
            let place = places.find(|(_, (old, is_free))| **is_free && old.is_like(one));
            let place = place.map(|(place, _)| place);
            if let Some(is_free) = place.and_then(|place| is_free.get_mut(place)) {
                *is_free = false;
            }
            before.push(place);
        }
        self.rejections.set(&before);
        let scheduled: Vec<_> = before.iter().copied().zip(periods.iter().copied()).collect();
        self.schedule.set(&scheduled, now);
        let was_polled = |place: &usize| self.periods.get(*place).is_some_and(Option::is_some);
        let polled: Vec<_> = new
            .iter()
            .zip(&scheduled)
            .map(|(one, (place, period))| {
                let is_polled = period.is_some();
                (&**one, place.filter(was_polled).filter(|_| is_polled), is_polled)
            })
            .collect();
        let is_start = std::mem::take(&mut self.is_start);
        let groups = &self.shared.groups;
        let begin = |device: &DeviceId| groups.begun(device).filter(|_| is_start).unwrap_or(now);
        let missing = self.outages.set(&self.descriptions, &polled, now, begin);
        self.miss(missing);
        self.set_complete(false);
        let changed =
            self.metrics.set_periods(new.iter().map(|one| &**one).zip(periods.iter().copied()));
        store(&self.shared.groups, &changed, now);
        (self.descriptions, self.periods) = (new, periods);
        self.miss_since_panic(now);
        self.set_complete(true);
        self.is_on_demand = self
            .descriptions
            .iter()
            .any(|one| one.is_on_demand() || demand.period(one, now).is_some());
        self.demand_end = self.is_on_demand.then(|| demand.next_end(now)).flatten();
    }

    /// Whether a new demand changes anything, or ends what another one changed.
    fn is_concerned(&self, demand: &Demand) -> bool {
        let now = wall();
        self.is_on_demand || self.descriptions.iter().any(|one| demand.period(one, now).is_some())
    }

    /// States until when the samples and gaps of its devices are complete, or that it returns nothing of them any more.
    fn set_complete(&self, is_polled: bool) {
        let next = self.schedule.next_start().plus(-1);
        for of_device in self.descriptions.chunk_by(|one, next| one.device == next.device) {
            let Some(device) = of_device.first().map(|one| &one.device) else { continue };
            let reported = self.outages.reported(&self.descriptions, device);
            let at = reported.map_or(next, |reported| reported.min(next));
            let until = CompleteUntil { at, is_failing: reported.is_some() };
            let until = is_polled.then_some(until);
            self.shared.groups.of(device, |group| group.set_complete(device, self.number, until));
        }
    }

    /// After a panic, the devices have no samples since the latest exchange.
    fn miss_since_panic(&mut self, now: Timestamp) {
        let Some(since) = self.failed_since.take() else { return };
        let devices: BTreeSet<&DeviceId> =
            self.descriptions.iter().map(|one| &one.device).collect();
        let missing = devices.into_iter().map(|device| Missing {
            device: device.clone(),
            source: self.target.protocol.to_string(),
            span: (since, now),
            cause: Cause::SourceBroken,
            detail: "the polls of the target failed; report the log of the poller".to_owned(),
        });
        self.miss(missing.collect());
    }

    fn miss(&self, missing: Vec<Missing>) {
        for one in missing {
            let device = one.device.clone();
            let target = (&*self.target, self.number);
            self.shared.groups.of(&device, |group| group.miss_of_target(target, one));
        }
    }

    /// The exchange of what is due.
    fn open_exchange(&self, taken: &Due, places: &[usize]) -> Exchange {
        let micros = |micros: i64| Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        let on_time = |place: &usize| {
            let period = self.periods.get(*place).copied().flatten().unwrap_or_default();
            micros(on_time_us(i64::try_from(period.as_micros()).unwrap_or(i64::MAX)))
        };
        let mut exchange = Exchange::new(taken.at, places.len());
        exchange.late = micros(taken.late_us);
        exchange.after_start = micros(wall().since(taken.at));
        exchange.on_time = places.iter().map(on_time).collect();
        exchange.next_tick = micros(self.schedule.next_tick().since(wall()));
        exchange
    }

    async fn exchange(&mut self) {
        // The semaphore is never closed.
        let _of_host = Arc::clone(&self.host).acquire_owned().await.ok();
        let _of_all = self.shared.exchanges.begin(self.schedule.is_unanswered(wall())).await;
        let taken = self.schedule.take(wall());
        let places: Vec<usize> = taken.places.iter().map(|(place, _)| *place).collect();
        let due: Vec<&Description> =
            places.iter().filter_map(|place| Some(&**self.descriptions.get(*place)?)).collect();
        if due.is_empty() {
            return;
        }
        let mut exchange = self.open_exchange(&taken, &places);
        let begun = Instant::now();
        if let Some(rejection) = self.rejections.holding(wall()) {
            // The paths of a service may have permissions of their own; a BMC has one session.
            let has_paths = self.target.protocol != Protocol::Ipmi;
            let may_try = |place: usize| {
                self.rejections.is_accepted(place) || has_paths && self.rejections.may_try(place)
            };
            let is_held = |nth: &usize| places.get(*nth).is_some_and(|place| !may_try(*place));
            exchange.fail_untried((0..due.len()).filter(is_held), rejection);
        }
        if !exchange.is_untried {
            polling::run(&mut *self.poller, &due, &mut exchange).await;
            let (accepted, rejected) = attempts(&self.target, &places, &exchange);
            self.rejections.tried(&accepted, &rejected, wall());
        }
        let took = begun.elapsed().as_secs_f64();
        let failed: HashSet<usize> = exchange.failures.iter().map(|(nth, _)| *nth).collect();
        let has_replied = failed.len() < due.len() || exchange.failures.iter().any(is_reply);
        let tried: Vec<(usize, bool)> =
            places.iter().enumerate().map(|(nth, place)| (*place, failed.contains(&nth))).collect();
        let file = (self.shared.texts_folder.as_deref(), &*self.target);
        let moved = self.texts.apply(&mut exchange.readings, exchange.at, file).await;
        self.metrics.share_texts(moved);
        if self.target.protocol == Protocol::Prometheus {
            let Shared { groups, hasher, .. } = &*self.shared;
            let admit = |one: &Reading| {
                let name = hasher.hash_one(&one.metric);
                groups.of(&one.device, |group| group.admit_name(self.number, name)) == Some(true)
            };
            for (missing, count) in self.series.apply(&mut exchange.readings, exchange.at, admit) {
                self.metrics.reject_series(&missing.device, count);
                exchange.warnings.push(missing.detail.clone());
                self.miss(vec![missing]);
            }
        }
        self.stated.retain_new(&mut exchange.readings, exchange.at).await;
        let missing = self.outages.update(&self.descriptions, &taken.places, &exchange);
        let late = taken.late_us as f64 / 1e6;
        let polls = self.metrics.values(&due, &exchange, (took, late));
        for readings in exchange.readings.chunk_by(|one, next| one.device == next.device) {
            let Some(first) = readings.first() else { continue };
            let add = |group: &mut Group| readings.iter().for_each(|one| group.add(one));
            self.shared.groups.of(&first.device, add);
        }
        store(&self.shared.groups, &polls, exchange.at);
        self.miss(missing);
        self.set_complete(true);
        self.polled.store(exchange.last_instant().0, Ordering::Relaxed);
        self.schedule.sampled(exchange.last_instant());
        self.schedule.answered(tried.into_iter(), has_replied, wall());
        let problems = problems(&due, &exchange);
        self.log.exchanged(&self.target, problems, self.outages.is_empty(), exchange.at);
    }

    async fn end(&mut self) {
        let missing = self.outages.end(&self.descriptions, wall());
        self.miss(missing);
        if !self.is_cut {
            self.set_complete(false);
        }
        self.stated.write().await;
        self.texts.write((self.shared.texts_folder.as_deref(), &self.target)).await;
        tokio::time::timeout(CLOSE_MAX, self.poller.close()).await.ok();
    }
}

/// Stores values about polling.
fn store(groups: &Groups, values: &[PollValue<'_>], at: Timestamp) {
    for PollValue { device, metric, labels, start, value } in values {
        let device: &DeviceId = device;
        groups.of(device, |group| group.add_value(at, (device, metric, labels), *start, *value));
    }
}

/// The period of a description with what is demanded of it; `None` if it is not polled now.
fn period(description: &mut Arc<Description>, demand: &Demand, now: Timestamp) -> Option<Duration> {
    let promotion = demand.of(description, now);
    let Description { period, is_optional, .. } = **description;
    let Rare { period_promoted, period_idle, .. } = *description.rare();
    let period = period_idle.filter(|_| demand.is_idle(description)).unwrap_or(period);
    let changed = demand.period(description, now);
    let (period, period_promoted) = (changed.unwrap_or(period), changed.or(period_promoted));
    let only = match (&promotion, is_optional) {
        (Promotion::Metrics(only), true) => Some(only.clone()),
        _ => None,
    };
    if only.is_some() || description.rare().only.is_some() {
        let rare = Rare { only, ..description.rare().clone() };
        Arc::make_mut(description).set_rare(rare);
    }
    match promotion {
        Promotion::None if is_optional => None,
        Promotion::None => Some(period),
        // Its other metrics keep their period.
        Promotion::Metrics(_) if !is_optional => Some(period),
        Promotion::Whole | Promotion::Metrics(_) => Some(period_promoted.unwrap_or(period)),
    }
}

/// Whether the target replied that it has no value now. One that rejects requests is polled less often, too.
fn is_reply((_, failure): &(usize, Failure)) -> bool {
    !failure.is_silence && failure.cause != Cause::PermissionLost
}

/// Which descriptions returned values, and which failed because the target rejected the user or the password.
fn attempts<'a>(
    target: &Target,
    places: &[usize],
    exchange: &'a Exchange,
) -> (Vec<usize>, Vec<(usize, &'a Failure)>) {
    let has_account = target.protocol != Protocol::Snmp && target.user.is_some();
    if !has_account {
        return (Vec::new(), Vec::new());
    }
    let failed: HashSet<usize> = exchange.failures.iter().map(|(nth, _)| *nth).collect();
    let good = places.iter().enumerate().filter(|(nth, _)| !failed.contains(nth));
    let tried = exchange.failures.iter().skip(exchange.untried);
    let rejected = tried.filter(|(_, failure)| failure.is_account);
    let rejected = rejected.filter_map(|(nth, failure)| Some((*places.get(*nth)?, failure)));
    (good.map(|(_, place)| *place).collect(), rejected.collect())
}

/// Passes on the samples of all groups once a second.
pub(super) async fn seal(shared: Arc<Shared>) {
    loop {
        let rest_us = Timestamp::SECOND - wall().0.rem_euclid(Timestamp::SECOND);
        tokio::time::sleep(Duration::from_micros(rest_us.unsigned_abs())).await;
        shared.groups.seal();
    }
}
