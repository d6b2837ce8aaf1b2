//! The output `colmet`: frames of Python's Colmet, pushed over ZeroMQ to a collector.
//!
//! A collector acknowledges nothing. A message counts as sent when its last byte is in the kernel's buffer. While no collector
//! is there, or it does not read, the output waits: the store is the buffer.

use crate::portion::Portion;
use crate::records::NEEDS_CLUSTER;
use crate::records::{CLUSTER, DOMAIN, Layout, PERF_COUNTERS};
use crate::spec::{Guarantee, Output, Spec, WriteError};
use crate::written_file::option;
use colmet::frame::{self, EncodeError};
use colmet::record::Record;
use config::OutputConfig;
use model::setting::{Kind, OptionSpec};
use std::time::Duration;
use storage::FollowMark;
use zmtp::{PeerError, Push, tcp_address};

/// Longest wait for a connection and its handshake.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest wait for a message to be written: a change of the configuration waits as long.
const WRITE: Duration = Duration::from_secs(2);

/// The address of the collector.
const ADDRESS: OptionSpec = OptionSpec {
    name: "address",
    kind: Kind::TextOf("tcp://HOST:PORT", is_address),
    default: "",
    help: "The address to which nodes of the collector send: its `--zeromq-bind-uri`.",
};

/// The kind.
pub(super) const SPEC: Spec = Spec {
    name: "colmet",
    help: "A collector of Colmet (Python, 0.6.6 to 0.6.10), by ZeroMQ. It receives a message for each node and instant, as from Colmet's nodes.",
    guarantee_help: "sent: the bytes of each message are written; what the collector has not read when it ends is lost",
    options: &[ADDRESS, CLUSTER, DOMAIN, PERF_COUNTERS],
    guarantee: |_| Guarantee::Sent,
    check,
    records: Layout::of,
    open,
    // A second copy of a record is a second row in the collector's files.
    ..Spec::DEFAULT
};

fn is_address(text: &str) -> Result<(), String> {
    if text.is_empty() { Ok(()) } else { tcp_address(text).map(drop) }
}

fn check(config: &OutputConfig) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    if let Err(what) = address_of(config) {
        wrong.push((ADDRESS.name, what));
    }
    if Layout::of(config).is_none() {
        wrong.push((CLUSTER.name, NEEDS_CLUSTER.to_owned()));
    }
    wrong
}

fn address_of(config: &OutputConfig) -> Result<&str, String> {
    match option(config, ADDRESS.name) {
        "" => Err("it needs `address`, the collector's: tcp://HOST:PORT".to_owned()),
        address => tcp_address(address),
    }
}

fn open(config: &OutputConfig, _: &std::path::Path) -> Result<Box<dyn Output>, WriteError> {
    if Layout::of(config).is_none() {
        return Err(WriteError::new(NEEDS_CLUSTER));
    }
    let address = address_of(config).map_err(WriteError::new)?.to_owned();
    let name = config.name.clone();
    Ok(Box::new(Collector { name, address, connection: None, sending: None, left_out: 0 }))
}

struct Collector {
    /// The output's name, for the log.
    name: Box<str>,
    address: String,
    connection: Option<Push>,
    sending: Option<Sending>,
    /// Records that frames cannot hold.
    left_out: u64,
}

/// How much of a portion is written.
#[derive(Clone, Copy)]
struct Sending {
    mark: FollowMark,
    /// A portion with the same mark and other records begins again.
    records: usize,
    /// Messages that are wholly written.
    written: usize,
    /// The connection has the next message, or a part of it.
    is_begun: bool,
}

impl Output for Collector {
    fn write(&mut self, portion: &Portion) -> Result<(), WriteError> {
        let (mark, records) = (portion.mark, portion.records.len());
        let is_same = |one: &Sending| (one.mark, one.records) == (mark, records);
        let new = Sending { mark, records, written: 0, is_begun: false };
        let mut sending = self.sending.filter(is_same).unwrap_or(new);
        let result = self.send_rest(&portion.records, &mut sending);
        self.sending = Some(sending);
        result.map_err(|why| WriteError::new(format!("tcp://{}: {why}", self.address)))
    }
}

