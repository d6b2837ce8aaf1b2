//! The metric names of a group's exporters. The server accepts some thousand names of an origin and never forgets them, so
//! exporters that invent names must leave some to the others.

use std::collections::{HashMap, HashSet};

/// Names that a server accepts of an origin (`metrics_per_origin_max` of the store).
const NAMES_MAX: usize = 2_000;

/// The names of exporters, as hashes.
#[derive(Debug, Default)]
pub(super) struct NameShare {
    names: HashSet<u64>,
    /// Number of names that each exporter was the first to have.
    of_exporters: HashMap<u64, usize>,
}

impl NameShare {
    /// Whether an exporter may have a name. It may have a further one while more names are free than it has: so one has at
    /// most half of them, and the next one half of the rest. `used` names are those of the group.
    pub(super) fn admit(&mut self, exporter: u64, name: u64, used: usize) -> bool {
        if self.names.contains(&name) {
            return true;
        }
        let own = self.of_exporters.entry(exporter).or_default();
        let is_admitted = *own < NAMES_MAX.saturating_sub(self.names.len().max(used));
        if is_admitted {
            *own += 1;
            self.names.insert(name);
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporters_that_invent_names_leave_some_to_the_others() {
        let mut share = NameShare::default();
        let mut invent = |exporter: u64, used: usize| {
            (0..5000).filter(|n| share.admit(exporter, exporter * 10_000 + n, used)).count()
        };
        assert_eq!((invent(1, 0), invent(2, 0), invent(3, 0)), (1000, 500, 250));
        assert_eq!(invent(4, 1900), 100, "names of others count");
        assert!(share.admit(5, 10_000, 1990), "a name of another exporter");
    }
}
