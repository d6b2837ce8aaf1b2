//! Counts the entries of an encoded message before it is decoded: two bytes may encode an entry that needs
//! a hundred bytes.

use crate::decode::DecodeError;
use crate::limits::{
    self, GAPS_MAX, JOBS_MAX, METRICS_MAX, OOM_KILLS_MAX, SERIES_MAX, TABLE_BYTES_MAX, TICKS_MAX,
};
use model::SAMPLES_PER_BATCH_MAX;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

/// Maximum length of an encoded number.
const NUMBER_BYTES_MAX: usize = 10;
/// The field of the table in a batch.
const TABLE_TAG: u32 = 4;

/// A repeated field of a message of `proto/batch.proto`, and its maximum number of entries.
pub(crate) struct Bound {
    tag: u32,
    what: &'static str,
    max: usize,
    entries: Entries,
}

/// Encoding of the entries.
enum Entries {
    /// Packed numbers of one to ten bytes.
    Numbers,
    /// Packed numbers of eight bytes.
    Doubles,
    /// Texts, one a field.
    Texts,
    /// Messages, one a field, with bounds of their own.
    Messages(&'static [Bound]),
}

const fn bound(tag: u32, what: &'static str, max: usize, entries: Entries) -> Bound {
    Bound { tag, what, max, entries }
}

/// Bounds of a batch.
pub(crate) const BATCH: &[Bound] = &[
    bound(5, "ticks", TICKS_MAX, Entries::Numbers),
    bound(6, "ticks", TICKS_MAX, Entries::Numbers),
    bound(7, "samples", SAMPLES_PER_BATCH_MAX, Entries::Numbers),
    bound(8, "samples", SAMPLES_PER_BATCH_MAX, Entries::Numbers),
    bound(9, "samples", SAMPLES_PER_BATCH_MAX, Entries::Doubles),
    bound(10, "gaps", GAPS_MAX, Entries::Messages(&[])),
    bound(11, "job events", JOBS_MAX, Entries::Messages(JOB_EVENT)),
];

const JOB_EVENT: &[Bound] = &[bound(10, "OOM kills", OOM_KILLS_MAX, Entries::Messages(&[]))];

/// Bounds of a table.
pub(crate) const TABLE: &[Bound] = &[
    bound(1, "metrics", METRICS_MAX, Entries::Messages(&[])),
    bound(2, "devices", SERIES_MAX, Entries::Texts),
    bound(3, "clusters", SERIES_MAX, Entries::Texts),
    bound(4, "label sets", SERIES_MAX, Entries::Texts),
    bound(5, "series", SERIES_MAX, Entries::Numbers),
    bound(6, "series", SERIES_MAX, Entries::Numbers),
    bound(7, "series", SERIES_MAX, Entries::Numbers),
    bound(8, "series", SERIES_MAX, Entries::Numbers),
    bound(9, "series", SERIES_MAX, Entries::Numbers),
    bound(10, "series", SERIES_MAX, Entries::Numbers),
];

impl Bound {
    /// Maximum length of the packed field, in bytes; `None`: its entries have no common length.
    const fn bytes_max(&self) -> Option<usize> {
        match self.entries {
            Entries::Numbers => Some(self.max.saturating_mul(NUMBER_BYTES_MAX)),
            Entries::Doubles => Some(self.max.saturating_mul(8)),
            Entries::Texts | Entries::Messages(_) => None,
        }
    }
}

/// Checks the stated lengths of a batch's fields while it is decompressed, so that a batch of too many samples is
/// rejected before its samples are decompressed.
#[derive(Debug, Default)]
pub(crate) struct FieldLengths {
    /// Offset of the next field.
    next: usize,
}

impl FieldLengths {
    /// Checks the fields that begin in the decompressed part of the message. [`check`] reports damage.
    pub(crate) fn check(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        while let Some(mut rest) = message.get(self.next..).filter(|rest| !rest.is_empty()) {
            let Ok((tag, wire_type)) = decode_key(&mut rest) else { return Ok(()) };
            if wire_type != WireType::LengthDelimited {
                let end = skip_field(wire_type, tag, &mut rest, DecodeContext::default());
                if end.is_err() {
                    return Ok(());
                }
                self.next = message.len() - rest.len();
                continue;
            }
            let Ok(length) = decode_varint(&mut rest) else { return Ok(()) };
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if tag == TABLE_TAG {
                limits::bytes("table", length, TABLE_BYTES_MAX)?;
            }
            if let Some(bound) = BATCH.iter().find(|bound| bound.tag == tag)
                && let Some(max) = bound.bytes_max()
            {
                limits::bytes(bound.what, length, max)?;
            }
            self.next = (message.len() - rest.len()).saturating_add(length);
        }
        Ok(())
    }
}

/// Fails if a field of an encoded message has too many entries, or if the message is damaged.
pub(crate) fn check(mut message: &[u8], bounds: &[Bound]) -> Result<(), DecodeError> {
    let mut counts = vec![0_usize; bounds.len()];
    while !message.is_empty() {
        let (tag, wire_type) = decode_key(&mut message)?;
        let bounded = bounds.iter().zip(&mut counts).find(|(bound, _)| bound.tag == tag);
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, tag, &mut message, DecodeContext::default())?;
            if let Some((bound, count)) = bounded {
                add(bound, count, 1)?;
            }
            continue;
        }
        let length = usize::try_from(decode_varint(&mut message)?).unwrap_or(usize::MAX);
        // The decoder rejects a truncated message.
        let Some((field, rest)) = message.split_at_checked(length) else { return Ok(()) };
        message = rest;
        let Some((bound, count)) = bounded else { continue };
        match bound.entries {
            // Only the last byte of each number is below 128.
            Entries::Numbers => {
                // The least number of entries of a field that is much too long, without counting them.
                let least = field.len() / NUMBER_BYTES_MAX;
                let whole = || field.iter().filter(|b| **b < 128).count();
                add(bound, count, if least > bound.max { least } else { whole() })?;
            }
            Entries::Doubles => add(bound, count, field.len() / 8)?,
            Entries::Texts => add(bound, count, 1)?,
            Entries::Messages(inner) => {
                add(bound, count, 1)?;
                check(field, inner)?;
            }
        }
    }
    Ok(())
}

