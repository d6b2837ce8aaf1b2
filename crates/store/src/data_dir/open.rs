//! Opens a data directory: the files of the manifest, then the log after it.

use crate::blocks::{Block, BlockNote};
use crate::data_dir::latest::latest_in_blocks;
use crate::data_dir::recovery::{Cut, Damage, Recovery};
use crate::data_dir::threads;
use crate::files::disk::Disk;
use crate::files::errors::{DiskError, OpenError};
use crate::files::layout::{blocks_dir, followers_dir, log_dir, rollups_dir};
use crate::files::point::Point;
use crate::head::intake::Intake;
use crate::head::samples::Head;
use crate::log::files::{Log, LogSizes, SEGMENT_HEADER_BYTES, segment_name, segment_number};
use crate::log::record::{LogRecord, RecordKind};
use crate::log::segment::{Findings, read_segment};
use crate::maintenance::archive::{Archive, archive_dir, strays};
use crate::maintenance::compactor::Compactor;
use crate::settings::{ArchiveSettings, Settings};
use crate::state::flush_queue::{Covered, Job};
use crate::state::ledger::Ledger;
use crate::state::manifest::{MANIFEST, Manifest, read_whole, write_whole};
use crate::state::positions::Positions;
use crate::state::rests::is_rest_file;
use crate::state::shared::Shared;
use crate::state::view::View;
use crate::writing::block_writer::Flusher;
use crate::writing::log_writer::LogWriter;
use model::Timestamp;
use senders::json::GapJson;
use senders::{
    Bookkeeping, Catalogue, GapLimits, Gaps, Limits, Origins, Received, Registry, RejectedSeries,
    Tables, Verdict,
};
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use storage::Clock;
use wire::{Decoded, Decoder, Frames};

/// The version of the files in a data directory.
const FORMAT: u32 = 1;
pub(crate) const FORMAT_FILE: &str = "FORMAT";
const FORMAT_PREFIX: &str = "jobmeter store ";
const LOCK_FILE: &str = "LOCK";
/// Most remembered damages of the log; their gaps are complete long before.
const DAMAGE_MAX: usize = 64;
/// Most job events of the log that are handed on.
const JOB_EVENTS_MAX: usize = 1_000_000;

/// A data directory while it is opened.
struct Opening {
    flusher: Flusher,
    books: Bookkeeping,
    positions: Positions,
    intake: Intake,
    view: View,
    decoder: Decoder,
    recovery: Recovery,
    /// Limits for replay: none, as acknowledged samples are kept.
    unlimited: Limits,
    now: Timestamp,
    /// Time of receipt of the oldest record that no block covers.
    oldest: Option<Timestamp>,
    /// Time of receipt of the last record read.
    last: Option<Timestamp>,
    /// Events in [`Recovery::jobs`].
    job_events: usize,
    /// The rejected series of the next frame, with that frame's checksum.
    withheld: Option<(u32, RejectedSeries)>,
    first_error: Option<String>,
}

/// An open data directory: the shared state, and the threads.
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) threads: Vec<JoinHandle<()>>,
    /// Held while the store is open.
    pub(crate) lock: Box<dyn Send + Sync + Debug>,
}

