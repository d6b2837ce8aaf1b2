//! The catalogue: the meaning of every metric, and the rules for adding one.
//!
//! A declared metric ([`crate::DeclaredMetrics`]) has the meaning and the help text of the program's build.
//! No sender changes either, and the limits do not count it.
//! The first sender of an undeclared metric defines it; no other sender changes its help text. An assumed meaning, also that
//! of inserted rows, yields to the first sender of a higher rank (decisions 0039 and 0043).

use crate::files::json::MetricJson;
use crate::senders::series_registry::Rejection;
use crate::senders::share::Share;
use crate::settings::{DeclaredMetrics, Settings};
use model::{Metric, Origin, Unit};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All commands of `jobmeter run` together count as one origin.
const RUNS: &str = "/runs";
/// All users that insert rows together.
const USERS: &str = "/users";
/// All pollers together.
const POLLERS: &str = "/pollers";
/// Users may name one of this many parts of all metrics, and one user one of this many parts of these. Names are never
/// forgotten.
const USERS_DIVISOR: usize = 4;
const USER_DIVISOR: usize = 16;
/// Unknown users of all nodes together. They may name one of this many parts of users' metrics: one user may have many nodes.
const NODES: &str = "/nodes";
const NODES_DIVISOR: usize = 4;

/// The names of metrics that pollers and feeds report about themselves and their devices begin so.
const OF_POLLERS: [&str; 2] = ["poll_", "wattmetre_"];

/// Senders by what others may not take from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A user that inserts rows.
    User,
    /// A token that inserts rows, or a poller that assumes a meaning.
    Assumed,
    /// An agent, a command of `jobmeter run`, or a poller with a declared meaning.
    Sender,
    /// The program.
    Program,
}

/// The origin of declared metrics.
const PROGRAM: &str = "the program";

#[derive(Debug)]
struct CatalogueEntry {
    metric: Arc<Metric>,
    by: Box<str>,
    /// The rank of `by`. Computed once: each new table of an agent compares it.
    rank: Rank,
}

/// The metrics of senders.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    declared: DeclaredMetrics,
    /// By names that the series share.
    metrics: BTreeMap<Arc<str>, CatalogueEntry>,
    /// Undeclared metrics of each origin.
    by_origin: HashMap<Box<str>, usize>,
    undeclared: usize,
    /// Number of metrics that a sender of a higher rank took over.
    takeovers: u64,
    /// Undeclared metrics added since [`Self::mark`].
    added: Vec<Box<str>>,
}

impl Catalogue {
    /// A catalogue with stored metrics.
    pub(crate) fn new(
        declared: DeclaredMetrics,
        stored: impl IntoIterator<Item = (Metric, String)>,
    ) -> Self {
        let mut catalogue = Self { declared, ..Self::default() };
        for (metric, by) in stored {
            match catalogue.declared.get(&metric.name) {
                Some(declared) => {
                    let metric = Metric { divisor: metric.divisor, ..declared.clone() };
                    catalogue.keep(&metric, &by);
                }
                None => catalogue.add_undeclared(&Arc::new(metric), &by),
            }
        }
        catalogue
    }

    /// Adds a metric, or checks that its meaning is unchanged.
    ///
    /// # Errors
    /// It has another meaning, or a limit is reached.
    pub(crate) fn learn(
        &mut self,
        metric: &Arc<Metric>,
        by: &Origin,
        settings: &Settings,
    ) -> Result<(), Rejection> {
        let rank = rank_of(by, metric);
        if rank == Rank::User && OF_POLLERS.iter().any(|name| metric.name.starts_with(name)) {
            return Err(Rejection::Meaning(format!(
                "metric {} is one of pollers; users insert only metrics that no other sender has",
                metric.name
            )));
        }
        if let Some(known) = self.metrics.get_mut(&*metric.name) {
            let known_rank =
                if self.declared.has(&metric.name) { Rank::Program } else { known.rank };
            if rank > known_rank {
                return self.take_over(metric, by, settings);
            }
            may_use(&metric.name, rank, (known_rank, &known.by))?;
            if rank >= Rank::Sender {
                check(&known.metric, &known.by, metric, by)?;
            }
            let is_first = *known.by == *by.as_str() && rank == known_rank;
            if is_first && !metric.help.is_empty() && known.metric.help != metric.help {
                let help = metric.help.clone();
                known.metric = Arc::new(Metric { help, ..Metric::clone(&known.metric) });
            }
            return Ok(());
        }
        if let Some(declared) = self.declared.get(&metric.name) {
            may_use(&metric.name, rank, (Rank::Program, PROGRAM))?;
            if rank >= Rank::Sender {
                check(declared, PROGRAM, metric, by)?;
            }
            let metric = Metric { divisor: metric.divisor, ..declared.clone() };
            self.keep(&metric, PROGRAM);
            return Ok(());
        }
        if self.undeclared >= settings.metrics_max {
            return Err(Rejection::Metrics(self.undeclared));
        }
        self.check_quotas(by, settings)?;
        self.add_undeclared(metric, by.as_str());
        Ok(())
    }