impl Collector {
    /// Sends what is not written yet.
    fn send_rest(&mut self, records: &[Record], sending: &mut Sending) -> Result<(), String> {
        for message in frame::by_message(records).iter().skip(sending.written) {
            let is_written = self.send(message, sending).map_err(|why| {
                // A message that was cut off follows again: the collector drops its first part.
                self.connection = None;
                sending.is_begun = false;
                why.to_string()
            })?;
            if !is_written {
                return Err("the collector does not read".to_owned());
            }
            sending.written += 1;
            sending.is_begun = false;
        }
        Ok(())
    }

    /// Sends a message. Returns whether it is wholly written.
    fn send(&mut self, records: &[&Record], sending: &mut Sending) -> Result<bool, PeerError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            None => self.connection.insert(Push::connect(&self.address, CONNECT)?),
        };
        if !sending.is_begun {
            // A collector that has ended is found before it gets a message.
            connection.flush(Duration::ZERO)?;
            let (message, errors) = encode(records);
            if let Some(error) = errors.first() {
                if self.left_out == 0 {
                    log::warn!(
                        "output `{}` leaves out records that frames cannot hold: {error}",
                        self.name
                    );
                }
                self.left_out += errors.len() as u64;
            }
            if message.is_empty() {
                return Ok(true);
            }
            connection.put(&message);
            sending.is_begun = true;
        }
        connection.flush(WRITE)
    }
}

/// The bytes of a message, and the errors of records that are not in it.
fn encode(records: &[&Record]) -> (Vec<u8>, Vec<EncodeError>) {
    let mut message = Vec::new();
    let encode = |record: &&Record| frame::encode(record, &mut message).err();
    let errors = records.iter().filter_map(encode).collect();
    (message, errors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use std::path::Path;

    fn recorded(name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/colmet");
        std::fs::read(folder.join(name)).unwrap()
    }

    /// The messages of the records of a recorded message, which arrive in another order.
    fn messages(name: &str, change: impl Fn(&mut Record)) -> Vec<Vec<u8>> {
        let records = frame::Records::of(&recorded(name)).collect::<Result<Vec<_>, _>>();
        let mut records = records.unwrap();
        records.reverse();
        records.iter_mut().for_each(change);
        let messages = frame::by_message(&records);
        let encoded = messages.iter().map(|records| encode(records));
        encoded.map(|(message, errors)| (errors.is_empty().then_some(message)).unwrap()).collect()
    }

    #[test]
    fn messages_have_the_bytes_of_colmets() {
        let all = "colmet_py0610_all10_synthetic.bin";
        let one_each = messages(all, |_| ());
        assert_eq!(one_each.len(), 10);
        assert!(one_each.concat() == recorded(all));
        let name = "colmet_py0610_procstats_only_9202B.bin";
        assert!(messages(name, |_| ()) == [recorded(name)]);
        // Of one node and instant they are one message, in Colmet's order.
        let together = messages(all, |record| {
            (record.host, record.at) = ("n1".to_owned(), Timestamp::from_seconds(7));
        });
        let backends = frame::Records::of(&together[0]).map(|record| record.unwrap().backend);
        let recorded = recorded(all);
        let expected = frame::Records::of(&recorded).map(|record| record.unwrap().backend);
        assert!(backends.eq(expected));
        assert_eq!((together.len(), together[0].len()), (1, recorded.len()));
    }

    #[test]
    fn a_record_that_a_frame_cannot_hold_is_left_out_alone() {
        let all = recorded("colmet_py0610_all10_synthetic.bin");
        let mut records: Vec<_> = frame::Records::of(&all).map(Result::unwrap).collect();
        records[4].host = "n".repeat(256);
        let (message, errors) = encode(&records.iter().collect::<Vec<_>>());
        assert_eq!(errors.len(), 1);
        assert_eq!(frame::Records::of(&message).count(), 9);
    }
}
