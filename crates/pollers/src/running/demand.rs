//! The promotions and changes of periods in force, and which nodes have jobs, as the server reports them.

use super::period_changes::{PeriodChanges, PeriodLimits};
use crate::PROGRAM;
use crate::descriptions::{Description, Expression, Expressions};
use crate::polling::instant;
use crate::protocols::Protocol;
use api::{EntryErrors, Operation, PollerFlush, PollerPromotion, PollerPromotions, PollerRequest};
use config::{PollerConfig, ServerSettings};
use delivery::{Http, or_end, requested_server, wall};
use model::{DeviceId, Timestamp, printable};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Interval of requests, and after a failed one.
const EVERY: Duration = Duration::from_secs(1);
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// Interval at which promotions without an end are extended.
const EXTEND_US: i64 = 3600 * Timestamp::SECOND;
/// Interval at which the nodes with jobs are requested.
const BUSY_EVERY_US: i64 = 10 * Timestamp::SECOND;
/// Interval at which the errors in the files are sent, if there are any.
const ERRORS_EVERY_US: i64 = 30 * Timestamp::SECOND;
/// After this time without a response it is unknown which nodes have jobs.
const BUSY_AGE_MAX_US: i64 = 60 * Timestamp::SECOND;

/// What is demanded of devices and nodes, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Demand {
    promotions: HashMap<String, Vec<(Arc<Expression>, Timestamp)>>,
    periods: PeriodChanges,
    /// The flushes of a wattmeter: their IDs, and the ports or nodes.
    pub(crate) flushes: Vec<PollerFlush>,
    /// The names with jobs; `None` if unknown.
    busy: Option<HashSet<String>>,
    /// The names that have an agent which reports; `None` if unknown.
    pub(crate) agents: Option<HashSet<String>>,
    /// The names that the server was queried for.
    pub(crate) queried: Arc<DemandNames>,
}

/// What promotions change for a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promotion {
    /// Nothing.
    None,
    /// It is promoted.
    Whole,
    /// Of this exporter, only metrics with matching names are promoted.
    Metrics(Expressions),
}

impl Demand {
    /// Reads a response. An expression that is not one affects nothing else. Those of the response before are not
    /// compiled again.
    fn read(
        response: PollerPromotions,
        queried: &Arc<DemandNames>,
        before: &Self,
        limits: &mut PeriodLimits,
        now: Timestamp,
    ) -> Self {
        let promotions = before.next_promotions(response.promotions);
        let busy = response.busy.map(|names| names.into_iter().collect());
        let periods = limits.accept(response.periods.unwrap_or_default(), now);
        let flushes = response.flushes.unwrap_or_default();
        let agents = response.agents.map(|names| names.into_iter().collect());
        Self { promotions, periods, flushes, busy, agents, queried: Arc::clone(queried) }
    }

    fn next_promotions(
        &self,
        received: Option<Vec<PollerPromotion>>,
    ) -> HashMap<String, Vec<(Arc<Expression>, Timestamp)>> {
        let before = self.promotions.values().flatten();
        let mut compiled: HashMap<String, Option<Arc<Expression>>> =
            before.map(|(one, _)| (one.text().to_owned(), Some(Arc::clone(one)))).collect();
        let mut promotions: HashMap<String, Vec<_>> = HashMap::new();
        for promotion in received.unwrap_or_default() {
            let new = |text: &String| Expression::new(text).map(Arc::new);
            let expression =
                compiled.entry(promotion.metric).or_insert_with_key(new).as_ref().map(Arc::clone);
            let Some(expression) = expression else { continue };
            let Some(until) = instant(promotion.until) else { continue };
            for name in promotion.names {
                promotions.entry(name).or_default().push((Arc::clone(&expression), until));
            }
        }
        promotions
    }

