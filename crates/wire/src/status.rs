//! The status that a sender reports with each request.

use crate::answer::cut;
use crate::limits::{self, LimitError};
use crate::{DecodeError, message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use model::setting::{
    AgentStatus, Rejection, RejectionCode, SourceState, SourceStatus, UnreadReason, UnreadSource,
};
use model::{Timestamp, printable};
use prost::Message;

/// Maximum length of an encoded status, in bytes. As base64 in one header it stays below the 8 KiB that proxies
/// accept.
const STATUS_BYTES_MAX: usize = 4096;

/// Maximum number of entries of each list that a server remembers.
const ENTRIES_MAX: usize = 64;

/// The header of a request that carries the sender's status.
pub const STATUS_HEADER: &str = "x-jobmeter-status";

/// Encodes a status as the text of a header. Entries that do not fit are left out from the end of the longest list,
/// and counted in [`AgentStatus::cut`].
pub fn encode_status(status: &AgentStatus) -> String {
    let rejection = |one: &Rejection| message::Rejection {
        setting: cut(&one.setting),
        code: number(RejectionCode::ALL, one.code),
        reason: cut(&one.reason),
        until: one.until.map(|until| until.0),
    };
    let source = |one: &SourceStatus| message::SourceStatus {
        source: cut(&one.source),
        state: number(SourceState::ALL, one.state),
        reason: cut(&one.reason),
    };
    let unread = |one: &UnreadSource| message::UnreadSource {
        source: cut(&one.source),
        reason: number(UnreadReason::ALL, one.reason),
        optional: one.optional.clone(),
    };
    let mut message = message::AgentStatus {
        now: status.now.0,
        generation: status.generation,
        rejected: status.rejected.iter().map(rejection).collect(),
        source: status.sources.iter().map(source).collect(),
        unread: status.unread.iter().map(unread).collect(),
        wait_us: status.wait_us,
        stops: status.stops,
        cut: status.cut,
    };
    while message.encoded_len() > STATUS_BYTES_MAX && shorten(&mut message) {}
    STANDARD_NO_PAD.encode(message.encode_to_vec())
}

/// Leaves out the last entry of the longest list. Returns whether there was one.
fn shorten(message: &mut message::AgentStatus) -> bool {
    let message::AgentStatus { rejected, source, unread, cut, .. } = message;
    let most = rejected.len().max(source.len()).max(unread.len());
    let is_shorter = if unread.len() == most {
        unread.pop().is_some()
    } else if source.len() == most {
        source.pop().is_some()
    } else {
        rejected.pop().is_some()
    };
    *cut = cut.saturating_add(u32::from(is_shorter));
    is_shorter
}

/// Decodes a status. Entries with a code of a newer version, and those beyond 64 of a list, are left out and counted. Unprintable characters become
/// spaces.
///
/// # Errors
/// The text is too long, or is not a status.
pub fn decode_status(text: &[u8]) -> Result<AgentStatus, DecodeError> {
    limits::bytes("status", text.len(), STATUS_BYTES_MAX.div_ceil(3) * 4)?;
    let bytes = STANDARD_NO_PAD.decode(text).map_err(|_| LimitError::Base64)?;
    let read = message::AgentStatus::decode(&*bytes)?;
    let entries = read.rejected.len() + read.source.len() + read.unread.len();
    let most = ENTRIES_MAX;
    let rejection = |one: message::Rejection| {
        Some(Rejection {
            code: of_number(RejectionCode::ALL, one.code)?,
            setting: clean(&one.setting),
            reason: clean(&one.reason),
            until: one.until.map(Timestamp),
        })
    };
    let source = |one: message::SourceStatus| {
        Some(SourceStatus {
            state: of_number(SourceState::ALL, one.state)?,
            source: clean(&one.source),
            reason: clean(&one.reason),
        })
    };
    let unread = |one: message::UnreadSource| {
        Some(UnreadSource {
            reason: of_number(UnreadReason::ALL, one.reason)?,
            source: clean(&one.source),
            optional: one.optional.iter().take(most).map(|text| clean(text)).collect(),
        })
    };
    let rejected: Vec<_> = read.rejected.into_iter().filter_map(rejection).take(most).collect();
    let sources: Vec<_> = read.source.into_iter().filter_map(source).take(most).collect();
    let unread: Vec<_> = read.unread.into_iter().filter_map(unread).take(most).collect();
    let unknown = entries - rejected.len() - sources.len() - unread.len();
    Ok(AgentStatus {
        now: Timestamp(read.now),
        generation: read.generation,
        wait_us: read.wait_us,
        stops: read.stops,
        cut: read.cut.saturating_add(u32::try_from(unknown).unwrap_or(u32::MAX)),
        rejected,
        sources,
        unread,
    })
}

fn clean(text: &str) -> String {
    printable(text).into_owned()
}

/// The number of a word: its place in the list.
fn number<T: PartialEq>(all: &[T], word: T) -> u32 {
    all.iter().zip(0..).find(|(one, _)| **one == word).map_or(0, |(_, number)| number)
}

fn of_number<T: Copy>(all: &[T], number: u32) -> Option<T> {
    all.get(usize::try_from(number).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rejection(reason: &str) -> Rejection {
        Rejection {
            setting: "sources.load.period".to_owned(),
            code: RejectionCode::Shortened,
            reason: reason.to_owned(),
            until: Some(Timestamp(-7)),
        }
    }

    fn status() -> AgentStatus {
        let (source, reason) = ("rapl/zones".to_owned(), "a: b | c".to_owned());
        let unread = |reason| UnreadSource {
            source: "process".to_owned(),
            reason,
            optional: vec!["process_io_.*".to_owned()],
        };
        AgentStatus {
            now: Timestamp(1_767_706_500_000_000),
            generation: u64::MAX >> 1,
            rejected: vec![rejection("`remote.time_max` is 1m")],
            sources: vec![SourceStatus { source, state: SourceState::Throttled, reason }],
            unread: UnreadReason::ALL.iter().copied().map(unread).collect(),
            wait_us: 5_000_000,
            stops: true,
            cut: 0,
        }
    }

    #[test]
    fn a_status_is_decoded_as_it_was_encoded() {
        for status in [status(), AgentStatus::default()] {
            assert_eq!(decode_status(encode_status(&status).as_bytes()), Ok(status));
        }
    }

    #[test]
    fn a_long_status_is_cut_and_counted() {
        let long = AgentStatus { rejected: vec![rejection(&"é".repeat(200)); 100], ..status() };
        let text = encode_status(&long);
        assert!(text.len() < 6 << 10, "{}", text.len());
        let read = decode_status(text.as_bytes()).unwrap();
        assert_eq!(read.cut as usize, 100 - read.rejected.len());
        assert!(read.rejected.len() > 5 && read.stops && read.sources.len() == 1);
        let huge = UnreadSource { optional: vec!["x".repeat(9000)], ..status().unread.remove(0) };
        let only = AgentStatus { unread: vec![huge], ..AgentStatus::default() };
        assert_eq!(decode_status(encode_status(&only).as_bytes()).unwrap().cut, 1);
    }

    #[test]
    fn unknown_codes_are_left_out_and_texts_are_printable() {
        let unknown = message::Rejection { code: 99, ..message::Rejection::default() };
        let known = message::Rejection { reason: "a\u{1b}[2J".to_owned(), ..unknown.clone() };
        let rejected = vec![unknown, message::Rejection { code: 1, ..known }];
        let message = message::AgentStatus { rejected, ..message::AgentStatus::default() };
        let read =
            decode_status(STANDARD_NO_PAD.encode(message.encode_to_vec()).as_bytes()).unwrap();
        assert_eq!((read.cut, read.rejected.len()), (1, 1));
        assert_eq!(read.rejected[0].reason, "a [2J");
        assert!(decode_status(&vec![b'A'; 2 * STATUS_BYTES_MAX]).is_err());
        assert_eq!(decode_status(b"?"), Err(DecodeError::Limit(LimitError::Base64)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            decode_status(&bytes).ok();
            decode_status(STANDARD_NO_PAD.encode(&bytes).as_bytes()).ok();
        }

        #[test]
        fn no_damage_panics(at in any::<usize>(), bit in 0..8_u8) {
            let mut bytes = STANDARD_NO_PAD.decode(encode_status(&status())).unwrap();
            let length = bytes.len();
            bytes[at % length] ^= 1 << bit;
            decode_status(STANDARD_NO_PAD.encode(&bytes).as_bytes()).ok();
        }
    }
}
