//! `/proc/fs/beegfs/SESSION/` of BeeGFS's client module: its servers and their connections, the states of their
//! targets, its own queues (client_module/source/filesystem/ProcFsHelper.c, BeeGFS 7 and 8; the names of states,
//! client_module/source/common/nodes/TargetStateStore.c).
//!
//! ```text
//! storage-01 [ID: 1]
//!    Connections: TCP: 1 (192.0.2.7:8003 [fallback route]); RDMA: 4 (192.0.2.8:8003);
//! ```
//!
//! `meta_target_state` and `storage_target_state` have a line for each target, `.status` a number in each line:
//!
//! ```text
//! [Target ID: 101] @ beegfs-storage storage-01 [ID: 1]: Online / Good
//! numDelayedClose: 0
//! ```

use crate::parse::{ParseError, number, whole_lines};

/// The transports of connections, in the order of [`Server::connections`].
pub const WAYS: [&str; 3] = ["tcp", "sdp", "rdma"];

/// A server as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Open connections, by [`WAYS`].
    pub connections: [u64; WAYS.len()],
    /// Whether the first connection of some transport uses an address that is not the preferred one.
    pub is_fallback: bool,
}

/// The servers of `mgmt_nodes`, `meta_nodes` or `storage_nodes`. A server with connections that the client
/// could not list is skipped.
///
/// # Errors
/// The text is truncated, or a line is malformed.
pub fn servers(text: &[u8], mut show: impl FnMut(Server<'_>)) -> Result<(), ParseError> {
    let mut name = None;
    for line in whole_lines(text)? {
        let wrong = ParseError::at(line);
        if !line.starts_with(b" ") {
            let end = line.windows(6).rposition(|part| part == b" [ID: ").ok_or(wrong)?;
            name = line.get(..end);
            continue;
        }
        let Some(list) = line.trim_ascii().strip_prefix(b"Connections:") else { continue };
        let name = name.take().ok_or(wrong)?;
        let (mut connections, mut is_fallback) = ([0; WAYS.len()], false);
        for part in list.split(|byte| *byte == b';').map(<[u8]>::trim_ascii) {
            if part.is_empty() || part == b"<none>" {
                continue;
            }
            let colon = part.iter().position(|byte| *byte == b':').ok_or(wrong)?;
            let (way, rest) = part.split_at_checked(colon).ok_or(wrong)?;
            let rest = rest.get(1..).unwrap_or_default().trim_ascii_start();
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let count = number(rest.get(..digits).unwrap_or_default()).ok_or(wrong)?;
            let place = WAYS.iter().position(|known| known.as_bytes().eq_ignore_ascii_case(way));
            // Other transports are not counted.
            if let Some(sum) = place.and_then(|place| connections.get_mut(place)) {
                *sum = count;
            }
            is_fallback |= rest.ends_with(b"[fallback route])");
        }
        show(Server { name, connections, is_fallback });
    }
    Ok(())
}

/// Reachability of a target, in the order of the client's own states.
pub const REACH: [(&[u8], &str); 3] =
    [(b"Online", "online"), (b"Probably-offline", "probably_offline"), (b"Offline", "offline")];
/// Consistency of its data.
pub const CONSISTENCY: [(&[u8], &str); 3] =
    [(b"Good", "good"), (b"Needs-resync", "needs_resync"), (b"Bad", "bad")];

/// Targets by reachability, and by consistency of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets {
    /// By [`REACH`].
    pub reach: [u64; REACH.len()],
    /// By [`CONSISTENCY`].
    pub consistency: [u64; CONSISTENCY.len()],
}

/// Counts the targets of `meta_target_state` or `storage_target_state`.
///
/// # Errors
/// The text is truncated, or a line lacks two known states.
pub fn targets(text: &[u8]) -> Result<Targets, ParseError> {
    let mut targets = Targets::default();
    for line in whole_lines(text)? {
        let wrong = ParseError::at(line);
        let states = line.trim_ascii();
        let slash = states.windows(3).rposition(|part| part == b" / ").ok_or(wrong)?;
        let (before, consistency) = states.split_at_checked(slash).ok_or(wrong)?;
        let colon = before.windows(2).rposition(|part| part == b": ").ok_or(wrong)?;
        let reach = before.get(colon + 2..).ok_or(wrong)?;
        let consistency = consistency.get(3..).ok_or(wrong)?;
        count(&REACH, reach, &mut targets.reach).ok_or(wrong)?;
        count(&CONSISTENCY, consistency, &mut targets.consistency).ok_or(wrong)?;
    }
    Ok(targets)
}