    /// What the promotions of its device, and of the node that this feeds, change for a description.
    pub(crate) fn of(&self, description: &Description, now: Timestamp) -> Promotion {
        if !description.is_on_demand() {
            return Promotion::None;
        }
        let alias = description.alias();
        let held = || self.held(description.device.as_str(), alias.as_deref(), now);
        if held().any(|expression| expression.promotes(&description.name)) {
            return Promotion::Whole;
        }
        let held: Expressions = held().cloned().collect();
        if description.target.protocol == Protocol::Prometheus && !held.is_empty() {
            return Promotion::Metrics(held);
        }
        Promotion::None
    }

    /// The period of a description while a change of it holds.
    pub(crate) fn period(&self, description: &Description, now: Timestamp) -> Option<Duration> {
        self.periods.of(description, now)
    }

    /// Whether a metric of a device is promoted.
    pub(crate) fn promotes(
        &self,
        metric: &str,
        (device, alias): (&str, Option<&str>),
        now: Timestamp,
    ) -> bool {
        self.held(device, alias, now).any(|expression| expression.promotes(metric))
    }

    /// The expressions that hold for a device or for the node that it feeds.
    fn held<'a>(
        &'a self,
        device: &'a str,
        alias: Option<&'a str>,
        now: Timestamp,
    ) -> impl Iterator<Item = &'a Arc<Expression>> {
        let names = [Some(device), alias].into_iter().flatten();
        let all = names.filter_map(|name| self.promotions.get(name)).flatten();
        all.filter(move |(_, until)| *until > now).map(|(expression, _)| expression)
    }

    /// Whether neither the device nor the node that it feeds has a job.
    pub(crate) fn is_idle(&self, description: &Description) -> bool {
        let Some(busy) = &self.busy else { return false };
        let is_busy = |name: String| busy.contains(&name);
        !busy.contains(description.device.as_str()) && !description.alias().is_some_and(is_busy)
    }

    /// The next instant at which a promotion or a change ends.
    pub(crate) fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.promotions.values().flatten().map(|(_, until)| *until);
        let ends = ends.chain(self.periods.ends());
        ends.filter(|until| *until > now).min()
    }
}

/// Starts the thread that requests what is demanded of the names.
///
/// # Errors
/// The operating system cannot start a thread.
pub(crate) fn follow_demand(
    config: &PollerConfig,
    poller: &DeviceId,
    names: &Names,
) -> io::Result<watch::Receiver<Arc<Demand>>> {
    let (demand, receiver) = watch::channel(Arc::default());
    let (server, limits) = (config.server.clone(), PeriodLimits::new(config.remote.clone()));
    let (poller, names) = (poller.clone(), Arc::clone(names));
    let follower = DemandFollower { server, poller, names, limits, demand };
    let thread = std::thread::Builder::new().name("demand".to_owned());
    // Not joined: a request may wait as long as the settings allow.
    thread.spawn(|| or_end(|| follower.run()))?;
    Ok(receiver)
}

/// Requests what is demanded of some names, until nothing receives them any more.
struct DemandFollower {
    server: ServerSettings,
    poller: DeviceId,
    names: Names,
    limits: PeriodLimits,
    demand: watch::Sender<Arc<Demand>>,
}

/// The names that the server is queried for. A reload of the files replaces them.
pub(crate) type Names = Arc<Mutex<Arc<DemandNames>>>;

/// Devices, and the nodes that they feed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DemandNames {
    pub(crate) names: Vec<String>,
    /// Whether it counts which of them have jobs.
    pub(crate) count_jobs: bool,
    /// Whether it counts which of them have an agent.
    pub(crate) count_agents: bool,
    /// The errors in the description files.
    pub(crate) errors: EntryErrors,
}

/// What the last response was to.
#[derive(Default)]
struct Received {
    names: Arc<DemandNames>,
    version: String,
    newest_change: i64,
    at: Timestamp,
    /// When the errors in the files were sent.
    errors_sent: Timestamp,
}

