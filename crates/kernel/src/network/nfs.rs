//! The NFS client: `/proc/self/mountstats` (proc_pid_mountstats(5); fs/nfs/super.c, `nfs_show_stats`, and
//! net/sunrpc/stats.c, `rpc_clnt_show_stats`, Linux 6.18) and `/proc/net/rpc/nfs` (net/sunrpc/stats.c).
//!
//! ```text
//! device nfs1:/home mounted on /home with fstype nfs4 statvers=1.1
//!         age:    12345
//!         bytes:  4096 8192 0 0 4096 8192 1 2
//!         per-op statistics
//!                 READ: 9 10 0 1548 4096 12 340 371 0
//! ```
//!
//! An operation's numbers: requests, times sent, times out, bytes sent, bytes received, milliseconds in the queue,
//! until the answer, and in all; from Linux 5.3 on the errors. Old mounts stand beside those of other file systems,
//! which have no numbers.
//!
//! ```text
//! net 0 0 0 0
//! rpc 4711 3 4711
//! ```
//!
//! These are requests, requests sent again, and refreshed credentials of all mounts, in numbers of 32 bits.

use crate::parse::{Fields, ParseError, whole_lines};

/// The content of `mountstats`, in order: a mount, then its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountStat<'a> {
    /// The mount of the following numbers, with fields as written there ([`crate::machine::mounts::unescape`]).
    Mount {
        /// `nfs1:/home`.
        export: &'a [u8],
        /// The mount point.
        path: &'a [u8],
    },
    /// Its bytes.
    Bytes(Bytes),
    /// One of its operations.
    Operation {
        /// `READ`.
        name: &'a [u8],
        /// Its numbers.
        numbers: Operation,
    },
}

/// The bytes of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Read by programs through the page cache.
    pub read: u64,
    /// Written by programs through the page cache.
    pub written: u64,
    /// Read by programs past the page cache.
    pub direct_read: u64,
    /// Written by programs past the page cache.
    pub direct_written: u64,
    /// Read from the server.
    pub server_read: u64,
    /// Written to the server.
    pub server_written: u64,
}

/// The numbers of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Answered requests.
    pub requests: u64,
    /// Transmissions.
    pub sent: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Milliseconds in the queue before transmission.
    pub queue_ms: u64,
    /// Milliseconds from transmission to the answer.
    pub response_ms: u64,
    /// Milliseconds in total.
    pub total_ms: u64,
    /// Failed requests, if the kernel counts them.
    pub errors: Option<u64>,
}

/// Reads `mountstats`, showing the mounts of NFS with their numbers.
///
/// # Errors
/// The text is truncated, a mount's line lacks a field, or a number is malformed.
pub fn mountstats<'a>(
    text: &'a [u8],
    mut show: impl FnMut(MountStat<'a>),
) -> Result<(), ParseError> {
    let (mut of_nfs, mut operations) = (false, false);
    for line in whole_lines(text)? {
        let mut fields = Fields::of(line);
        let Ok(first) = fields.word() else { continue };
        if !line.starts_with(b"\t") && !line.starts_with(b" ") {
            (of_nfs, operations) = (false, false);
            // `no device mounted on …` has no numbers.
            if first == b"device"
                && let Some(mount) = mount(&mut fields)?
            {
                of_nfs = true;
                show(mount);
            }
            continue;
        }
        match first {
            _ if !of_nfs => {}
            b"bytes:" => show(MountStat::Bytes(bytes(&mut fields)?)),
            b"per-op" => operations = true,
            name if operations => {
                let name = name.strip_suffix(b":").ok_or(ParseError::at(line))?;
                show(MountStat::Operation { name, numbers: operation(&mut fields)? });
            }
            _ => {}
        }
    }
    Ok(())
}

/// The mount of a `device` line, if it is NFS and has numbers.
fn mount<'a>(fields: &mut Fields<'a>) -> Result<Option<MountStat<'a>>, ParseError> {
    let export = fields.word()?;
    fields.skip(2)?;
    let path = fields.word()?;
    fields.skip(2)?;
    let kind = fields.word()?;
    let has_numbers = fields.rest().starts_with(b"statvers=1.");
    Ok((matches!(kind, b"nfs" | b"nfs4") && has_numbers)
        .then_some(MountStat::Mount { export, path }))
}

