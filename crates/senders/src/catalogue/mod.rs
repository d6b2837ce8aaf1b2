//! The catalogue: the meaning of every metric, and the rules for adding one.
//!
//! A declared metric ([`crate::DeclaredMetrics`]) has the meaning and the help text of the program's build.
//! No sender changes either, and the limits do not count it.
//! The first sender of an undeclared metric defines it; no other sender changes its help text. A meaning yields to the first
//! sender of a higher rank (decisions 0039 and 0043). Agents rank below pollers and tokens that insert rows: the program
//! declares the metrics of its agents, so that an undeclared one is that of one node's token.

use crate::json::MetricJson;
use crate::limits::{Limits, Rejection};

use crate::share::Share;
use model::{Metric, Origin, Unit};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use storage::DeclaredMetrics;

/// The beginning of the names of Colmet's own values (decision 0062).
const COLMET: &str = "colmet_";
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

/// Senders by what others may not take from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A user that inserts rows.
    User,
    /// An agent, or a command of `jobmeter run`.
    Agent,
    /// A token that inserts rows, or a poller that assumes a meaning.
    Assumed,
    /// A poller with a declared meaning.
    Declared,
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
pub struct Catalogue {
    declared: DeclaredMetrics,
    /// By names that the series share.
    metrics: BTreeMap<Arc<str>, CatalogueEntry>,
    /// Undeclared metrics of each origin.
    by_origin: HashMap<Box<str>, usize>,
    undeclared: usize,
    /// Number of metrics that a sender of a higher rank took over.
    takeovers: u64,
    /// Changes with every change.
    version: u64,
    /// Undeclared metrics added since [`Self::mark`].
    added: Vec<Box<str>>,
}

impl Catalogue {
    /// A catalogue with stored metrics.
    pub fn new(
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
        limits: &Limits,
    ) -> Result<(), Rejection> {
        let rank = rank_of(by, metric);
        check_owner(&metric.name, by, rank)?;
        if let Some(known) = self.metrics.get_mut(&*metric.name) {
            let known_rank =
                if self.declared.has(&metric.name) { Rank::Program } else { known.rank };
            if rank > known_rank {
                return self.take_over(metric, by, limits);
            }
            may_use(&metric.name, rank, (known_rank, &known.by))?;
            // Samples of two senders are stored if the meaning of one is a guess.
            if rank != Rank::User && ![rank, known_rank].contains(&Rank::Assumed) {
                check(&known.metric, &known.by, metric, by)?;
            }
            let is_first = *known.by == *by.as_str() && rank == known_rank;
            if is_first && !metric.help.is_empty() && known.metric.help != metric.help {
                let help = metric.help.clone();
                known.metric = Arc::new(Metric { help, ..Metric::clone(&known.metric) });
                self.version += 1;
            }
            return Ok(());
        }
        if let Some(declared) = self.declared.get(&metric.name) {
            may_use(&metric.name, rank, (Rank::Program, PROGRAM))?;
            if rank != Rank::Assumed {
                check(declared, PROGRAM, metric, by)?;
            }
            let metric = Metric { divisor: metric.divisor, ..declared.clone() };
            self.keep(&metric, PROGRAM);
            return Ok(());
        }
        if self.undeclared >= limits.metrics_max {
            return Err(Rejection::Metrics(self.undeclared));
        }
        self.check_quotas(by, limits)?;
        self.add_undeclared(metric, by.as_str());
        Ok(())
    }

    /// Gives a metric to a sender of a higher rank, with its meaning.
    fn take_over(
        &mut self,
        metric: &Arc<Metric>,
        by: &Origin,
        limits: &Limits,
    ) -> Result<(), Rejection> {
        self.check_quotas(by, limits)?;
        let known = self.metrics.get(&*metric.name);
        // The sender may have sent the help before. That of another sender yields with its meaning.
        let is_own = |known: &&CatalogueEntry| metric.help.is_empty() && *known.by == *by.as_str();
        let help = known.filter(is_own).map(|known| known.metric.help.clone());
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
        self.version += 1;
        self.undeclared = self.undeclared.saturating_sub(1);
        for quota in quotas_of(&known.by) {
            if let Some(count) = self.by_origin.get_mut(quota) {
                *count = count.saturating_sub(1);
            }
        }
    }

    fn check_quotas(&self, by: &Origin, limits: &Limits) -> Result<(), Rejection> {
        let of_users = limits.metrics_max / USERS_DIVISOR;
        for quota in quotas_of(by.as_str()) {
            let max = match quota {
                USERS => of_users,
                POLLERS => Share::Pollers.max(limits.metrics_max),
                NODES => of_users / NODES_DIVISOR,
                _ if by.is_user_push() => of_users / USER_DIVISOR,
                _ => limits.metrics_per_origin_max,
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

    /// A number that differs after every change.
    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    fn keep(&mut self, metric: &Metric, by: &str) {
        let rank = Origin::new(by).map_or(Rank::Declared, |origin| rank_of(&origin, metric));
        let known = CatalogueEntry { metric: Arc::new(metric.clone()), by: by.into(), rank };
        self.version += 1;
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
        by if by.is_push() => Rank::Assumed,
        by if !by.is_poller_group() => Rank::Agent,
        _ if metric.assumed => Rank::Assumed,
        _ => Rank::Declared,
    }
}

/// Checks that a metric of pollers, feeds and Colmet's nodes comes from one. Tokens that insert rows may import those of feeds.
fn check_owner(name: &str, by: &Origin, rank: Rank) -> Result<(), Rejection> {
    let is_free =
        !Metric::is_of_polls(name) && (!Metric::is_of_feeds(name) || rank == Rank::Assumed);
    if rank == Rank::User && name.starts_with(COLMET) {
        return Err(Rejection::Meaning(format!(
            "metric {name} is one of Colmet's nodes; users insert only metrics that no other sender has"
        )));
    }
    if is_free || by.is_poller_group() {
        return Ok(());
    }
    let who = if rank == Rank::User { "users insert" } else { "other senders send" };
    Err(Rejection::Meaning(format!(
        "metric {name} is one of pollers; {who} only metrics that no other sender has"
    )))
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
mod tests;
