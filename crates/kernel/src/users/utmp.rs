//! Who is logged in: `/var/run/utmp` (utmp(5); glibc, sysdeps/gnu/bits/utmp.h and utmp-size.h) and, on machines
//! without it, systemd's `/run/systemd/sessions/ID` (systemd, src/login/logind-session.c, `session_save`).
//!
//! `utmp` is an array of records of 384 bytes (400 on 64-bit ARM, RISC-V and others that had 64-bit times from the
//! beginning), in the machine's byte order:
//!
//! ```text
//! at 0    type, 16 bits: 7 is a user's process
//! at 4    process, 32 bits
//! at 8    terminal, 32 bytes, zeros behind it
//! at 44   user, 32 bytes
//! at 76   host, 256 bytes
//! at 340  seconds since 1970, 32 bits without sign (at 344, 64 bits)
//! ```
//!
//! A session of systemd is lines of `NAME=value`:
//!
//! ```text
//! UID=1000
//! USER=ann
//! STATE=active
//! REMOTE=1
//! CLASS=user
//! TTY=pts/0
//! REMOTE_HOST=login1
//! LEADER=4711
//! REALTIME=1767700000000000
//! ```

use crate::parse::{lines, number};
use std::ops::Range;

const TYPE_USER: u16 = 7;
/// Whether this architecture's records have times of 64 bits.
const WIDE: bool = cfg!(any(
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "loongarch64",
    target_arch = "arm"
));

const USER: Range<usize> = 44..76;
const HOST: Range<usize> = 76..332;
const ADDRESS: Range<usize> = if WIDE { 360..376 } else { 348..364 };

/// Bytes of a record.
pub const RECORD_BYTES: usize = if WIDE { 400 } else { 384 };

/// A session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session<'a> {
    /// The user.
    pub user: &'a [u8],
    /// The terminal, `pts/0`; empty if none.
    pub terminal: &'a [u8],
    /// The remote host; empty if none.
    pub host: &'a [u8],
    /// The start, in seconds since 1970.
    pub since: u64,
    /// The ID of its first process.
    pub process: u32,
}

/// The sessions of `utmp`; bytes after the last whole record are skipped, as one is being written there.
pub fn utmp(bytes: &[u8]) -> impl Iterator<Item = Session<'_>> {
    bytes.chunks_exact(RECORD_BYTES).filter_map(record)
}

fn record(record: &[u8]) -> Option<Session<'_>> {
    let kind = u16::from_ne_bytes(record.get(0..2)?.try_into().ok()?);
    let text = |range: Range<usize>| {
        let field = record.get(range).unwrap_or_default();
        field.split(|byte| *byte == 0).next().unwrap_or_default()
    };
    let since = match WIDE {
        true => u64::from_ne_bytes(record.get(344..352)?.try_into().ok()?),
        false => u64::from(u32::from_ne_bytes(record.get(340..344)?.try_into().ok()?)),
    };
    let process = u32::from_ne_bytes(record.get(4..8)?.try_into().ok()?);
    let (user, terminal, host) = (text(USER), text(8..40), text(HOST));
    let session = Session { user, terminal, host, since, process };
    (kind == TYPE_USER && !session.user.is_empty()).then_some(session)
}

/// The same records with names replaced, for `jobmeter capture`: users become `user1`, `user2` and so on, hosts
/// `host`, and their addresses 0.
pub fn without_names(bytes: &[u8]) -> Vec<u8> {
    let mut users: Vec<&[u8]> = Vec::new();
    let mut out = Vec::with_capacity(bytes.len());
    for record in bytes.chunks_exact(RECORD_BYTES) {
        let field = |range: Range<usize>| record.get(range).unwrap_or_default();
        let user = field(USER);
        let place = users.iter().position(|known| *known == user).unwrap_or_else(|| {
            users.push(user);
            users.len() - 1
        });
        let is_empty = |text: &[u8]| text.first().is_none_or(|byte| *byte == 0);
        let user = if is_empty(user) { String::new() } else { format!("user{}", place + 1) };
        let host = if is_empty(field(HOST)) { "" } else { "host" };
        let start = out.len();
        out.extend_from_slice(record);
        for (range, text) in [(USER, user.as_str()), (HOST, host), (ADDRESS, "")] {
            let place = out.get_mut(start + range.start..start + range.end).unwrap_or_default();
            place.fill(0);
            place.iter_mut().zip(text.as_bytes()).for_each(|(to, from)| *to = *from);
        }
    }
    out
}