impl DemandFollower {
    /// Runs in a thread of its own.
    fn run(mut self) {
        let (mut http, mut received) = (None, Received::default());
        let mut failure: Option<String> = None;
        while !self.demand.is_closed() {
            let result = self.step(&mut http, &mut received);
            let wait = if result.is_ok() { EVERY } else { AFTER_FAILURE };
            if result.is_err() && wall().since(received.at) >= BUSY_AGE_MAX_US {
                self.forget_jobs();
            }
            if result.as_ref().err() != failure.as_ref() {
                match &result {
                    Err(why) => {
                        log::warn!(
                            "the server does not report promotions and changes: {}",
                            printable(why)
                        )
                    }
                    Ok(()) => log::info!("the server reports promotions and changes again"),
                }
            }
            failure = result.err();
            std::thread::sleep(wait);
        }
    }

    /// Which nodes have jobs is unknown now. Promotions hold until their ends.
    fn forget_jobs(&self) {
        self.demand.send_if_modified(|demand| {
            let is_known = demand.busy.is_some();
            if is_known {
                *demand = Arc::new(Demand { busy: None, ..Demand::clone(demand) });
            }
            is_known
        });
    }

    fn step(&mut self, http: &mut Option<Http>, received: &mut Received) -> Result<(), String> {
        let names = Arc::clone(&self.names.lock().unwrap_or_else(PoisonError::into_inner));
        let has_changed = names.errors != received.names.errors;
        let is_nothing = |names: &DemandNames| names.names.is_empty() && names.errors.count == 0;
        if is_nothing(&names) && is_nothing(&received.names) {
            return Ok(());
        }
        // The server keeps no errors over its restart: a request before then failed.
        let is_old = http.is_none() || wall().since(received.errors_sent) >= ERRORS_EVERY_US;
        let is_due = names.errors.count > 0 && is_old;
        let errors = (has_changed || is_due).then_some(&names.errors);
        let errors_sent = if errors.is_some() { wall() } else { received.errors_sent };
        let is_counted = names.count_jobs || names.count_agents;
        let age_max = if is_counted { BUSY_EVERY_US } else { EXTEND_US };
        let is_old = wall().since(received.at) >= age_max;
        if names == received.names && !is_old {
            let response = self.request(http, (None, errors), received)?;
            received.errors_sent = errors_sent;
            if response.version == received.version {
                return Ok(());
            }
        }
        let response = self.request(http, (Some(&names), errors), received)?;
        let (version, newest_change) = (response.version.clone(), response.newest_change);
        let before = Arc::clone(&self.demand.borrow());
        let demand = Demand::read(response, &names, &before, &mut self.limits, wall());
        self.demand.send_replace(Arc::new(demand));
        *received = Received { names, version, newest_change, at: wall(), errors_sent };
        Ok(())
    }

