//! Verifies a data directory without changing it: every checksum, and the cost of each damage. It can run
//! beside the server of the directory.

use crate::blocks::{Block, BlockNote};
use crate::data_dir::open::{check_format, lock};
use crate::files::disk::Disk;
use crate::files::errors::OpenError;
use crate::files::layout::{blocks_dir, followers_dir, log_dir, quarantine_dir, rollups_dir};
use crate::log::files::{segment_name, segment_number};
use crate::log::record::{LogRecord, RECORD_HEADER_BYTES, RecordKind, is_cut_short};
use crate::log::segment::{Findings, read_segment};
use crate::maintenance::archive::{archive_dir, strays};
use crate::state::manifest::{Manifest, read_whole};
use crate::state::positions::{POSITIONS, Positions};
use model::Timestamp;
use senders::json::GapJson;
use senders::{GapLimits, RejectedSeries};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::Meter;
use wire::{Decoder, Frames};

/// Most findings that are listed.
const FINDINGS_MAX: usize = 10_000;
/// Cost of damage that no series of a block has.
const UNUSED_PAGES: &str = "nothing here: only other programs that read the file need these pages";
/// How often the directory is read again because its server changed it meanwhile.
const TRIES_MAX: u32 = 5;

/// What was verified, and the findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Blocks in the manifest.
    pub blocks: u64,
    /// Those in the archive.
    pub archived: u64,
    /// Samples in them.
    pub samples: u64,
    /// Their bytes.
    pub block_bytes: u64,
    /// Rollup files.
    pub rollups: u64,
    /// Their bytes.
    pub rollup_bytes: u64,
    /// Log segments that no block covers.
    pub segments: u64,
    /// Good records in them.
    pub records: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Findings, at most 10 000.
    pub findings: Vec<Finding>,
    /// Findings beyond that limit.
    pub findings_dropped: u64,
}

/// A deviation in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
    /// What that costs.
    pub cost: String,
    /// Whether nothing is lost by it: a usual result of a crash, or known damage.
    pub is_harmless: bool,
}

