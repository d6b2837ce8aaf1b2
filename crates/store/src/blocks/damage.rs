//! Finds the unreadable parts of a block: compares every checksum, and where one differs, reads every series.

use super::read::RowCursor;
use super::{Block, BlockError, Entry, RolledCursor};
use model::Timestamp;
use std::sync::Arc;
use storage::Meter;

/// Damages: what is wrong, and what it costs; nothing: no reader of this store needs it.
pub(crate) type Damage = Vec<(String, Option<String>)>;

/// Unreadable samples.
#[derive(Debug, Default)]
struct Lost {
    series: u64,
    samples: u64,
    span: Option<(i64, i64)>,
    first: Option<String>,
}

impl Lost {
    fn add(&mut self, samples: u64, (from, to): (i64, i64), of: impl FnOnce() -> String) {
        self.samples += samples;
        self.span = Some(self.span.map_or((from, to), |(a, b)| (a.min(from), b.max(to))));
        self.first.get_or_insert_with(of);
    }

    fn description(&self) -> Option<String> {
        let (from, to) = self.span?;
        let (from, to) = (Timestamp(from), Timestamp(to));
        let first = self.first.as_deref().unwrap_or_default();
        let Self { series, samples, .. } = self;
        Some(format!("up to {samples} rows of {series} series, {from} to {to}; first {first}"))
    }
}

impl Block {
    /// Reads the whole file and returns the damages.
    ///
    /// # Errors
    /// The footer or the directory cannot be read: the whole block is unreadable.
    pub(crate) fn damage(self: &Arc<Self>, meter: &Arc<Meter>) -> Result<Damage, BlockError> {
        let opened = self.opened(meter)?;
        let mut damage = Damage::new();
        let (mut entries, mut lost) = (Vec::new(), Lost::default());
        for part in &opened.parts {
            match self.entries(part, meter) {
                Ok(some) => entries.extend(some),
                Err(_) => {
                    lost.series += part.series;
                    lost.add(part.rows, (part.from, part.to), || {
                        format!("devices {} to {}", part.first_device, part.last_device)
                    });
                }
            }
        }
        if let Some(description) = lost.description() {
            damage.push(("parts of the index are damaged".to_owned(), Some(description)));
        }
        let mut bad = Vec::new();
        for extent in opened.checks.extents() {
            let bytes = self.bytes(meter, extent.offset, extent.length);
            if !bytes.is_ok_and(|bytes| opened.checks.hold(extent.offset, &bytes)) {
                bad.push(extent.offset);
            }
        }
        if let Some(first) = bad.first() {
            let what = format!("{} pages are damaged, the first at byte {first}", bad.len());
            damage.push((what, self.unreadable(&entries, meter)?));
        }
        Ok(damage)
    }

    /// The series that cannot be read completely.
    fn unreadable(
        self: &Arc<Self>,
        entries: &[Entry],
        meter: &Arc<Meter>,
    ) -> Result<Option<String>, BlockError> {
        let opened = self.opened(meter)?;
        let mut lost = Lost::default();
        for entry in entries {
            let rows = entry.row..entry.row + entry.rows;
            // A reader stops at damage.
            let read = if self.note.window_us == 0 {
                let (mut times, mut values) = (Vec::new(), Vec::<f64>::new());
                let mut cursor = RowCursor::new(self, &opened, meter);
                cursor.read(rows, entry.divisor, &mut times, &mut values)
            } else {
                RolledCursor::new(self, &opened, meter).read(entry, rows, &mut Vec::new())
            };
            if read.is_err() {
                lost.series += 1;
                lost.add(entry.rows, (entry.from, entry.to), || {
                    format!("{} of {}", entry.series.metric, entry.series.device)
                });
            }
        }
        Ok(lost.description())
    }
}