/// Opens a data directory and starts the store's threads.
pub(crate) fn open(
    disk: Arc<dyn Disk>,
    dir: &Path,
    settings: Settings,
    clock: Clock,
) -> Result<(Opened, Recovery), OpenError> {
    let started = clock();
    for dir in [dir.to_owned(), log_dir(dir), blocks_dir(dir), rollups_dir(dir)] {
        disk.create_dir(&dir).map_err(DiskError::of("make the directory", &dir))?;
    }
    let lock = lock(&*disk, dir)?;
    format(&*disk, dir)?;
    let mut opening = Opening::new(disk, dir, settings.clone(), started)?;
    let archive = opening.archive()?;
    opening.blocks()?;
    let sizes = Arc::new(LogSizes::default());
    let log = opening.log(&sizes)?;
    opening.recovery.took_us = clock().since(started);
    let Opening {
        flusher,
        mut books,
        positions,
        intake,
        mut view,
        recovery,
        oldest,
        first_error,
        ..
    } = opening;
    books.settled = flusher.ledger.manifest().settled;
    view.settled = books.settled;
    view.samples_removed = flusher.ledger.manifest().samples_removed;
    let shown = intake.place;
    let books = (books, positions);
    let shared = Shared::new(dir.to_owned(), settings, clock, books, view, shown, sizes);
    shared.counts().flush_error = first_error;
    let shared = Arc::new(shared);
    let committer = LogWriter::new(Arc::clone(&shared), log, intake, oldest);
    let compactor =
        Arc::new(Compactor::new(Arc::clone(&shared), Arc::clone(&flusher.ledger), archive));
    let ledger = Arc::clone(&flusher.ledger);
    let threads = threads::start(&shared, committer, flusher, &compactor);
    let threads = threads.map_err(DiskError::of("start a thread for", dir))?;
    shared.tending.wake();
    Ok((Opened { shared, compactor, ledger, threads, lock }, recovery))
}

pub(crate) fn lock(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn Send + Sync + Debug>, OpenError> {
    let path = dir.join(LOCK_FILE);
    disk.lock(&path).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked { dir: dir.to_owned() },
        _ => OpenError::Disk(DiskError::of("lock", &path)(error)),
    })
}

/// Checks the version of the files, and writes it into a new directory.
fn format(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let names = disk.list(dir).map_err(DiskError::of("list", dir))?;
    if names.iter().any(|name| name == FORMAT_FILE || name == MANIFEST) {
        return check_format(disk, dir);
    }
    let text = format!("{FORMAT_PREFIX}{FORMAT}\n");
    Ok(write_whole(disk, dir, FORMAT_FILE, text.as_bytes())?)
}

/// Checks the version of the files of a directory.
///
/// # Errors
/// It is not a data directory, or a newer program wrote it.
pub(crate) fn check_format(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let path = dir.join(FORMAT_FILE);
    let not_ours = |why: &str| OpenError::NotOurs { path: path.clone(), why: why.to_owned() };
    let Some(bytes) = read_whole(disk, &path)? else {
        return Err(not_ours("it is missing"));
    };
    let text = String::from_utf8(bytes).unwrap_or_default();
    let version =
        text.strip_prefix(FORMAT_PREFIX).and_then(|rest| rest.strip_suffix('\n')?.parse().ok());
    match version {
        Some(FORMAT) => Ok(()),
        Some(found) if found > FORMAT => Err(OpenError::Newer { path, found, known: FORMAT }),
        _ => Err(not_ours("it is not a version of this store")),
    }
}

/// The rest files that the manifest does not list. Other files, such as a copy of damaged positions, are not the store's.
fn unused_rests(disk: &dyn Disk, dir: &Path, manifest: &Manifest) -> Vec<PathBuf> {
    let is_listed =
        |name: &str| manifest.rests.iter().any(|rest| !rest.deleted && rest.note.file == name);
    let names = disk.list(dir).unwrap_or_default().into_iter();
    let unused = names.filter(|name| is_rest_file(name) && !is_listed(name));
    unused.map(|name| dir.join(name)).collect()
}

