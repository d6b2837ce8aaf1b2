//! Messages that are not stored, by reason and peer: for the log, one line a minute at most, and for the metric.

use super::message::Fault;
use model::{Timestamp, printable};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Interval between lines of the log.
const LOG_US: i64 = 60 * Timestamp::SECOND;
/// Peers that are counted apart between two lines.
const PEERS_MAX: usize = 256;
/// Peers that a line names.
const PEERS_NAMED: usize = 8;

/// Counts of a peer by the place of the fault in [`Fault::ALL`].
type Counts = [u64; Fault::ALL.len()];

/// The counts.
#[derive(Debug, Default)]
pub(super) struct FaultCounts {
    /// Messages without any fault since the start.
    pub(super) good: u64,
    since_start: Counts,
    /// Since the last line; `None` are the peers beyond those that are counted apart.
    of_peers: BTreeMap<Option<IpAddr>, Counts>,
    /// What is wrong with the last one.
    last: String,
    logged: Option<Timestamp>,
}

impl FaultCounts {
    /// Counts a fault.
    pub(super) fn count(&mut self, peer: IpAddr, fault: Fault, what: &str) {
        let peer = Some(peer.to_canonical());
        let is_known = self.of_peers.contains_key(&peer);
        let key = if is_known || self.of_peers.len() < PEERS_MAX { peer } else { None };
        let place = Fault::ALL.iter().position(|one| *one == fault).unwrap_or_default();
        for counts in [&mut self.since_start, self.of_peers.entry(key).or_default()] {
            if let Some(count) = counts.get_mut(place) {
                *count += 1;
            }
        }
        what.clone_into(&mut self.last);
    }

    /// The line for the log, if one is due.
    pub(super) fn line(&mut self, now: Timestamp) -> Option<String> {
        let is_due = self.logged.is_none_or(|logged| now.since(logged) >= LOG_US);
        if self.of_peers.is_empty() || !is_due {
            return None;
        }
        self.logged = Some(now);
        let mut all: Vec<_> = std::mem::take(&mut self.of_peers).into_iter().collect();
        all.sort_by_key(|(peer, counts)| (peer.is_none(), u64::MAX - counts.iter().sum::<u64>()));
        let mut parts: Vec<String> = Vec::new();
        let mut others = Counts::default();
        for (place, (peer, counts)) in all.iter().enumerate() {
            match peer {
                Some(peer) if place < PEERS_NAMED => {
                    parts.push(format!("{peer}: {}", words(counts)))
                }
                _ => others.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count),
            }
        }
        if others != Counts::default() {
            parts.push(format!("other peers: {}", words(&others)));
        }
        let last = printable(&self.last.chars().take(200).collect::<String>()).into_owned();
        Some(format!("not stored as sent: {} (the last one: {last})", parts.join("; ")))
    }

    /// The counts since the start by state: the good messages first. States without any are left out.
    pub(super) fn states(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let faults = Fault::ALL.iter().map(|fault| fault.word()).zip(self.since_start);
        [("ok", self.good)].into_iter().chain(faults).filter(|(_, count)| *count > 0)
    }
}

/// `bad 3, repeated 1`.
fn words(counts: &Counts) -> String {
    let faults = Fault::ALL.iter().zip(counts).filter(|(_, count)| **count > 0);
    let words: Vec<String> = faults.map(|(it, count)| format!("{} {count}", it.word())).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn a_line_a_minute_has_all_counts() {
        let mut counts = FaultCounts { good: 7, ..FaultCounts::default() };
        assert_eq!(counts.line(Timestamp(0)), None);
        counts.count(peer(1), Fault::Bad, "first");
        counts.count(peer(1), Fault::Bad, "\u{1b}[2J");
        counts.count(peer(2), Fault::Late, "late");
        let line = counts.line(Timestamp(0)).unwrap();
        assert_eq!(
            line,
            "not stored as sent: 10.0.0.1: bad 2; 10.0.0.2: late 1 (the last one: late)"
        );
        counts.count(peer(1), Fault::Repeated, "again");
        assert_eq!(counts.line(Timestamp(59_999_999)), None);
        let line = counts.line(Timestamp(60_000_000)).unwrap();
        assert!(line.contains("10.0.0.1: repeated 1 ("), "{line}");
        let states: Vec<_> = counts.states().collect();
        assert_eq!(states, [("ok", 7), ("bad", 2), ("repeated", 1), ("late", 1)]);
    }

    #[test]
    fn any_number_of_peers_is_one_line() {
        let mut counts = FaultCounts::default();
        for number in 0..1000 {
            counts.count(peer(number), Fault::Truncated, "");
        }
        assert_eq!(counts.of_peers.len(), PEERS_MAX + 1);
        let line = counts.line(Timestamp(0)).unwrap();
        assert!(line.contains("other peers: truncated 992") && line.len() < 500, "{line}");
    }
}