    fn request(
        &self,
        http: &mut Option<Http>,
        (names, errors): (Option<&DemandNames>, Option<&EntryErrors>),
        received: &Received,
    ) -> Result<PollerPromotions, String> {
        let client = match http.take() {
            Some(client) => client,
            None => {
                let url = requested_server(&self.server).ok_or("no server; set `server`")?;
                Http::new(&url, &self.server, PROGRAM)?
            }
        };
        let request = PollerRequest {
            poller: self.poller.to_string(),
            names: names.map(|all| all.names.clone()),
            busy: names.is_some_and(|all| all.count_jobs),
            agents: names.is_some_and(|all| all.count_agents),
            applied: received.newest_change,
            rejected: self.limits.rejected.clone(),
            entry_errors: errors.cloned(),
        };
        let request = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        let path = Operation::PollerPromotions.path();
        let response = client
            .post_json(path, &request, PollerRequest::ANSWER_BYTES_MAX)
            .map_err(|error| error.to_string())?;
        let read = serde_json::from_slice(&response);
        let read = read.map_err(|error| format!("{path}: invalid response: {error}"))?;
        // A failed client is opened again: the token or the server may be another one then.
        *http = Some(client);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;

    fn promotions(all: &[(&str, &str, f64)]) -> Demand {
        let promotion = |(metric, name, until): &(&str, &str, f64)| PollerPromotion {
            metric: (*metric).to_owned(),
            until: *until,
            names: vec![(*name).to_owned()],
        };
        let promotions = Some(all.iter().map(promotion).collect());
        let before = Demand::default();
        Demand { promotions: before.next_promotions(promotions), ..Demand::default() }
    }

    #[test]
    fn an_expression_is_compiled_once() {
        let before = promotions(&[("a", "n-1", 9.0), ("b", "n-1", 9.0)]);
        let promotion = |metric: &str, name: &str| PollerPromotion {
            metric: metric.to_owned(),
            until: 9.0,
            names: vec![name.to_owned()],
        };
        let received = vec![promotion("b", "n-2"), promotion("c", "n-2"), promotion("c", "n-3")];
        let after = before.next_promotions(Some(received));
        let same = |one: &(Arc<Expression>, _), other: &(Arc<Expression>, _)| {
            Arc::ptr_eq(&one.0, &other.0)
        };
        assert!(same(&after["n-2"][0], &before.promotions["n-1"][1]));
        assert!(same(&after["n-2"][1], &after["n-3"][0]));
    }

    #[test]
    fn promotions_hold_for_a_device_and_for_the_node_that_it_feeds() {
        let all = entries_of(
            "- {name: pdu_power_watt, device_id: pdu-1, url: 'http://p/#a', optional: true,\n   labels: {_device_alias: n-1}}\n\
             - {name: pdu_power_watt, device_id: pdu-2, url: 'http://p/#a', optional: true}\n\
             - {name: pdu_power_watt, device_id: pdu-1, url: 'http://p/#a'}\n",
        );
        let now = Timestamp(0);
        let of = |promotions: &Demand| -> Vec<Promotion> {
            all.iter().map(|one| promotions.of(one, now)).collect()
        };
        let (none, whole) = (Promotion::None, Promotion::Whole);
        let by_node = promotions(&[("pdu_power", "n-1", 9.0), ("(", "pdu-2", 9.0)]);
        assert_eq!(of(&by_node), [whole.clone(), none.clone(), none.clone()]);
        let by_device = promotions(&[("pdu", "pdu-2", 9.0), ("power", "pdu-1", 9.0)]);
        assert_eq!(of(&by_device), [none.clone(), whole, none.clone()]);
        assert_eq!(by_device.next_end(now), Some(Timestamp(9_000_000)));
        let promotes = |device, alias| by_node.promotes("pdu_power", (device, alias), now);
        assert!(promotes("port-1", Some("n-1")) && !promotes("port-1", None));
        assert_eq!(by_device.of(&all[1], Timestamp(9_000_000)), none);
    }

    #[test]
    fn a_device_is_idle_while_neither_it_nor_its_node_has_a_job() {
        let all = entries_of(
            "- {name: a, device_id: pdu-1, url: 'http://p/#a', update_every_idle: 60000, labels: {_device_alias: n-1}}\n",
        );
        let busy = |names: &[&str]| Demand {
            busy: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..Demand::default()
        };
        assert!(!Demand::default().is_idle(&all[0]), "unknown");
        assert!(busy(&["n-2"]).is_idle(&all[0]));
        assert!(!busy(&["n-1"]).is_idle(&all[0]) && !busy(&["pdu-1"]).is_idle(&all[0]));
    }

    #[test]
    fn expressions_select_metrics_of_an_exporter() {
        let all = entries_of(
            "- {name: prom_all, device_id: n-1, url: 'prometheus://n-1:9100', optional: true}\n",
        );
        let promotions = promotions(&[("prom_node_load1", "n-1", 9.0), ("x", "n-2", 9.0)]);
        let Promotion::Metrics(only) = promotions.of(&all[0], Timestamp(0)) else { panic!() };
        assert!(only.len() == 1 && only[0].matches("prom_node_load1"));
    }
}