impl Opening {
    fn new(
        disk: Arc<dyn Disk>,
        dir: &Path,
        settings: Settings,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        let manifest = match Manifest::read(&*disk, dir)? {
            Some(manifest) => manifest,
            None => {
                let manifest = Manifest::default();
                manifest.write(&*disk, dir)?;
                manifest
            }
        };
        let metrics: Option<Vec<_>> =
            manifest.metrics.iter().cloned().map(|metric| metric.metric()).collect();
        let why = "a metric has an unknown unit, kind or name";
        let odd = || OpenError::Manifest { path: dir.join(MANIFEST), why: why.to_owned() };
        let metrics = metrics.ok_or_else(odd)?;
        let origins = manifest.origins.iter().filter(|one| !one.is_forgotten(now)).cloned();
        let books = Bookkeeping {
            origins: Origins::new(origins.collect(), manifest.damage.clone()),
            registry: Registry::new(Catalogue::new(settings.senders.declared.clone(), metrics)),
            tables: Tables::default(),
            gaps: manifest.read_gaps(&*disk, dir, GapLimits::of(&settings.senders))?,
            // The log contains acknowledged samples only: replay keeps them, whatever was settled since.
            settled: Timestamp(i64::MIN),
        };
        let unlimited = settings.senders.clone().unlimited();
        let view = View::default();
        let intake = Intake::new(Arc::clone(&view.active));
        let positions = Positions::read(&*disk, dir);
        let ledger = Arc::new(Ledger::new(disk, dir.to_owned(), manifest));
        let flusher = Flusher { ledger, settings };
        Ok(Self {
            flusher,
            books,
            positions,
            intake,
            view,
            decoder: Decoder::default(),
            recovery: Recovery::default(),
            unlimited,
            now,
            oldest: None,
            last: None,
            job_events: 0,
            withheld: None,
            first_error: None,
        })
    }

    /// Finds the archive, if one is configured.
    fn archive(&mut self) -> Result<Option<Archive>, OpenError> {
        let Flusher { ledger, settings } = &self.flusher;
        let Some(ArchiveSettings { dir, .. }) = &settings.archive else { return Ok(None) };
        let (archive, is_there) = Archive::open(ledger, dir, self.now)?;
        self.recovery.archive_unavailable = (!is_there).then(|| dir.clone());
        if is_there {
            self.recovery.archive_strays = strays(&*ledger.disk, &ledger.manifest());
        }
        Ok(Some(archive))
    }

    /// Opens the blocks of the manifest, and removes stray files.
    fn blocks(&mut self) -> Result<(), OpenError> {
        let Flusher { ledger, settings } = &self.flusher;
        let Ledger { disk, dir, .. } = &**ledger;
        let manifest = ledger.manifest();
        let mut left_over: Vec<PathBuf> = Vec::new();
        for (dir, notes, files) in [
            (blocks_dir(dir), &manifest.blocks, &mut self.view.blocks),
            (rollups_dir(dir), &manifest.rollups, &mut self.view.rollups),
        ] {
            for note in notes {
                files.push(Arc::new(match note.archived {
                    true => Block::archived(disk, &archive_dir(&manifest), note.clone()),
                    false => Block::open(&**disk, &dir, note.clone())?,
                }));
            }
            for name in disk.list(&dir).map_err(DiskError::of("list", &dir))? {
                if !notes.iter().any(|note| note.file == name && !note.archived) {
                    left_over.push(dir.join(name));
                }
            }
        }
        for name in disk.list(dir).map_err(DiskError::of("list", dir))? {
            let gaps = manifest.gaps.as_ref().is_some_and(|gaps| gaps.file == name);
            let ours = [MANIFEST, FORMAT_FILE, "gaps-"].iter().any(|start| name.starts_with(start));
            if ours && name.ends_with(".tmp") || name.starts_with("gaps-") && !gaps {
                left_over.push(dir.join(name));
            }
        }
        for path in left_over {
            disk.remove(&path).map_err(DiskError::of("remove", &path))?;
            self.recovery.removed.push(path);
        }
        let unused = unused_rests(&**disk, &followers_dir(dir), &manifest);
        // A fault of this folder stops followers alone.
        let removed = unused.into_iter().filter(|path| disk.remove(path).is_ok());
        self.recovery.removed.extend(removed);
        let since = self.now.plus(-settings.senders.series_idle_us);
        let is_recent = |note: &BlockNote| note.received >= since && !note.archived;
        let recent = self.view.blocks.iter().filter(|block| is_recent(&block.note));
        self.view.lasts = Arc::new(latest_in_blocks(recent, &mut self.books.registry)?);
        Ok(())
    }

