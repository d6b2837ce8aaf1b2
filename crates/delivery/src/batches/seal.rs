//! Sealing: the samples of all sinks become batches.

use crate::batches::frames::Span;
use crate::batches::pending_gaps_and_job_events::{PendingEvents, is_known};
use crate::batches::print::Printer;
use crate::batches::tables::Tables;
use model::{Batch, Boot, Cause, Origin, SAMPLES_PER_BATCH_MAX, SeriesTable, Tick};
use sources::Sink;
use std::sync::Arc;

/// Destination of sealed batches.
pub trait BatchOutput: Send {
    /// Accepts a batch, or returns it if the queue is full.
    ///
    /// # Errors
    /// The queue is full.
    fn put(&mut self, batch: Batch) -> Result<(), Box<Batch>>;

    /// Returns a used batch, to reuse its memory.
    fn spare(&mut self) -> Option<Batch>;
}

/// The sinks of all sources. A sink is `None` while its source is being read.
pub trait Sinks {
    /// Shows each sink, always in the same order.
    fn each(&mut self, show: &mut dyn FnMut(Option<&mut Sink>));
}

impl Sinks for Sink {
    fn each(&mut self, show: &mut dyn FnMut(Option<&mut Sink>)) {
        show(Some(self));
    }
}

impl Sinks for Vec<&mut Sink> {
    fn each(&mut self, show: &mut dyn FnMut(Option<&mut Sink>)) {
        self.iter_mut().for_each(|sink| show(Some(sink)));
    }
}

/// Builds batches.
pub struct Sealer {
    origin: Origin,
    boot: Boot,
    seq: u64,
    notes: Arc<PendingEvents>,
    outlet: Box<dyn BatchOutput>,
    printer: Option<Printer>,
    tables: Tables,
    /// One batch under construction for each table.
    filling: Vec<Batch>,
    spare: Vec<Batch>,
    nothing: Arc<SeriesTable>,
    /// Totals since the start.
    pub counts: SealCounts,
}

/// Totals of the sealed batches.
#[derive(Clone, Copy, Debug, Default)]
pub struct SealCounts {
    /// Number of batches.
    pub batches: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of samples that were dropped because the queue was full.
    pub dropped: u64,
    /// Number of gaps.
    pub gaps: u64,
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").field("seq", &self.seq).finish_non_exhaustive()
    }
}

impl Sealer {
    /// Creates a sealer for an origin. Its batches are numbered from 0, carry the waiting `notes` and go to the
    /// outlet.
    pub fn new(
        origin: Origin,
        boot: Boot,
        notes: Arc<PendingEvents>,
        outlet: Box<dyn BatchOutput>,
        printer: Option<Printer>,
    ) -> Self {
        Self {
            origin,
            boot,
            seq: 0,
            notes,
            outlet,
            printer,
            tables: Tables::default(),
            filling: Vec::new(),
            spare: Vec::new(),
            nothing: Arc::default(),
            counts: SealCounts::default(),
        }
    }

    /// Gaps and job events that wait for the next batch.
    pub fn notes(&self) -> &PendingEvents {
        &self.notes
    }

    /// Moves the samples of the sinks into batches and passes these to the outlet.
    pub fn seal(&mut self, sinks: &mut dyn Sinks) {
        self.update_tables(sinks);
        let mut place = 0;
        sinks.each(&mut |sink| {
            if let Some(sink) = sink {
                sink.take_gaps().into_iter().for_each(|gap| self.notes.put(gap));
                sink.take_events().into_iter().for_each(|event| self.notes.put_job(event));
                self.print(sink);
                self.append(place, sink);
                sink.sealed();
            }
            place += 1;
        });
        self.flush_printer();
        while let Some(batch) = self.filling.pop() {
            if batch.values.is_empty() {
                self.spare.push(batch);
            } else {
                self.put(batch);
            }
        }
        while !self.notes.is_empty() {
            let batch = self.new_batch(Arc::clone(&self.nothing));
            if !self.put(batch) {
                break;
            }
        }
    }

    /// Passes on a batch without samples, so that the server receives the status headers.
    pub fn seal_empty(&mut self) {
        let batch = self.new_batch(Arc::clone(&self.nothing));
        self.put(batch);
    }

