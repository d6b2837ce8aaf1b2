//! What arrives, the records in it, and why it is not stored.

use colmet::frame::{self, FrameReason};
use colmet::msgpack::{self, MsgpackReason};
use colmet::record::Record;
use std::net::IpAddr;
use std::time::Duration;

/// Where messages come from.
pub(super) trait MessageInput {
    /// The next arrival; `None` if there is none within the time. Nothing is read outside of this call.
    fn next(&mut self, within: Duration) -> Option<Arrival>;
}

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Message(Message),
    /// A peer did something that is no message.
    Fault(IpAddr, Fault, String),
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) peer: IpAddr,
    pub(super) bytes: Vec<u8>,
}

/// Why a message or a record of it is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// No message of Colmet, or a damaged one.
    Bad,
    Truncated,
    Oversized,
    /// The connection does not follow ZeroMQ's protocol.
    Protocol,
    ForeignAddress,
    ForeignHost,
    /// A host or a job with an impossible name.
    WrongName,
    WrongTime,
    Repeated,
    /// A record that is older than its predecessor. Only its counters that the next record contains are not stored.
    Late,
    /// More hosts, jobs or connections than are accepted.
    TooMany,
}

impl Fault {
    pub(super) const ALL: [Self; 11] = [
        Self::Bad,
        Self::Truncated,
        Self::Oversized,
        Self::Protocol,
        Self::ForeignAddress,
        Self::ForeignHost,
        Self::WrongName,
        Self::WrongTime,
        Self::Repeated,
        Self::Late,
        Self::TooMany,
    ];

    /// Its state in the metric and in the log.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Bad => "bad",
            Self::Truncated => "truncated",
            Self::Oversized => "oversized",
            Self::Protocol => "protocol",
            Self::ForeignAddress => "foreign_address",
            Self::ForeignHost => "foreign_host",
            Self::WrongName => "wrong_name",
            Self::WrongTime => "wrong_time",
            Self::Repeated => "repeated",
            Self::Late => "late",
            Self::TooMany => "too_many",
        }
    }
}

/// The records of a message. An error may be followed by records.
pub(super) enum Records<'a> {
    Frames(frame::Records<'a>),
    Msgpack(msgpack::Records<'a>),
}

impl<'a> Records<'a> {
    /// Recognises the format: Rust nodes send a map, Python nodes the name of a backend.
    pub(super) fn of(message: &'a [u8]) -> Self {
        match message.first() {
            Some(0x80..=0x8f | 0xde | 0xdf) => Self::Msgpack(msgpack::Records::of(message)),
            _ => Self::Frames(frame::Records::of(message)),
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, (Fault, String)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Frames(records) => records.next().map(|record| {
                record.map_err(|error| {
                    let fault = match error.reason {
                        FrameReason::Truncated { .. } => Fault::Truncated,
                        FrameReason::Time(_) => Fault::WrongTime,
                        FrameReason::Backend(_) | FrameReason::Text(_) => Fault::Bad,
                    };
                    (fault, error.to_string())
                })
            }),
            Self::Msgpack(records) => records.next().map(|record| {
                record.map_err(|error| {
                    let fault = match error.reason {
                        MsgpackReason::Truncated | MsgpackReason::Length { .. } => Fault::Truncated,
                        _ => Fault::Bad,
                    };
                    (fault, error.to_string())
                })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<u8> {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/colmet/");
        std::fs::read(format!("{dir}{name}")).unwrap()
    }

    #[test]
    fn each_format_is_recognised() {
        for name in [
            "colmet_py0610_procstats_only_9202B.bin",
            "colmet_py0610_all10_synthetic.bin",
            "colmet_rs_msgpack_v1_99B.bin",
            "colmet_rust_branch_synthetic.bin",
            "colmet_collector_v1_expected_synthetic.bin",
        ] {
            let bytes = fixture(name);
            let found: Vec<_> = Records::of(&bytes).collect();
            assert!(!found.is_empty() && found.iter().all(Result::is_ok), "{name}: {found:?}");
        }
    }

    #[test]
    fn wrong_messages_have_a_reason() {
        let first =
            |bytes: &[u8]| Records::of(bytes).next().map(|record| record.map_err(|it| it.0));
        assert_eq!(first(b""), None);
        let mut unknown = vec![0_u8; 600];
        unknown[..7].copy_from_slice(b"unknown");
        assert_eq!(first(&unknown), Some(Err(Fault::Bad)));
        assert_eq!(first(b"short"), Some(Err(Fault::Truncated)));
        let whole = fixture("colmet_py0610_procstats_only_9202B.bin");
        assert_eq!(first(&whole[..900]), Some(Err(Fault::Truncated)));
        assert_eq!(first(&[0xdf, 0xff, 0xff, 0xff, 0xff]), Some(Err(Fault::Truncated)));
        // A message of settings is none of records.
        assert_eq!(first(&fixture("colmet_rs_reconfig_msg.bin")), Some(Err(Fault::Bad)));
    }
}