/// A session of systemd, if it is a user's own and not ending: a manager, a greeter and a locked screen are
/// not sessions.
pub fn logind(text: &[u8]) -> Option<Session<'_>> {
    let mut session = Session { user: b"", terminal: b"", host: b"", since: 0, process: 0 };
    for line in lines(text) {
        let mut parts = line.splitn(2, |byte| *byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        match name {
            b"CLASS"
                if !matches!(
                    value,
                    b"user" | b"user-early" | b"user-light" | b"user-early-light"
                ) =>
            {
                return None;
            }
            b"STATE" if value == b"closing" => return None,
            b"USER" => session.user = value,
            b"TTY" => session.terminal = value,
            b"REMOTE_HOST" => session.host = value,
            b"LEADER" => session.process = number(value)?.try_into().ok()?,
            b"REALTIME" => session.since = number(value).unwrap_or(0) / 1_000_000,
            _ => {}
        }
    }
    (!session.user.is_empty()).then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(kind: u16, user: &[u8], since: u32) -> Vec<u8> {
        let mut record = vec![0; RECORD_BYTES];
        record[..2].copy_from_slice(&kind.to_ne_bytes());
        record[4..8].copy_from_slice(&4711_u32.to_ne_bytes());
        record[8..13].copy_from_slice(b"pts/0");
        record[44..44 + user.len()].copy_from_slice(user);
        record[76..82].copy_from_slice(b"login1");
        let at = if WIDE { 344 } else { 340 };
        record[at..at + 4].copy_from_slice(&since.to_ne_bytes());
        record
    }

    #[test]
    fn users_and_no_others() {
        let mut all = bytes(2, b"reboot", 1);
        all.extend(bytes(TYPE_USER, &[b'x'; 32], u32::MAX));
        all.extend(bytes(8, b"gone", 3));
        all.extend(bytes(TYPE_USER, b"ann", 1_767_700_000));
        let found: Vec<_> = utmp(&all).collect();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].user, found[0].since), (&[b'x'; 32][..], u64::from(u32::MAX)));
        let ann = Session {
            user: b"ann",
            terminal: b"pts/0",
            host: b"login1",
            since: 1_767_700_000,
            process: 4711,
        };
        assert_eq!(found[1], ann);
        for cut in 0..all.len() {
            assert_eq!(utmp(&all[..cut]).count(), usize::from(cut >= 2 * RECORD_BYTES), "{cut}");
        }
    }

    #[test]
    fn names_are_replaced_and_nothing_else() {
        let mut all = bytes(TYPE_USER, b"ann", 1_767_700_000);
        all.extend(bytes(TYPE_USER, b"bob", 5));
        all.extend(bytes(TYPE_USER, b"ann", 6));
        let other = without_names(&all);
        let found: Vec<_> = utmp(&other).map(|one| (one.user, one.host, one.since)).collect();
        let (ann, bob, host) = (&b"user1"[..], &b"user2"[..], &b"host"[..]);
        assert_eq!(found, [(ann, host, 1_767_700_000), (bob, host, 5), (ann, host, 6)]);
        assert_eq!(other.len(), all.len());
    }

    #[test]
    fn sessions_of_systemd() {
        let text = b"# This is private data. Do not parse.\nUID=1000\nUSER=ann\nACTIVE=1\nSTATE=active\n\
            REMOTE=1\nTYPE=tty\nCLASS=user\nTTY=pts/0\nREMOTE_HOST=login1\nLEADER=4711\nREALTIME=1767700000000000\n";
        let ann = Session {
            user: b"ann",
            terminal: b"pts/0",
            host: b"login1",
            since: 1_767_700_000,
            process: 4711,
        };
        assert_eq!(logind(text), Some(ann));
        for other in [
            "USER=ann\nCLASS=manager\n",
            "USER=gdm\nCLASS=greeter\n",
            "USER=ann\nSTATE=closing\n",
            "UID=1\n",
            "",
        ] {
            assert_eq!(logind(other.as_bytes()), None, "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..900)) {
            utmp(&bytes).for_each(drop);
            logind(&bytes);
            without_names(&bytes);
        }
    }
}