/// Reads format and manifest, as a store does first, without changes. Returns whether a server uses the directory.
///
/// # Errors
/// It is not a data directory, a newer program wrote it, or a file cannot be read.
pub fn check(disk: &dyn Disk, dir: &Path) -> Result<bool, OpenError> {
    check_format(disk, dir)?;
    Manifest::read(disk, dir)?;
    match lock(disk, dir) {
        Ok(_) => Ok(false),
        Err(OpenError::Locked { .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Verifies a data directory without changes: format, manifest, gaps, every checksum of every block, every
/// record of the log.
///
/// # Errors
/// It is not a data directory, or a newer program wrote it.
pub fn verify(disk: &dyn Disk, dir: &Path) -> Result<Verified, OpenError> {
    let mut tries = 0;
    loop {
        tries += 1;
        check_format(disk, dir)?;
        let mut verified = Verified::default();
        let manifest = match Manifest::read(disk, dir) {
            Ok(manifest) => manifest.unwrap_or_default(),
            Err(error) => {
                let cost = "the server does not start: the manifest lists the valid blocks";
                verified.find(&dir.join("MANIFEST"), &error, cost);
                return Ok(verified);
            }
        };
        verified.gaps(disk, dir, &manifest);
        verified.blocks(disk, dir, &manifest);
        verified.followers(disk, dir, &manifest);
        verified.log(disk, dir, &manifest);
        let now =
            Manifest::read(disk, dir).ok().flatten().map_or(0, |manifest| manifest.generation);
        // A running server replaced files while they were read.
        if now == manifest.generation || verified.findings.is_empty() || tries == TRIES_MAX {
            return Ok(verified);
        }
    }
}

impl Verified {
    /// Whether nothing is lost.
    pub fn is_good(&self) -> bool {
        self.findings_dropped == 0 && self.findings.iter().all(|finding| finding.is_harmless)
    }

    fn find(&mut self, path: &Path, what: &dyn ToString, cost: &str) {
        self.push(path, what.to_string(), cost.to_owned(), false);
    }

    fn push(&mut self, path: &Path, what: String, cost: String, is_harmless: bool) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Finding { path: path.to_owned(), what, cost, is_harmless });
        } else {
            self.findings_dropped += 1;
        }
    }

    fn gaps(&mut self, disk: &dyn Disk, dir: &Path, manifest: &Manifest) {
        if let (Some(note), Err(error)) =
            (&manifest.gaps, manifest.read_gaps(disk, dir, GapLimits::NONE))
        {
            let cost = "the server does not start; samples are intact, the record of gaps is lost";
            self.find(&dir.join(&note.file), &error, cost);
        }
    }

    fn blocks(&mut self, disk: &dyn Disk, dir: &Path, manifest: &Manifest) {
        for note in &manifest.blocks {
            self.blocks += 1;
            self.samples += note.rows;
            self.block_bytes += note.bytes;
            let all = format!(
                "{} samples of {} series, {} to {}",
                note.rows, note.series, note.from, note.to
            );
            if note.archived {
                self.archived(disk, &archive_dir(manifest), note, &all);
            } else {
                self.file(disk, &blocks_dir(dir), note, &all);
            }
        }
        for note in &manifest.rollups {
            self.rollups += 1;
            self.rollup_bytes += note.bytes;
            let all = format!(
                "windows of {} s of {} series, {} to {}",
                note.window_us / Timestamp::SECOND,
                note.series,
                note.from,
                note.to
            );
            self.file(disk, &rollups_dir(dir), note, &all);
        }
        for (dir, notes) in
            [(blocks_dir(dir), &manifest.blocks), (rollups_dir(dir), &manifest.rollups)]
        {
            for name in disk.list(&dir).unwrap_or_default() {
                if !notes.iter().any(|note| note.file == name && !note.archived) {
                    let cost = "nothing: the next start removes it";
                    let what = "the manifest does not list it: unfinished work".to_owned();
                    self.push(&dir.join(name), what, cost.to_owned(), true);
                }
            }
        }
        for path in strays(disk, manifest) {
            let what = "the manifest does not name it: a copy or a removal that did not end, or \
                        another backup's block";
            let cost = "its disk space, until an administrator removes it";
            self.push(&path, what.to_owned(), cost.to_owned(), true);
        }
    }

    fn followers(&mut self, disk: &dyn Disk, dir: &Path, manifest: &Manifest) {
        let path = followers_dir(dir).join(POSITIONS);
        if let Some(why) = Positions::read(disk, dir).unreadable() {
            self.find(&path, &why, "outputs stop; samples are intact");
        }
        for rest in manifest.rests.iter().filter(|rest| !rest.deleted) {
            let cost = format!("{} samples for an output; the block has them", rest.note.rows);
            self.content(disk, &followers_dir(dir), &rest.note, &cost, &cost);
        }
    }

    fn file(&mut self, disk: &dyn Disk, dir: &Path, note: &BlockNote, all: &str) {
        let cost = format!("the server does not start; {all}");
        self.content(disk, dir, note, &cost, all);
    }

    fn archived(&mut self, disk: &dyn Disk, dir: &Path, note: &BlockNote, all: &str) {
        self.archived += 1;
        let cost = format!("while it is unavailable, queries of its time range fail; {all}");
        self.content(disk, dir, note, &cost, all);
    }

    /// Checks a file; `cost` applies if it cannot be opened.
    fn content(&mut self, disk: &dyn Disk, dir: &Path, note: &BlockNote, cost: &str, all: &str) {
        let path = dir.join(&note.file);
        match Block::open(disk, dir, note.clone()).map(Arc::new) {
            Err(error) => self.find(&path, &error, cost),
            Ok(block) => match block.damage(&Arc::new(Meter::default())) {
                Err(error) => self.find(&path, &error, all),
                Ok(damage) => {
                    for (what, cost) in damage {
                        let is_harmless = cost.is_none();
                        let cost = cost.unwrap_or_else(|| UNUSED_PAGES.to_owned());
                        self.push(&path, what, cost, is_harmless);
                    }
                }
            },
        }
    }

    fn log(&mut self, disk: &dyn Disk, dir: &Path, manifest: &Manifest) {
        let log = log_dir(dir);
        let names = disk.list(&log).unwrap_or_default();
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| segment_number(name)).collect();
        numbers.retain(|number| *number > manifest.covered);
        numbers.sort_unstable();
        for number in numbers {
            let path = log.join(segment_name(number));
            match read_whole(disk, &path) {
                Err(error) => self.find(&path, &error, "its records that no block contains"),
                Ok(None) => {}
                Ok(Some(bytes)) => self.segment(&path, number, &bytes),
            }
        }
        let aside = quarantine_dir(dir);
        for name in disk.list(&aside).unwrap_or_default() {
            let what = "a damaged log segment, set aside at an earlier start".to_owned();
            let cost = "recorded as gaps with the cause \"log damaged\"".to_owned();
            self.push(&aside.join(name), what, cost, true);
        }
    }

    fn segment(&mut self, path: &Path, number: u64, bytes: &[u8]) {
        let mut decoder = Decoder::default();
        let findings = read_segment(bytes, number, |_, record| {
            let good = is_good(&mut decoder, &record);
            self.records += u64::from(good);
            good
        });
        self.segments += 1;
        self.log_bytes += bytes.len() as u64;
        let Findings { good, unread_ranges } = findings;
        for unread_range in unread_ranges {
            let shown = |at: Option<Timestamp>| at.map_or("?".to_owned(), |at| at.to_string());
            let what =
                format!("{} bytes from {} on are damaged", unread_range.bytes, unread_range.at);
            let (from, to) = (shown(unread_range.from), shown(unread_range.to));
            let cost = format!(
                "the batches there, received between {from} and {to}: the next start records gaps"
            );
            self.push(path, what, cost, false);
        }
        if good < bytes.len() {
            let what = format!("{} bytes at its end are an incomplete record", bytes.len() - good);
            // A record that was being written is cut short, or its header is.
            let rest = bytes.get(good..).unwrap_or_default();
            if rest.len() < RECORD_HEADER_BYTES || is_cut_short(rest) {
                let cost = "nothing: a record that was being written is never acknowledged";
                self.push(path, what, cost.to_owned(), true);
            } else {
                self.push(path, what, "the newest batches of this segment".to_owned(), false);
            }
        }
    }
}

fn is_good(decoder: &mut Decoder, record: &LogRecord<'_>) -> bool {
    match record.kind {
        RecordKind::Gap => {
            let gap = serde_json::from_slice::<GapJson>(record.payload);
            gap.ok().and_then(GapJson::gap).is_some()
        }
        RecordKind::RejectedSeries => RejectedSeries::read(record.payload).is_some(),
        RecordKind::Frame => match Frames::of(record.payload).next() {
            Some(Ok(frame)) => decoder.decode(&frame).is_ok(),
            _ => false,
        },
    }
}
