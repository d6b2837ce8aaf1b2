//! Changes that the server makes to the configuration, with their expiry and its one-time flush requests.

use crate::reading::plan::{NO_BURST, may_burst, source_settings};
use config::{AgentConfig, FirstReceived, RemoteChange, read_remote};
use model::Timestamp;
use std::collections::VecDeque;

/// Maximum number of remembered flush requests. The agent ignores a request that it remembers.
const SEEN_MAX: usize = 256;

/// Changes that the server makes.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    change: Option<RemoteChange>,
    received: FirstReceived,
    seen: VecDeque<(String, u64)>,
}

/// Actions that result from a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Sources that send their burst samples.
    pub(crate) flushes: Vec<String>,
    /// Parts of the change that the node's own configuration rejects.
    pub(crate) rejected: Vec<String>,
}

impl Changes {
    /// The change in effect, if there is one.
    pub(crate) const fn change(&self) -> Option<&RemoteChange> {
        self.change.as_ref()
    }

    /// Applies a change from the server, as far as the node's own file allows it.
    pub(crate) fn take(
        &mut self,
        generation: u64,
        text: &[u8],
        config: &AgentConfig,
        now: Timestamp,
    ) -> Taken {
        let sources = source_settings();
        let mut change =
            read_remote(text, now, &mut self.received, &config.remote, &config.burst, &sources);
        let rejected = &mut change.rejected;
        change.bursts.retain(|source, _| {
            let may = may_burst(source);
            if !may {
                rejected.push(format!("server: `burst.{source}`: `{source}` {NO_BURST}"));
            }
            may
        });
        let flushes = change.flushes.iter().filter(|flush| self.is_new(flush)).cloned();
        let flushes: Vec<_> = flushes.collect();
        for flush in &flushes {
            if self.seen.len() >= SEEN_MAX {
                self.seen.pop_front();
            }
            self.seen.push_back(flush.clone());
        }
        let until =
            change.next_end().map_or_else(String::new, |end| format!("; the first until {end}"));
        log::info!("the server's configuration {generation} changes {}{until}", change.summary());
        for rejected in &change.rejected {
            log::warn!("rejected of the server's configuration {generation}: {rejected}");
        }
        let rejected = std::mem::take(&mut change.rejected);
        self.change = (generation != 0).then_some(change);
        Taken { flushes: flushes.into_iter().map(|(source, _)| source).collect(), rejected }
    }

    fn is_new(&self, flush: &(String, u64)) -> bool {
        !self.seen.contains(flush)
    }

    /// Removes expired parts. Returns whether there were any.
    pub(crate) fn expire(&mut self, now: Timestamp) -> bool {
        self.change.as_mut().is_some_and(|change| change.expire(now))
    }

    /// Time at which the next part expires.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.change.as_ref().and_then(RemoteChange::next_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ConfigFile, Given};

    fn config(allow: &str) -> AgentConfig {
        let flags = vec![("remote.allow".to_owned(), config::Raw::One(allow.to_owned()))];
        let given = Given { file: ConfigFile::None, environment: &|_| None, flags };
        crate::reading::plan::load(&given).unwrap().config
    }

    #[test]
    fn each_number_flushes_once() {
        let (mut changes, config) = (Changes::default(), config("bursts"));
        let flush = |number: u64| format!("[[flush]]\nsource = \"cpu\"\nnumber = {number}\n");
        let mut take = |text: &str| changes.take(1, text.as_bytes(), &config, Timestamp(0)).flushes;
        assert_eq!(take(&flush(17)), ["cpu"]);
        assert_eq!(take(&flush(17)), [""; 0]);
        assert_eq!(take(&format!("{}{}", flush(17), flush(18))), ["cpu"]);
        assert_eq!(take(&flush(17)), [""; 0], "one that was seen before another is not new");
    }

    #[test]
    fn a_value_that_a_source_reports_once_is_not_kept() {
        let (mut changes, config) = (Changes::default(), config("bursts"));
        let text = "[burst.exec]\nuntil = 60\n[burst.cpu]\nuntil = 60\n";
        let taken = changes.take(3, text.as_bytes(), &config, Timestamp(0));
        assert_eq!(taken.rejected.len(), 1, "{taken:?}");
        let held = |changes: &Changes| {
            let bursts = &changes.change().unwrap().bursts;
            bursts.keys().map(String::clone).collect::<Vec<_>>()
        };
        assert_eq!(held(&changes), ["cpu"]);
        assert_eq!(changes.next_end(), Some(Timestamp::from_seconds(60)));
        assert!(changes.expire(Timestamp::from_seconds(60)));
        assert_eq!((held(&changes).len(), changes.next_end()), (0, None));
        changes.take(0, b"", &config, Timestamp(0));
        assert_eq!(changes.change(), None);
    }
}
