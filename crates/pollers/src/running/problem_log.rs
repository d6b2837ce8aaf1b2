//! What the log says of a target: each problem once while it lasts, and its end.

use crate::descriptions::{Description, Target};
use crate::polling::Exchange;
use model::{Timestamp, printable};
use std::collections::{BTreeMap, BTreeSet};

/// Distinct problems that the log names; a target may have other texts at each exchange. Further ones wait.
const PROBLEMS_MAX: usize = 32;
/// After this time the log names problems again if there are more.
const FORGET_US: i64 = 60 * Timestamp::SECOND;
const CHARACTERS_MAX: usize = 300;

/// The problems that the log has named.
#[derive(Debug, Default)]
pub(super) struct ProblemLog {
    named: BTreeSet<String>,
    begun: Option<Timestamp>,
}

impl ProblemLog {
    /// Logs the problems of an exchange that are new. If nothing of the target fails, it logs that they have ended.
    pub(super) fn exchanged(
        &mut self,
        target: &Target,
        problems: Vec<String>,
        is_whole: bool,
        now: Timestamp,
    ) {
        if problems.is_empty() {
            if is_whole && !self.named.is_empty() {
                log::info!("{target}: all values are read again");
                *self = Self::default();
            }
            return;
        }
        for problem in self.new_of(problems, now) {
            log::warn!("{target}: {}", printable(&problem));
        }
    }

    fn new_of(&mut self, problems: Vec<String>, now: Timestamp) -> Vec<String> {
        let is_old = self.begun.is_some_and(|begun| now.since(begun) >= FORGET_US);
        if self.named.len() >= PROBLEMS_MAX && is_old {
            self.named.clear();
        }
        if self.named.is_empty() {
            self.begun = Some(now);
        }
        let mut new = Vec::new();
        for problem in problems {
            let problem: String = problem.chars().take(CHARACTERS_MAX).collect();
            if self.named.len() < PROBLEMS_MAX && self.named.insert(problem.clone()) {
                new.push(problem);
            }
        }
        new
    }
}

/// The problems of an exchange, each with a value that it concerns, unless it is the only one and concerns all of them.
pub(super) fn problems(due: &[&Description], exchange: &Exchange) -> Vec<String> {
    let mut by_text: BTreeMap<&str, Vec<&Description>> = BTreeMap::new();
    for (place, failure) in &exchange.failures {
        by_text.entry(&failure.what).or_default().extend(due.get(*place));
    }
    let named = |(what, of): (&str, Vec<&Description>)| match of.first() {
        Some(first) if of.len() < due.len() || due.len() == 1 => {
            let more = of.len() - 1;
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            format!("{} of {}{more}: {what}", first.name, first.device)
        }
        _ => what.to_owned(),
    };
    by_text.into_iter().map(named).chain(exchange.warnings.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::entries_of;
    use crate::polling::Failure;

    #[test]
    fn each_problem_is_named_once_with_its_value() {
        let entries = entries_of(
            "[{name: a, device_id: d, url: 'snmp://h/1.3'}, {name: b, device_id: d, url: 'snmp://h/1.4'}]",
        );
        let due: Vec<&Description> = entries.iter().collect();
        let mut exchange = Exchange::new(Timestamp(0), 2);
        exchange.fail(0, Failure::broken("no row"));
        exchange.fail(1, Failure::broken("noSuchObject"));
        exchange.warnings.push("a bad line".to_owned());
        let found = problems(&due, &exchange);
        assert_eq!(found, ["a of d: no row", "b of d: noSuchObject", "a bad line"]);
        let mut exchange = Exchange::new(Timestamp(0), 2);
        exchange.fail(0, Failure::timeout("no response"));
        exchange.fail(1, Failure::timeout("no response"));
        assert_eq!(problems(&due, &exchange), ["no response"]);

        let mut log = ProblemLog::default();
        assert_eq!(log.new_of(found.clone(), Timestamp(0)).len(), 3);
        assert_eq!(log.new_of(found.clone(), Timestamp(FORGET_US)), [""; 0]);
        let many = |from: usize| (from..from + 100).map(|n| n.to_string()).collect();
        assert_eq!(log.new_of(many(0), Timestamp(1)).len(), PROBLEMS_MAX - 3);
        assert_eq!(log.new_of(many(100), Timestamp(FORGET_US - 1)), [""; 0]);
        assert_eq!(log.new_of(many(100), Timestamp(FORGET_US)).len(), PROBLEMS_MAX);
    }
}