fn bytes(fields: &mut Fields<'_>) -> Result<Bytes, ParseError> {
    Ok(Bytes {
        read: fields.number()?,
        written: fields.number()?,
        direct_read: fields.number()?,
        direct_written: fields.number()?,
        server_read: fields.number()?,
        server_written: fields.number()?,
    })
}

fn operation(fields: &mut Fields<'_>) -> Result<Operation, ParseError> {
    let mut numbers = Operation {
        requests: fields.number()?,
        sent: fields.number()?,
        timeouts: fields.number()?,
        sent_bytes: fields.number()?,
        received_bytes: fields.number()?,
        queue_ms: fields.number()?,
        response_ms: fields.number()?,
        total_ms: fields.number()?,
        errors: None,
    };
    if !fields.rest().is_empty() {
        numbers.errors = Some(fields.number()?);
    }
    Ok(numbers)
}

/// The line `rpc` of `/proc/net/rpc/nfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rpc {
    /// Requests.
    pub calls: u64,
    /// Requests sent again.
    pub retransmits: u64,
    /// Credentials refreshed.
    pub refreshes: u64,
}

/// Reads `/proc/net/rpc/nfs`.
///
/// # Errors
/// The text is truncated, or has no line `rpc` with three numbers.
pub fn rpc(text: &[u8]) -> Result<Rpc, ParseError> {
    for line in whole_lines(text)? {
        let mut fields = Fields::of(line);
        if fields.word() == Ok(b"rpc") {
            return Ok(Rpc {
                calls: fields.number()?,
                retransmits: fields.number()?,
                refreshes: fields.number()?,
            });
        }
    }
    Err(ParseError::at(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"device proc mounted on /proc with fstype proc\n\
        no device mounted on /x with fstype y\n\
        device nfs1:/home mounted on /home with fstype nfs4 statvers=1.1\n\
        \topts:\trw,vers=4.2,hard\n\tage:\t12345\n\
        \tbytes:\t1 2 3 4 5 6 7 8 \n\
        \tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n\
        \txprt:\ttcp 875 1 1 0 0 86 86 0 86 0 2 0 0\n\
        \tper-op statistics\n\
        \t        NULL: 1 1 0 44 24 0 0 0 0\n\
        \t        READ: 9 10 1 1548 4096 12 340 371 2\n\n\
        device old:/a mounted on /a with fstype nfs statvers=1.0\n\
        \tper-op statistics\n\
        \t        READ: 1 2 3 4 5 6 7 8\n\
        device tmpfs mounted on /t with fstype tmpfs\n";

    fn all(text: &[u8]) -> Result<Vec<MountStat<'_>>, ParseError> {
        let mut found = Vec::new();
        mountstats(text, |one| found.push(one))?;
        Ok(found)
    }

    #[test]
    fn mounts_and_their_numbers() {
        let found = all(TEXT).unwrap();
        assert_eq!(found.len(), 6);
        assert_eq!(found[0], MountStat::Mount { export: b"nfs1:/home", path: b"/home" });
        let MountStat::Bytes(bytes) = found[1] else { panic!() };
        assert_eq!((bytes.read, bytes.direct_written, bytes.server_written), (1, 4, 6));
        let MountStat::Operation { name, numbers } = found[3] else { panic!() };
        assert_eq!((name, numbers.requests, numbers.sent), (&b"READ"[..], 9, 10));
        assert_eq!((numbers.total_ms, numbers.errors), (371, Some(2)));
        let MountStat::Operation { numbers, .. } = found[5] else { panic!() };
        assert_eq!((numbers.total_ms, numbers.errors), (8, None));
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            let lines = cut == 0 || TEXT[..cut].ends_with(b"\n");
            assert_eq!(all(&TEXT[..cut]).is_ok(), lines, "{cut}");
        }
        assert!(all(b"device nfs1:/home mounted on\n").is_err());
    }

    #[test]
    fn requests_of_all_mounts() {
        let found = rpc(b"net 0 0 0 0\nrpc 4711 3 4712\nproc4 2 1 1\n").unwrap();
        assert_eq!(found, Rpc { calls: 4711, retransmits: 3, refreshes: 4712 });
        for text in ["net 0 0 0 0\n", "rpc 1 2\n", "rpc 1 2 3", ""] {
            assert!(rpc(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            all(&bytes).ok();
            rpc(&bytes).ok();
        }

        #[test]
        fn no_changed_byte_panics(place in 0..TEXT.len(), byte: u8) {
            let mut text = TEXT.to_vec();
            text[place] = byte;
            all(&text).ok();
        }
    }
}
