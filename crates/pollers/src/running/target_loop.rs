//! The exchanges with one target, each at its instant.

use super::assignment::{Assignment, chance};
use super::group::Group;
use super::outages::Outages;
use super::poll_metrics::PollMetrics;
use super::schedule::Schedule;
use crate::descriptions::{Description, Target};
use crate::polling::{self, Common, Exchange, Failure, Poller};
use delivery::wall;
use model::{DeviceId, Timestamp, printable};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

/// Longest sleep: a clock that is set forward is noticed by then.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// Longest time to complete an exchange, and to end the sessions with a target, at the end.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// What the loops of all targets share.
pub(super) struct Shared {
    pub(super) common: Common,
    pub(super) groups: Vec<Mutex<Group>>,
    pub(super) assignment: Assignment,
    pub(super) exchanges: Arc<Semaphore>,
    pub(super) hosts: Mutex<HashMap<String, Arc<Semaphore>>>,
    pub(super) host_exchanges_max: usize,
}

impl Shared {
    pub(super) fn group(&self, number: usize) -> Option<MutexGuard<'_, Group>> {
        Some(self.groups.get(number)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn host(&self, name: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Semaphore::new(self.host_exchanges_max));
        Arc::clone(hosts.entry(name.to_owned()).or_insert_with(new))
    }
}

/// Polls a target until `end` changes.
pub(super) async fn follow(
    target: Target,
    descriptions: Vec<Description>,
    shared: Arc<Shared>,
    mut end: watch::Receiver<bool>,
) {
    let poller = polling::open(&target, &shared.common);
    let begun = wall();
    let periods: Vec<Duration> = descriptions.iter().map(|one| one.period).collect();
    let spread = descriptions.first().map_or(0, |first| chance(&first.device));
    let mut follower = TargetLoop {
        schedule: Schedule::new(&periods, spread, begun),
        outages: Outages::new(descriptions.len(), begun),
        metrics: PollMetrics::new(&target, &descriptions, begun),
        host: shared.host(&target.host),
        failure: None,
        target,
        descriptions,
        shared,
        poller,
    };
    loop {
        let wait_us = follower.schedule.next().since(wall());
        let wait = Duration::from_micros(u64::try_from(wait_us).unwrap_or(0)).min(SLEEP_MAX);
        tokio::select! {
            _ = end.changed() => break,
            () = tokio::time::sleep(wait) => {}
        }
        if follower.schedule.next() <= wall() && follower.exchange_or_end(&mut end).await {
            break;
        }
    }
    follower.end().await;
}

struct TargetLoop {
    target: Target,
    descriptions: Vec<Description>,
    shared: Arc<Shared>,
    schedule: Schedule,
    outages: Outages,
    metrics: PollMetrics,
    host: Arc<Semaphore>,
    poller: Box<dyn Poller>,
    /// The failure that the log states.
    failure: Option<String>,
}

impl TargetLoop {
    /// Runs an exchange. Returns whether polling ends; the exchange then had a moment to complete.
    async fn exchange_or_end(&mut self, end: &mut watch::Receiver<bool>) -> bool {
        let mut exchange = std::pin::pin!(self.exchange());
        tokio::select! {
            _ = end.changed() => {
                tokio::time::timeout(CLOSE_MAX, exchange).await.ok();
                true
            }
            () = &mut exchange => false,
        }
    }

    async fn exchange(&mut self) {
        // The semaphores are never closed.
        let _of_host = Arc::clone(&self.host).acquire_owned().await.ok();
        let _of_all = Arc::clone(&self.shared.exchanges).acquire_owned().await.ok();
        let taken = self.schedule.take(wall());
        let places: Vec<usize> = taken.places.iter().map(|(place, _)| *place).collect();
        let due: Vec<&Description> =
            places.iter().filter_map(|place| self.descriptions.get(*place)).collect();
        if due.is_empty() {
            return;
        }
        let mut exchange = Exchange::new(taken.at, due.len());
        let begun = Instant::now();
        polling::run(&mut *self.poller, &due, &mut exchange).await;
        let took = begun.elapsed().as_secs_f64();
        let has_answered = exchange.failures.len() < due.len();
        let missing = self.outages.update(&self.descriptions, &taken.places, &exchange);
        let late = taken.late_us as f64 / 1e6;
        let polls = self.metrics.values(&due, &exchange, (took, late));
        let group_of = |device: &DeviceId| self.shared.assignment.group_of(device);
        for reading in &exchange.readings {
            if let Some(mut group) = self.shared.group(group_of(&reading.device)) {
                group.add(reading);
            }
        }
        for poll in &polls {
            if let Some(mut group) = self.shared.group(group_of(poll.device)) {
                group.add_poll(exchange.at, poll);
            }
        }
        for one in missing {
            if let Some(group) = self.shared.group(group_of(&one.device)) {
                group.miss(one);
            }
        }
        self.schedule.answered(has_answered, wall());
        self.log(&exchange);
    }

    /// Logs what changed: a failure that begins, has another reason, or ends.
    fn log(&mut self, exchange: &Exchange) {
        let failure = exchange.failures.first().map(|(_, Failure { what, .. })| what.to_string());
        let warning = exchange.warnings.first().cloned();
        let state = failure.or(warning);
        if state != self.failure {
            match &state {
                Some(what) => log::warn!("{}: {}", self.target, printable(what)),
                None => log::info!("{}: all values are read again", self.target),
            }
            self.failure = state;
        }
    }

    async fn end(mut self) {
        for one in self.outages.end(&self.descriptions, wall()) {
            let number = self.shared.assignment.group_of(&one.device);
            if let Some(group) = self.shared.group(number) {
                group.miss(one);
            }
        }
        tokio::time::timeout(CLOSE_MAX, self.poller.close()).await.ok();
    }
}

/// Passes on the samples of all groups once a second.
pub(super) async fn seal(shared: Arc<Shared>) {
    loop {
        let rest_us = Timestamp::SECOND - wall().0.rem_euclid(Timestamp::SECOND);
        tokio::time::sleep(Duration::from_micros(rest_us.unsigned_abs())).await;
        for number in 0..shared.groups.len() {
            if let Some(mut group) = shared.group(number) {
                group.seal();
            }
        }
    }
}