    /// Replays the log, and returns it for further appends.
    fn log(&mut self, sizes: &Arc<LogSizes>) -> Result<Log, OpenError> {
        let dir = log_dir(&self.flusher.ledger.dir);
        let covered = self.flusher.ledger.manifest().covered;
        self.flusher.trim(covered);
        let names = self.flusher.ledger.disk.list(&dir).map_err(DiskError::of("list", &dir))?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.sort_unstable();
        for number in &numbers {
            if *number > covered
                && let Some(length) = self.segment(&dir, *number)?
            {
                sizes.set(*number, length);
            }
            let head = &self.intake.head;
            let settings = &self.flusher.settings;
            if head.bytes() >= settings.head_bytes_max as u64 / 2
                || head.samples() >= settings.head_samples_max
            {
                self.flush(*number);
            }
        }
        let last = numbers.last().copied().unwrap_or(0).max(covered);
        if !self.recovery.damaged.is_empty() {
            self.flush(last);
        }
        sizes.forget(self.flusher.ledger.manifest().covered);
        let rests = self.flusher.ledger.manifest().rests.clone();
        let last = self.positions.begin((&self.view.blocks, &rests), last);
        let disk = Arc::clone(&self.flusher.ledger.disk);
        self.intake.place = Point::of_segment(last + 1).place;
        let segment_bytes = self.flusher.settings.segment_bytes;
        Ok(Log::new(disk, dir, segment_bytes, Arc::clone(sizes), last + 1))
    }

    /// Replays a segment. Returns its length, or `None` if it was empty and removed.
    fn segment(&mut self, dir: &Path, number: u64) -> Result<Option<u64>, OpenError> {
        let path = dir.join(segment_name(number));
        let Some(bytes) = read_whole(&*self.flusher.ledger.disk, &path)? else { return Ok(None) };
        let before = self.last;
        let findings = read_segment(&bytes, number, |at, record| {
            self.intake.place = Point::of_record(number, at).place;
            self.record(record)
        });
        self.recovery.log_bytes += bytes.len() as u64;
        let length = findings.good as u64;
        self.damage(number, &findings, before);
        let disk = &self.flusher.ledger.disk;
        let torn = bytes.len() as u64 - length;
        if length <= SEGMENT_HEADER_BYTES {
            disk.remove(&path).map_err(DiskError::of("remove", &path))?;
            if bytes.len() as u64 > SEGMENT_HEADER_BYTES {
                let path = path.clone();
                self.recovery.cut.push(Cut { path, length: 0, bytes: torn });
            }
            self.recovery.removed.push(path);
            return Ok(None);
        }
        if torn > 0 {
            disk.truncate(&path, length).map_err(DiskError::of("cut", &path))?;
            self.recovery.cut.push(Cut { path, length, bytes: torn });
        }
        Ok(Some(length))
    }

    /// Records the damaged places of a segment; `before`: time of receipt of the last good record before it.
    fn damage(&mut self, number: u64, findings: &Findings, before: Option<Timestamp>) {
        for unread_range in &findings.unread_ranges {
            let (at, bytes) = (unread_range.at as u64, unread_range.bytes as u64);
            let path = self.flusher.set_aside(number);
            self.recovery.damaged.push(Damage {
                path,
                at,
                bytes,
                from: unread_range.from,
                to: unread_range.to,
            });
            if at == 0 && bytes <= SEGMENT_HEADER_BYTES {
                // Only the segment's own header: every record is readable.
                continue;
            }
            let to = unread_range.to.unwrap_or(self.now);
            let block = self.view.blocks.last().map(|block| block.note.received);
            let from = unread_range.from.or(before).or(block).unwrap_or(to).min(to);
            self.books.origins.damage.push(Received { from, to });
            let surplus = self.books.origins.damage.len().saturating_sub(DAMAGE_MAX);
            self.books.origins.damage.drain(..surplus);
        }
        if !findings.unread_ranges.is_empty() {
            // Written with the manifest of the next flush.
            let mut manifest = self.flusher.ledger.manifest();
            manifest.quarantine.push(number);
            let surplus = manifest.quarantine.len().saturating_sub(DAMAGE_MAX);
            manifest.quarantine.drain(..surplus);
        }
    }