fn count(states: &[(&[u8], &str)], state: &[u8], counts: &mut [u64]) -> Option<()> {
    let place = states.iter().position(|(known, _)| *known == state)?;
    *counts.get_mut(place)? += 1;
    Some(())
}

/// The numbers of `.status`, by their names.
///
/// # Errors
/// The text is truncated, or a line has no number.
pub fn status(text: &[u8], mut show: impl FnMut(&[u8], u64)) -> Result<(), ParseError> {
    for line in whole_lines(text)? {
        let wrong = ParseError::at(line);
        let colon = line.iter().position(|byte| *byte == b':').ok_or(wrong)?;
        let (name, rest) = line.split_at_checked(colon).ok_or(wrong)?;
        let value = rest.get(1..).unwrap_or_default().trim_ascii();
        show(name, number(value).ok_or(wrong)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SERVERS: &str = "meta 01 [ID: 1]\n   Root: <yes>\n   Connections: TCP: 12 (192.0.2.7:8005); \n\
        s-02 [ID: 2]\n   Connections: TCP: 1 (192.0.2.8:8003 [fallback route]); RDMA: 4 (192.0.2.9:8003); \n\
        s-03 [ID: 3]\n   Connections: <none>\ns-04 [ID: 4]\n   Connections not available [Error: Out of memory]\n";
    const TARGETS: &str = "[Target ID: 101] @ beegfs-storage s-02 [ID: 2]: Online / Good \n\
        [Target ID: 102] @ beegfs-storage s-02 [ID: 2]: Probably-offline / Needs-resync \n";

    type ServerRow = (Vec<u8>, [u64; 3], bool);

    fn all(text: &[u8]) -> Result<Vec<ServerRow>, ParseError> {
        let mut all = Vec::new();
        servers(text, |one| all.push((one.name.to_vec(), one.connections, one.is_fallback)))?;
        Ok(all)
    }

    #[test]
    fn servers_and_their_connections() {
        let want = [
            (b"meta 01".to_vec(), [12, 0, 0], false),
            (b"s-02".to_vec(), [1, 0, 4], true),
            (b"s-03".to_vec(), [0, 0, 0], false),
        ];
        assert_eq!(all(SERVERS.as_bytes()).unwrap(), want);
        assert_eq!(all(b""), Ok(Vec::new()));
        for text in ["s-02\n", "   Connections: <none>\n", "s [ID: 1]\n   Connections: TCP: x\n"] {
            assert!(all(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn targets_by_their_states_and_the_clients_queues() {
        let found = targets(TARGETS.as_bytes()).unwrap();
        assert_eq!(found, Targets { reach: [1, 1, 0], consistency: [1, 1, 0] });
        assert_eq!(targets(b""), Ok(Targets::default()));
        assert!(targets(b"[Target ID: 1] @ x: Online / <invalid_value> \n").is_err());
        let mut found = Vec::new();
        status(b"numDelayedClose: 3\nnumFlushRefs: 0\n", |name, n| found.push((name.len(), n)))
            .unwrap();
        assert_eq!(found, [(15, 3), (12, 0)]);
        assert!(status(b"numDelayedClose: \n", |_, _| ()).is_err());
    }

    #[test]
    fn every_truncated_text_is_rejected_or_ends_a_line() {
        for text in [SERVERS, TARGETS] {
            for cut in 1..text.len() {
                let bytes = &text.as_bytes()[..cut];
                if bytes.ends_with(b"\n") {
                    continue;
                }
                assert!(all(bytes).is_err() && targets(bytes).is_err(), "{cut}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            all(&bytes).ok();
            targets(&bytes).ok();
            status(&bytes, |_, _| ()).ok();
        }

        #[test]
        fn no_words_panic(words in "(s1| \\[ID: 1\\]|   |Connections:|TCP|RDMA|: |[0-9]{1,21}|;| / |Online|Good|\n| ){0,40}") {
            all(words.as_bytes()).ok();
            targets(words.as_bytes()).ok();
            status(words.as_bytes(), |_, _| ()).ok();
        }
    }
}
