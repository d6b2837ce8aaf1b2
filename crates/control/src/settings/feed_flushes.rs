//! The flushes that a feed of a wattmeter receives.

use super::compose::flush_holds;
use super::node_settings_cache::Active;
use crate::demand::Flush;
use config::FED_SOURCE;
use model::Timestamp;
use std::collections::BTreeMap;

impl Active {
    /// Returns the flushes of wattmeters with those of these names that they concern, by ID and the instant of the
    /// request.
    pub fn feed_flushes_of<'a>(
        &self,
        names: &'a [String],
        now: Timestamp,
    ) -> BTreeMap<(i64, Timestamp), Vec<&'a str>> {
        let mut found: BTreeMap<_, Vec<&str>> = BTreeMap::new();
        for name in names {
            let get = |at: usize| self.held.flushes.get(at).map(|one| (one, &one.nodes));
            let of_name = self.flushes.find(name, get).into_iter();
            let of_feeds = of_name.filter(|one| of_feed(one) && flush_holds(one, now));
            of_feeds.for_each(|one| found.entry((one.number, one.made)).or_default().push(name));
        }
        found
    }
}

/// Whether feeds, not agents, receive a flush.
pub(super) fn of_feed(flush: &Flush) -> bool {
    *flush.source == *FED_SOURCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demand::ActiveRequests;
    use model::NodeList;

    #[test]
    fn feeds_receive_their_flushes_for_ten_minutes() {
        let flush = |number, nodes: &str, source: &str| Flush {
            number,
            nodes: NodeList::new(nodes).unwrap(),
            source: source.into(),
            made: Timestamp(0),
            by: "root".into(),
        };
        let flushes = vec![
            flush(1, "w-port[0-1]", "wattmetre"),
            flush(2, "w-port1,node-7", "wattmetre"),
            flush(3, "*", "cpu"),
        ];
        let active = Active::new(ActiveRequests { flushes, ..ActiveRequests::default() });
        let names = ["w-port0", "w-port1", "node-7"].map(str::to_owned);
        let found = active.feed_flushes_of(&names, Timestamp(1));
        let [first, second] = [1, 2].map(|number| (number, Timestamp(0)));
        let expected = [(first, vec!["w-port0", "w-port1"]), (second, vec!["w-port1", "node-7"])];
        assert_eq!(found, expected.into());
        let later = Timestamp(11 * 60 * Timestamp::SECOND);
        assert_eq!(active.feed_flushes_of(&names, later), BTreeMap::new());
    }
}
