//! Kwollect's table `promoted_metrics`: the rows for promotions in force, and promotions by rows of others.

use super::node_settings_cache::{Active, NodeSettingsCache};
use crate::demand::{DemandError, FromRows, PromotedKey, is_of_row};
use crate::rules::expression;
use crate::rules::portable_expression::is_portable;
use model::{NodeList, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Most devices that have rows.
const DEVICES_MAX: usize = 20_000;
/// Longest expression of a row, in bytes.
const BYTES_MAX: usize = 8192;

/// Rows for the promotions in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromotedRows {
    /// The rows, at most one of a device.
    pub rows: BTreeSet<PromotedKey>,
    /// Expressions of devices without a row: another engine may reject them, or a limit is reached.
    pub left_out: usize,
}

/// The outcome for the rows of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedRows {
    /// The rows whose promotions are in force.
    pub held: BTreeSet<PromotedKey>,
    /// Rows that are not promotions: the device is not one name, or the expression is invalid.
    pub invalid: usize,
    /// What is wrong with one of them.
    pub error: Option<String>,
    /// Rows beyond the limit.
    pub left_out: u64,
}

impl Active {
    /// The rows by which an original kwollector follows the promotions in force; `expand` returns the devices of a list.
    ///
    /// Kwollector uses one row of a device, so all its expressions are in one. A device whose only promotion is the one row
    /// of another program needs no further row.
    pub fn promoted_rows(
        &self,
        expand: impl Fn(&NodeList) -> Vec<String>,
        now: Timestamp,
    ) -> PromotedRows {
        let mut found = PromotedRows::default();
        let mut of_device: BTreeMap<Box<str>, (BTreeSet<&str>, usize)> = BTreeMap::new();
        let in_force = |until: Option<Timestamp>| until.is_none_or(|until| until > now);
        for one in self.held.promotions.iter().filter(|one| in_force(one.until)) {
            if expression::check(&one.metric).is_err() {
                continue;
            }
            let is_row = is_of_row(one);
            for device in expand(&one.nodes) {
                let has_space = of_device.len() < DEVICES_MAX;
                let entry = of_device.get_mut(&*device);
                if !is_row && !is_portable(&one.metric) || entry.is_none() && !has_space {
                    found.left_out += 1;
                    continue;
                }
                let (metrics, others) = of_device.entry(device.into()).or_default();
                metrics.insert(&one.metric);
                *others += usize::from(!is_row) * 2 + usize::from(is_row);
            }
        }
        for (device, (metrics, others)) in of_device {
            // One row of another program, and nothing else.
            if others != 1 {
                let (metric, left_out) = united(&metrics);
                found.left_out += left_out;
                found.rows.insert((device, metric.into()));
            }
        }
        found
    }

    /// The rows of other programs whose promotions are in force.
    pub fn rows_in_force(&self) -> BTreeSet<PromotedKey> {
        let rows = self.held.promotions.iter().filter(|one| is_of_row(one));
        rows.map(|one| (one.nodes.as_str().into(), one.metric.clone())).collect()
    }
}

impl NodeSettingsCache {
    /// Makes promotions match the rows of other programs. May wait for the disk.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn follow_rows(
        &self,
        rows: BTreeSet<PromotedKey>,
        now: Timestamp,
    ) -> Result<FollowedRows, DemandError> {
        let mut followed = FollowedRows::default();
        let mut valid = BTreeSet::new();
        for row in rows {
            match check(&row) {
                Ok(()) => drop(valid.insert(row)),
                Err(error) => {
                    followed.invalid += 1;
                    followed.error.get_or_insert(error);
                }
            }
        }
        let FromRows { held, left_out, changes } = self.demand().follow_rows(&valid, now)?;
        (followed.held, followed.left_out) = (held, left_out);
        if changes > 0 {
            log::info!("{changes} promotions began or ended with rows of promoted_metrics");
            self.refresh(now)?;
        }
        Ok(followed)
    }
}

fn check((device, metric): &PromotedKey) -> Result<(), String> {
    if !NodeList::is_name(device) {
        let shown: String = device.chars().take(100).collect();
        return Err(format!("`{}` is not the name of one device", model::printable(&shown)));
    }
    expression::check(metric)
}

/// One expression for several, and the number of those that exceed its limit.
fn united(metrics: &BTreeSet<&str>) -> (String, usize) {
    if let (Some(one), 1) = (metrics.first(), metrics.len()) {
        return ((*one).to_owned(), 0);
    }
    let (mut text, mut left_out) = (String::new(), 0);
    for metric in metrics {
        if text.len() + metric.len() + "|(?:)".len() > BYTES_MAX {
            left_out += 1;
            continue;
        }
        let or = if text.is_empty() { "" } else { "|" };
        text.push_str(&format!("{or}(?:{metric})"));
    }
    (text, left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::{ActiveRequests, PROMOTED_METRICS, Promotion, PromotionOrigin};

    const NOW: Timestamp = Timestamp::from_seconds(1_767_706_500);

    fn promotion(nodes: &str, metric: &str, is_row: bool) -> Promotion {
        Promotion {
            number: 1,
            nodes: NodeList::new(nodes).unwrap(),
            metric: metric.into(),
            until: None,
            made: NOW,
            by: if is_row { PROMOTED_METRICS.into() } else { "alice".into() },
            origin: if is_row { PromotionOrigin::Hand } else { PromotionOrigin::Api },
            job: None,
            uid: None,
        }
    }

    fn rows(promotions: Vec<Promotion>) -> (Vec<(String, String)>, usize) {
        let active = Active::new(ActiveRequests { promotions, ..ActiveRequests::default() });
        let expand =
            |nodes: &NodeList| model::expand_hosts(nodes.as_str(), 100).unwrap_or_default();
        let PromotedRows { rows, left_out } = active.promoted_rows(expand, NOW);
        let text = |(device, metric): PromotedKey| (device.into(), metric.into());
        (rows.into_iter().map(text).collect(), left_out)
    }

    fn row(device: &str, metric: &str) -> (String, String) {
        (device.to_owned(), metric.to_owned())
    }

    #[test]
    fn a_device_has_one_row_for_all_its_promotions() {
        let all = vec![
            promotion("n[1-2]", "bmc_.*", false),
            promotion("n2", "prom_.*", false),
            promotion("n3", "x", true),
            promotion("n4", "x", true),
            promotion("n4", "y", true),
            promotion("n1", "x", true),
        ];
        let (found, left_out) = rows(all);
        let expected = [
            row("n1", "(?:bmc_.*)|(?:x)"),
            row("n2", "(?:bmc_.*)|(?:prom_.*)"),
            row("n4", "(?:x)|(?:y)"),
        ];
        assert_eq!((&found[..], left_out), (&expected[..], 0));
    }

    #[test]
    fn expressions_of_other_engines_and_of_limits_are_left_out() {
        let (found, left_out) = rows(vec![
            promotion("n1", "(?i)x", false),
            promotion("n1", "(a+)+", false),
            promotion("n1", "good", false),
        ]);
        assert_eq!((found, left_out), (vec![row("n1", "good")], 2));
        let many = (0..100).map(|n| promotion("n1", &format!("{}{n}", "x".repeat(190)), false));
        let (found, left_out) = rows(many.collect());
        assert!(found[0].1.len() <= BYTES_MAX && left_out > 0 && left_out < 100, "{left_out}");
        let devices = promotion("n[1-100]", "x", false);
        assert_eq!(rows(vec![devices]).0.len(), 100);
    }
}