    /// Gives a metric to a sender of a higher rank, with its meaning.
    fn take_over(
        &mut self,
        metric: &Arc<Metric>,
        by: &Origin,
        settings: &Settings,
    ) -> Result<(), Rejection> {
        self.check_quotas(by, settings)?;
        let known = self.metrics.get(&*metric.name);
        // The sender may have sent the help before.
        let help = known.filter(|_| metric.help.is_empty()).map(|known| known.metric.help.clone());
        let metric = Metric { help: help.unwrap_or(metric.help.clone()), ..Metric::clone(metric) };
        self.remove(&metric.name);
        self.takeovers += 1;
        self.add_undeclared(&Arc::new(metric), by.as_str());
        self.added.pop();
        Ok(())
    }

    /// Begins a batch that may be rejected whole.
    pub(crate) fn mark(&mut self) {
        self.added.clear();
    }

    /// Forgets the metrics that were added since [`Self::mark`]: their batch was rejected.
    pub(crate) fn undo(&mut self) {
        for name in std::mem::take(&mut self.added) {
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &str) {
        let Some(known) = self.metrics.remove(name) else { return };
        self.undeclared = self.undeclared.saturating_sub(1);
        for quota in quotas_of(&known.by) {
            if let Some(count) = self.by_origin.get_mut(quota) {
                *count = count.saturating_sub(1);
            }
        }
    }

    fn check_quotas(&self, by: &Origin, settings: &Settings) -> Result<(), Rejection> {
        let of_users = settings.metrics_max / USERS_DIVISOR;
        for quota in quotas_of(by.as_str()) {
            let max = match quota {
                USERS => of_users,
                POLLERS => Share::Pollers.max(settings.metrics_max),
                NODES => of_users / NODES_DIVISOR,
                _ if by.is_user_push() => of_users / USER_DIVISOR,
                _ => settings.metrics_per_origin_max,
            };
            if self.by_origin.get(quota).is_some_and(|count| *count >= max) {
                return Err(match quota {
                    USERS => Rejection::ShareMetrics("users", max),
                    POLLERS => Rejection::ShareMetrics("all pollers together", max),
                    NODES => Rejection::ShareMetrics("callers without a token", max),
                    _ => Rejection::OriginMetrics { origin: by.clone(), max },
                });
            }
        }
        Ok(())
    }

    fn add_undeclared(&mut self, metric: &Arc<Metric>, by: &str) {
        self.undeclared += 1;
        for quota in quotas_of(by) {
            *self.by_origin.entry(quota.into()).or_default() += 1;
        }
        self.added.push(Box::from(&*metric.name));
        self.keep(metric, by);
    }

    /// Number of metrics that a sender of a higher rank took over: tables resolved before may have their old meaning.
    pub(crate) const fn takeovers(&self) -> u64 {
        self.takeovers
    }

    fn keep(&mut self, metric: &Metric, by: &str) {
        let rank = Origin::new(by).map_or(Rank::Sender, |origin| rank_of(&origin, metric));
        let known = CatalogueEntry { metric: Arc::new(metric.clone()), by: by.into(), rank };
        self.metrics.insert(Arc::from(&*metric.name), known);
    }

    /// A metric with its shared name.
    pub(crate) fn get(&self, name: &str) -> Option<(&Arc<str>, &Arc<Metric>)> {
        self.metrics.get_key_value(name).map(|(name, known)| (name, &known.metric))
    }

    /// Number of known metrics.
    pub(crate) fn count(&self) -> usize {
        self.metrics.len()
    }

    /// Every metric, ordered by name.
    pub(crate) fn all(&self) -> Vec<Arc<Metric>> {
        self.metrics.values().map(|known| Arc::clone(&known.metric)).collect()
    }

    /// The catalogue as the manifest stores it.
    pub(crate) fn json(&self) -> Vec<MetricJson> {
        self.metrics.values().map(|known| MetricJson::new(&known.metric, &known.by)).collect()
    }
}

fn rank_of(by: &Origin, metric: &Metric) -> Rank {
    match by {
        by if by.is_user_push() => Rank::User,
        by if by.is_push() || metric.assumed => Rank::Assumed,
        _ => Rank::Sender,
    }
}

/// The quotas that count a metric of this origin.
fn quotas_of(by: &str) -> impl Iterator<Item = &str> {
    let origin = Origin::new(by).ok();
    let is_run = origin.as_ref().is_some_and(|origin| origin.as_run().is_some());
    let all = match &origin {
        Some(origin) if origin.is_node_push() => [Some(NODES), Some(USERS)],
        Some(origin) if origin.is_user_push() => [Some(USERS), None],
        Some(origin) if origin.is_poller_group() => [Some(POLLERS), None],
        _ => [None, None],
    };
    std::iter::once(if is_run { RUNS } else { by }).chain(all.into_iter().flatten())
}

/// Checks that a sender may send samples of a metric of a higher rank. A user may not: they could falsify sums.
fn may_use(name: &str, rank: Rank, (known, by): (Rank, &str)) -> Result<(), Rejection> {
    if rank > Rank::User || known == Rank::User {
        return Ok(());
    }
    Err(Rejection::Meaning(format!(
        "metric {name} belongs to {by}; users insert only metrics that no other sender has"
    )))
}

/// Checks that a metric's meaning is unchanged.
fn check(known: &Metric, known_by: &str, metric: &Metric, by: &Origin) -> Result<(), Rejection> {
    if (known.unit, known.kind) == (metric.unit, metric.kind) {
        return Ok(());
    }
    Err(Rejection::Meaning(format!(
        "metric {} is a {} in {} since {known_by} named it, and a {} in {} as {by} names it: rename one",
        metric.name,
        known.kind.word(),
        unit_name(known.unit),
        metric.kind.word(),
        unit_name(metric.unit),
    )))
}

const fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Count => "count",
        other => other.word(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learn(catalogue: &mut Catalogue, metric: Metric, by: &str) -> Result<(), Rejection> {
        let settings =
            Settings { metrics_max: 5, metrics_per_origin_max: 2, ..Settings::default() };
        catalogue.learn(&Arc::new(metric), &Origin::new(by).unwrap(), &settings)
    }

    fn declared() -> DeclaredMetrics {
        DeclaredMetrics::new([Metric::gauge("memory_available_bytes", Unit::Bytes, "Built in.")])
    }

    #[test]
    fn a_declared_metric_keeps_its_meaning_and_help_and_counts_in_no_limit() {
        let mut catalogue = Catalogue::new(declared(), []);
        let wrong = Metric::counter("memory_available_bytes", Unit::Joules, "Mine.");
        assert!(matches!(learn(&mut catalogue, wrong, "n1"), Err(Rejection::Meaning(_))));
        for origin in ["n1", "n2", "n3"] {
            for name in ["a", "b", "c"] {
                let name = format!("{origin}_{name}");
                let metric = Metric { name: name.into(), ..Metric::gauge("", Unit::Count, "") };
                learn(&mut catalogue, metric, origin).ok();
            }
        }
        assert_eq!(catalogue.count(), 5, "two of each origin, five of all");
        let again = Metric::gauge("memory_available_bytes", Unit::Bytes, "Mine.");
        assert_eq!(learn(&mut catalogue, again, "n9"), Ok(()));
        assert_eq!(catalogue.get("memory_available_bytes").unwrap().1.help, "Built in.");
    }

    #[test]
    fn only_the_first_sender_changes_the_help_of_its_metric() {
        let mut catalogue = Catalogue::default();
        let metric = |help| Metric::gauge("site_power", Unit::Watts, help);
        for (help, by, now) in [
            ("one", "n1", "one"),
            ("two", "n2", "one"),
            ("", "n1", "one"),
            ("three", "n1", "three"),
        ] {
            learn(&mut catalogue, metric(help), by).unwrap();
            assert_eq!(catalogue.get("site_power").unwrap().1.help, now, "{help} by {by}");
        }
    }

    #[test]
    fn all_runs_share_one_quota_and_a_restart_keeps_it() {
        let mut catalogue = Catalogue::default();
        let metric = |name| Metric::gauge(name, Unit::Count, "");
        learn(&mut catalogue, metric("a"), "n1/run-1").unwrap();
        learn(&mut catalogue, metric("b"), "n1/run-2").unwrap();
        let stored = catalogue.json().into_iter().map(|json| json.metric().unwrap());
        let mut catalogue = Catalogue::new(DeclaredMetrics::default(), stored);
        let third = learn(&mut catalogue, metric("c"), "n2/run-3");
        assert!(matches!(third, Err(Rejection::OriginMetrics { max: 2, .. })), "{third:?}");
        assert_eq!(learn(&mut catalogue, metric("c"), "n2"), Ok(()));
    }

    #[test]
    fn a_name_yields_to_the_first_sender_of_a_higher_rank() {
        let mut catalogue = Catalogue::new(declared(), []);
        let metric = |unit| Metric::gauge("power", unit, "");
        let unit = |catalogue: &Catalogue| catalogue.get("power").unwrap().1.unit;
        for by in ["user-1/rows", "user-2/rows"] {
            learn(&mut catalogue, metric(Unit::Count), by).unwrap();
        }
        learn(&mut catalogue, metric(Unit::Count), "push/rows").unwrap();
        assert_eq!((unit(&catalogue), catalogue.takeovers()), (Unit::Count, 1));
        let rejected = learn(&mut catalogue, metric(Unit::Count), "user-1/rows").unwrap_err();
        assert!(rejected.to_string().contains("belongs to push/rows"), "{rejected}");
        learn(&mut catalogue, metric(Unit::Watts), "poller-a/group-1").unwrap();
        assert_eq!((unit(&catalogue), catalogue.takeovers()), (Unit::Watts, 2));
        assert!(learn(&mut catalogue, metric(Unit::Count), "n1").is_err());
        learn(&mut catalogue, metric(Unit::Count), "push/rows").unwrap();
        assert_eq!((unit(&catalogue), catalogue.takeovers()), (Unit::Watts, 2));
        let own = Metric::gauge("memory_available_bytes", Unit::Bytes, "");
        assert!(learn(&mut catalogue, own.clone(), "user-1/rows").is_err());
        let poll = Metric::gauge("poll_success", Unit::Count, "");
        assert!(
            learn(&mut catalogue, poll, "user-1/rows").is_err(),
            "also before a poller sends it"
        );
        assert_eq!(learn(&mut catalogue, own, "push/rows"), Ok(()));
    }

    #[test]
    fn pollers_leave_half_of_the_names_to_agents() {
        let mut catalogue = Catalogue::default();
        let metric = |name: &str| Metric {
            name: name.to_owned().into(),
            ..Metric::gauge("", Unit::Count, "")
        };
        for (name, by, is_ok) in [
            ("a", "poller-a/group-0", true),
            ("b", "poller-a/group-1", true),
            ("c", "poller-b/group-0", true),
            ("d", "poller-c/group-0", false),
            ("d", "n1", true),
            ("e", "n2", true),
        ] {
            assert_eq!(learn(&mut catalogue, metric(name), by).is_ok(), is_ok, "{name} by {by}");
        }
    }

    #[test]
    fn an_assumed_meaning_yields_to_a_declared_one_and_costs_no_sample() {
        let mut catalogue = Catalogue::new(declared(), []);
        let metric = |unit, assumed| Metric { assumed, ..Metric::gauge("power", unit, "") };
        let kept = |catalogue: &Catalogue| catalogue.get("power").unwrap().1.unit;
        for unit in [Unit::Volts, Unit::Amperes] {
            learn(&mut catalogue, metric(unit, true), "poller-a/group-1").unwrap();
            learn(&mut catalogue, metric(unit, true), "poller-b/group-1").unwrap();
            assert_eq!(kept(&catalogue), Unit::Volts, "the first of two assumed ones");
        }
        // Another device of the same group changes the help only.
        let other = Metric { help: "other".into(), ..metric(Unit::Joules, true) };
        learn(&mut catalogue, other, "poller-a/group-1").unwrap();
        assert_eq!(
            (kept(&catalogue), &*catalogue.get("power").unwrap().1.help),
            (Unit::Volts, "other")
        );
        // A restart of the server keeps that it is assumed.
        let stored = catalogue.json().into_iter().map(|json| json.metric().unwrap());
        let mut catalogue = Catalogue::new(declared(), stored);
        learn(&mut catalogue, metric(Unit::Watts, false), "poller-b/group-2").unwrap();
        assert_eq!((kept(&catalogue), catalogue.takeovers()), (Unit::Watts, 1));
        learn(&mut catalogue, metric(Unit::Volts, true), "poller-a/group-1").unwrap();
        assert_eq!((kept(&catalogue), catalogue.takeovers()), (Unit::Watts, 1));
        assert!(learn(&mut catalogue, metric(Unit::Volts, false), "poller-a/group-1").is_err());
        let wrong =
            Metric { assumed: true, ..Metric::gauge("memory_available_bytes", Unit::Count, "") };
        assert_eq!(learn(&mut catalogue, wrong, "poller-a/group-1"), Ok(()));
    }

    #[test]
    fn names_of_users_leave_those_of_others() {
        let settings = Settings { metrics_max: 256, ..Settings::default() };
        let mut catalogue = Catalogue::default();
        let learn = |catalogue: &mut Catalogue, name: String, by: &str| {
            let metric = Metric { name: name.into(), ..Metric::gauge("", Unit::Count, "") };
            catalogue.learn(&Arc::new(metric), &Origin::new(by).unwrap(), &settings)
        };
        let of_user = |catalogue: &mut Catalogue, uid: u32| {
            let by = format!("user-{uid}/rows");
            (0..10).filter(|n| learn(catalogue, format!("{uid}_{n}"), &by).is_ok()).count()
        };
        let counts: Vec<usize> = (0..18).map(|uid| of_user(&mut catalogue, uid)).collect();
        assert_eq!(counts, [&[4; 16][..], &[0, 0]].concat(), "a sixteenth of a quarter each");
        // Stored counts are those of a new start, and a name that is taken over frees its place.
        let stored = catalogue.json().into_iter().map(|json| json.metric().unwrap());
        let mut catalogue = Catalogue::new(DeclaredMetrics::default(), stored);
        assert_eq!(of_user(&mut catalogue, 17), 0);
        learn(&mut catalogue, "0_0".to_owned(), "n1").unwrap();
        assert_eq!(of_user(&mut catalogue, 17), 1);
        assert_eq!(of_user(&mut catalogue, 0), 3, "the three names that are still theirs");
        catalogue.mark();
        learn(&mut catalogue, "rejected".to_owned(), "n1").unwrap();
        catalogue.undo();
        assert!(catalogue.get("rejected").is_none());
        assert_eq!(
            (0..180).filter(|n| learn(&mut catalogue, n.to_string(), "n1").is_ok()).count(),
            180
        );
    }

    #[test]
    fn names_of_nodes_leave_those_of_users() {
        let settings = Settings { metrics_max: 1024, ..Settings::default() };
        let mut catalogue = Catalogue::default();
        let mut count = |by: &str| {
            let learn = |n: &usize| {
                let name = format!("{by}_{n}").into();
                let metric = Metric { name, ..Metric::gauge("", Unit::Count, "") };
                catalogue.learn(&Arc::new(metric), &Origin::new(by).unwrap(), &settings).is_ok()
            };
            (0..20).filter(learn).count()
        };
        let counts: Vec<usize> = (0..6).map(|n| count(&format!("node-n{n}/rows"))).collect();
        assert_eq!(counts, [16, 16, 16, 16, 0, 0], "a quarter of the users' part together");
        assert_eq!(count("user-1/rows"), 16);
    }

    #[test]
    fn a_stored_metric_that_took_a_declared_name_is_the_declared_one() {
        let wrong = Metric::gauge("memory_available_bytes", Unit::Joules, "Mine.");
        let catalogue = Catalogue::new(declared(), [(wrong, "n1/run-7".to_owned())]);
        let (_, metric) = catalogue.get("memory_available_bytes").unwrap();
        assert_eq!((metric.unit, &*metric.help), (Unit::Bytes, "Built in."));
    }
}