    fn update_tables(&mut self, sinks: &mut dyn Sinks) {
        let (mut place, mut same) = (0, true);
        let tables = &mut self.tables;
        sinks.each(&mut |sink| {
            if let Some(sink) = sink {
                same &= !sink.table_changed() && !tables.lacks(place, sink.series());
            }
            place += 1;
        });
        if !same {
            tables.build(sinks);
        }
    }

    fn print(&mut self, sink: &Sink) {
        if let Some(printer) = &mut self.printer {
            sink.samples().for_each(|(entry, at, value)| printer.add(entry, at, value));
        }
    }

    fn flush_printer(&mut self) {
        if let Some(printer) = &mut self.printer
            && let Err(e) = printer.print()
        {
            log::error!("cannot print samples any longer: {e}");
            self.printer = None;
        }
    }

    /// Appends the samples of a sink to the batches of its tables.
    fn append(&mut self, sink_place: usize, sink: &Sink) {
        let (ticks, index, values) = sink.columns();
        let mut samples = index.iter().zip(values);
        for tick in ticks {
            let count = usize::try_from(tick.samples).unwrap_or(usize::MAX);
            for (place, value) in samples.by_ref().take(count) {
                let place = usize::try_from(*place).unwrap_or(usize::MAX);
                let places = self.tables.places(sink_place);
                let Some(place) = places.get(place).copied() else { continue };
                let table = usize::try_from(place.table).unwrap_or(usize::MAX);
                let Some(batch) = self.batch_of(table) else { continue };
                batch.index.push(place.entry);
                batch.values.push(*value);
                match batch.ticks.last_mut() {
                    Some(last) if last.at == tick.at => last.samples += 1,
                    _ => batch.ticks.push(Tick { at: tick.at, samples: 1 }),
                }
            }
        }
    }

    /// Batch under construction for a table, with room for a sample.
    fn batch_of(&mut self, table: usize) -> Option<&mut Batch> {
        while self.filling.len() <= table {
            let of = Arc::clone(self.tables.tables.get(self.filling.len())?);
            let batch = self.new_batch(of);
            self.filling.push(batch);
        }
        if self.filling.get(table)?.values.len() >= SAMPLES_PER_BATCH_MAX {
            self.put_filled(table);
        }
        self.filling.get_mut(table)
    }

    /// Passes on a batch under construction and replaces it with an empty one.
    fn put_filled(&mut self, at: usize) {
        let Some(table) = self.filling.get(at).map(|batch| Arc::clone(&batch.table)) else {
            return;
        };
        let empty = self.new_batch(table);
        if let Some(batch) = self.filling.get_mut(at) {
            let full = std::mem::replace(batch, empty);
            self.put(full);
        }
    }

    fn new_batch(&mut self, table: Arc<SeriesTable>) -> Batch {
        let Some(mut batch) = self.spare.pop().or_else(|| self.outlet.spare()) else {
            return Batch {
                origin: self.origin.clone(),
                boot: self.boot,
                seq: 0,
                table,
                ticks: Vec::new(),
                index: Vec::new(),
                values: Vec::new(),
                gaps: Vec::new(),
                jobs: Vec::new(),
            };
        };
        empty(&mut batch);
        batch.table = table;
        batch
    }

    /// Numbers a batch and passes it on. If the queue is full, its samples become a gap.
    fn put(&mut self, mut batch: Batch) -> bool {
        batch.seq = self.seq;
        self.notes.take(&mut batch);
        let samples = batch.values.len();
        let gaps = batch.gaps.iter().filter(|gap| is_known(gap)).count();
        let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
        match self.outlet.put(batch) {
            Ok(()) => {
                self.seq += 1;
                self.counts.batches += 1;
                self.counts.samples += number(samples);
                self.counts.gaps += number(gaps);
                true
            }
            Err(mut batch) => {
                self.counts.dropped += number(samples);
                self.notes.take_back(&mut batch);
                if let Some(lost_span) = Span::of(&batch).map(Span::outside) {
                    let why =
                        "the queue to the spool is full: the disk or the processor is too slow";
                    self.notes.add("", lost_span, Cause::BatchesLost, why);
                    log::error!("samples lost: {why}");
                }
                self.spare.push(*batch);
                false
            }
        }
    }
}

/// Empties a batch and keeps its memory.
fn empty(batch: &mut Batch) {
    batch.ticks.clear();
    batch.index.clear();
    batch.values.clear();
    batch.gaps.clear();
    batch.jobs.clear();
}

#[cfg(test)]
pub(crate) mod tests;