fn add(bound: &Bound, count: &mut usize, more: usize) -> Result<(), DecodeError> {
    *count = count.saturating_add(more);
    Ok(limits::count(bound.what, *count, bound.max)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LimitError;
    use crate::message::{Batch, Gap, JobEvent, Metric, OomKill, Table};
    use prost::Message;

    fn count_of(bytes: &[u8], bounds: &[Bound]) -> Option<(&'static str, usize)> {
        match check(bytes, bounds) {
            Err(DecodeError::Limit(LimitError::Count { what, count, .. })) => Some((what, count)),
            Err(other) => panic!("{other}"),
            Ok(()) => None,
        }
    }

    #[test]
    fn too_many_entries_are_rejected_before_decoding() {
        let samples = SAMPLES_PER_BATCH_MAX;
        let kills = vec![OomKill::default(); OOM_KILLS_MAX + 1];
        let event = JobEvent { oom_kill: kills, ..JobEvent::default() };
        for (batch, rejected) in [
            (Batch { refs: vec![0; samples], ..Batch::default() }, None),
            (Batch { refs: vec![u64::MAX; samples], ..Batch::default() }, None),
            (
                Batch { refs: vec![0; 16 << 20], ..Batch::default() },
                Some(("samples", (16 << 20) / NUMBER_BYTES_MAX)),
            ),
            (
                Batch { step: vec![-1; samples + 1], ..Batch::default() },
                Some(("samples", samples + 1)),
            ),
            (
                Batch { real: vec![0.5; samples + 1], ..Batch::default() },
                Some(("samples", samples + 1)),
            ),
            (
                Batch { tick_delta: vec![0; TICKS_MAX + 1], ..Batch::default() },
                Some(("ticks", TICKS_MAX + 1)),
            ),
            (
                Batch { gap: vec![Gap::default(); GAPS_MAX + 9], ..Batch::default() },
                Some(("gaps", GAPS_MAX + 1)),
            ),
            (
                Batch { job: vec![event], ..Batch::default() },
                Some(("OOM kills", OOM_KILLS_MAX + 1)),
            ),
        ] {
            assert_eq!(count_of(&batch.encode_to_vec(), BATCH), rejected);
        }
        let table = Table { metric: vec![Metric::default(); 5000], ..Table::default() };
        assert_eq!(count_of(&table.encode_to_vec(), TABLE), Some(("metrics", METRICS_MAX + 1)));
    }

    #[test]
    fn unpacked_numbers_count() {
        let unpacked = [7 << 3, 0].repeat(SAMPLES_PER_BATCH_MAX + 1);
        let rejected = Some(("samples", SAMPLES_PER_BATCH_MAX + 1));
        assert_eq!(count_of(&unpacked, BATCH), rejected);
    }
}