    /// Replays a record; false if it cannot be read.
    fn record(&mut self, record: LogRecord<'_>) -> bool {
        let received = record.received;
        match record.kind {
            RecordKind::Gap => {
                let gap = serde_json::from_slice::<GapJson>(record.payload);
                let Some(gap) = gap.ok().and_then(GapJson::gap) else { return false };
                self.books.gaps.set_place(self.intake.place);
                self.books.gaps.add(gap);
                self.books.gaps.set_place(Gaps::OWN);
            }
            RecordKind::RejectedSeries => {
                self.withheld = RejectedSeries::read(record.payload);
                return self.withheld.is_some();
            }
            RecordKind::Frame => {
                let crc = crc32c::crc32c(record.payload);
                let withheld = self.withheld.take().filter(|(of, _)| *of == crc);
                let Some(Ok(frame)) = Frames::of(record.payload).next() else { return false };
                let Ok(decoded) = self.decoder.decode(&frame) else { return false };
                self.jobs(&decoded, received);
                self.books.settled = self.settled_when(received);
                let verdict = self.books.judge(&decoded, received, &self.unlimited);
                if let Verdict::Store(number, table) = verdict {
                    self.recovery.batches += 1;
                    self.recovery.samples += decoded.values.len() as u64;
                    let withheld = withheld.as_ref().map(|(_, withheld)| withheld);
                    let of = (number, &table, withheld);
                    self.intake.store(&mut self.books, of, decoded, received, &self.unlimited);
                }
            }
        }
        self.oldest.get_or_insert(received);
        self.last = Some(received);
        true
    }

    /// The instant before which a batch had no accepted sample.
    fn settled_when(&self, received: Timestamp) -> Timestamp {
        let manifest = self.flusher.ledger.manifest();
        if received >= manifest.settled_at { manifest.settled } else { Timestamp(i64::MIN) }
    }

    /// Collects a batch's reports about jobs.
    fn jobs(&mut self, decoded: &Decoded, received: Timestamp) {
        if decoded.jobs.is_empty() {
            return;
        }
        let Recovery { jobs, jobs_dropped, .. } = &mut self.recovery;
        self.job_events += decoded.jobs.len();
        jobs.push_back((received, decoded.jobs.clone()));
        while self.job_events > JOB_EVENTS_MAX
            && let Some((_, oldest)) = jobs.pop_front()
        {
            self.job_events -= oldest.len();
            *jobs_dropped += oldest.len() as u64;
        }
    }

    /// Writes the replayed samples to a block. If that fails, the store opens all the same: the samples stay
    /// in memory and in the log.
    fn flush(&mut self, through: u64) {
        let covered = Arc::new(Covered::of(&mut self.books, through));
        let head = Arc::clone(&self.intake.head);
        let received = head.received().map_or(self.now, |(_, newest)| newest);
        let job = Job { head, covered, through };
        match self.flusher.write(&job, &self.positions.points()) {
            Ok((block, fault)) => {
                self.first_error = fault.map(|error| error.to_string());
                let since = self.now.plus(-self.flusher.settings.senders.series_idle_us);
                self.view.lasts = Arc::new(self.view.lasts.with(&job.head, received, since));
                self.view.blocks.extend(block);
                self.view.active = Arc::new(Head::default());
                self.intake.turn_to(Arc::clone(&self.view.active));
                self.flusher.trim(through);
                self.oldest = None;
            }
            Err(error) => {
                self.books.gaps.unwritten();
                self.first_error = Some(error.to_string());
            }
        }
    }
}
