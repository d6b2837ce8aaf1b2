//! Times when the jobs of this node were last seen, across restarts of the agent.
//!
//! A job may end while no agent runs. The next start reports the end after 5 s of searching, once it has the
//! server's list of running jobs. A start that is killed earlier has reported nothing, but has advanced the time
//! until which the agent kept everything (`kept`). The file `sightings` beside the spool therefore stores the state
//! for the next start:
//!
//! ```text
//! jobmeter sightings 1
//! before 1767706500000000
//! here slurm 42
//! 1767706503000000 slurm 41
//! crc 89abcdef
//! ```
//!
//! - `before`: the last time seen by the latest start that reported every end. Absent once this start reported all.
//! - `here`: a job that the start saw in its latest search.
//! - A time: the last time an ended job was seen. The line remains until the server has the end.
//!
//! Times are microseconds since 1970. At each change the agent writes a temporary file and renames it.

use cgroups::Jobs;
use delivery::{crc32c, write_private};
use model::{ClusterId, JobId, JobKey, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// First line of the file, with the format version.
const TITLE: &str = "jobmeter sightings 1\n";
/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 20;
/// Maximum number of jobs in the file.
const JOBS_MAX: usize = 8192;

/// When a job was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSeen {
    Here,
    Until(Timestamp),
}

/// Times when the jobs of this node were last seen.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    path: Option<PathBuf>,
    /// Last time seen by the latest start that reported every end.
    before: Option<Timestamp>,
    /// Jobs seen by later starts, and jobs with an end that the server may lack.
    jobs: BTreeMap<JobKey, LastSeen>,
    /// Whether this start has reported every end.
    is_settled: bool,
    /// Whether the file is up to date.
    is_written: bool,
}

impl Sightings {
    /// Reads the file in a folder. `kept_until` is the time until which the previous start kept everything.
    pub(crate) fn open(dir: Option<&Path>, kept_until: Option<Timestamp>) -> Self {
        let Some(path) = dir.map(|dir| dir.join("sightings")) else {
            return Self { before: kept_until, ..Self::default() };
        };
        let (before, mut jobs) = read(&path).unwrap_or_else(|e| {
            log::warn!("{}: {e}; ends of jobs may seem to be later", path.display());
            (None, BTreeMap::new())
        });
        for seen in jobs.values_mut() {
            if let (LastSeen::Here, Some(until)) = (*seen, kept_until) {
                *seen = LastSeen::Until(until);
            }
        }
        Self { path: Some(path), before: before.or(kept_until), jobs, ..Self::default() }
    }

    /// Records the jobs that a search found.
    pub(crate) fn look(&mut self, here: &Jobs, now: Timestamp) {
        self.before.get_or_insert(now);
        if !self.is_settled {
            for (key, seen) in &mut self.jobs {
                if *seen == LastSeen::Here && here.get(key).is_none() {
                    *seen = LastSeen::Until(now);
                    self.is_written = false;
                }
            }
            for job in here.iter() {
                if self.jobs.get(&job.key) != Some(&LastSeen::Here) && self.jobs.len() < JOBS_MAX {
                    self.jobs.insert(job.key.clone(), LastSeen::Here);
                    self.is_written = false;
                }
            }
        }
        self.write();
    }

    /// Returns when an ended job was last seen, but not before its start.
    pub(crate) fn last(&self, key: &JobKey, start: Timestamp) -> Timestamp {
        let of_job = match self.jobs.get(key) {
            // An earlier run had the same ID.
            Some(LastSeen::Until(at)) => Some(*at).filter(|at| *at >= start),
            Some(LastSeen::Here) | None => None,
        };
        of_job.or(self.before).unwrap_or(start).max(start)
    }

    /// Records that this start has reported all ends. `ended` are the reported jobs; the server lists `open` as
    /// running.
    pub(crate) fn settle(&mut self, ended: &[(JobKey, Timestamp)], open: &BTreeSet<JobKey>) {
        self.is_settled = true;
        self.jobs.retain(|key, seen| *seen != LastSeen::Here && open.contains(key));
        for (key, at) in ended.iter().take(JOBS_MAX.saturating_sub(self.jobs.len())) {
            self.jobs.insert(key.clone(), LastSeen::Until(*at));
        }
        self.is_written = false;
        self.write();
    }

    fn write(&mut self) {
        if std::mem::replace(&mut self.is_written, true) {
            return;
        }
        let Some(path) = &self.path else { return };
        let text = self.text();
        let beside = path.with_extension("new");
        let moved = || std::fs::rename(&beside, path);
        if let Err(e) = write_private(&beside, text.as_bytes()).and_then(|()| moved()) {
            log::warn!("{} cannot be written: {e}", path.display());
        }
    }

    fn text(&self) -> String {
        let mut text = TITLE.to_owned();
        // Writing to a string cannot fail.
        if let Some(before) = self.before.filter(|_| !self.is_settled) {
            writeln!(text, "before {}", before.0).ok();
        }
        for (key, seen) in &self.jobs {
            match seen {
                LastSeen::Here => write!(text, "here").ok(),
                LastSeen::Until(at) => write!(text, "{}", at.0).ok(),
            };
            writeln!(text, " {} {}", key.cluster, key.id).ok();
        }
        let check = crc32c(text.as_bytes());
        writeln!(text, "crc {check:08x}").ok();
        text
    }
}

type Contents = (Option<Timestamp>, BTreeMap<JobKey, LastSeen>);

fn read(path: &Path) -> io::Result<Contents> {
    match std::fs::metadata(path) {
        Ok(data) if data.len() > BYTES_MAX => return Err(io::Error::other("it is too long")),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Contents::default()),
        Err(e) => return Err(e),
    }
    contents(&std::fs::read_to_string(path)?).ok_or_else(|| io::Error::other("it is damaged"))
}

fn contents(text: &str) -> Option<Contents> {
    let (body, check) = text.split_at_checked(text.rfind("crc ")?)?;
    if check != format!("crc {:08x}\n", crc32c(body.as_bytes())) {
        return None;
    }
    let (mut before, mut jobs) = (None, BTreeMap::new());
    for line in body.strip_prefix(TITLE)?.lines() {
        let mut words = line.split(' ');
        let (first, second) = (words.next()?, words.next()?);
        if first == "before" {
            before = Some(Timestamp(second.parse().ok()?));
            continue;
        }
        let cluster = ClusterId::new(second).ok()?;
        let id = words.next()?.parse::<JobId>().ok()?;
        let seen = match first {
            "here" => LastSeen::Here,
            at => LastSeen::Until(Timestamp(at.parse().ok()?)),
        };
        jobs.insert(JobKey { cluster, id }, seen);
    }
    Some((before, jobs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgroups::{JobCgroup, USER_DIRECTORIES_MAX};

    fn key(id: i64) -> JobKey {
        JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(id).unwrap() }
    }

    fn here(ids: &[i64]) -> Jobs {
        let job = |id: &i64| JobCgroup {
            key: key(*id),
            display_id: id.to_string().into(),
            user: None,
            uid: None,
            dirs: Vec::new(),
            created: Timestamp(1),
            populated: true,
            directories_max: USER_DIRECTORIES_MAX,
        };
        Jobs::new(ids.iter().map(job).collect(), Vec::new())
    }

    #[test]
    fn the_last_sighting_of_a_job_holds_over_any_number_of_starts() {
        let dir = tempfile::tempdir().unwrap();
        let open = |kept| Sightings::open(Some(dir.path()), Some(Timestamp(kept)));
        // The start that saw job 1 ended at 100. Two starts that are killed soon see jobs 2 and 3.
        let mut second = open(100);
        second.look(&here(&[2]), Timestamp(200));
        drop(second);
        let mut third = open(210);
        third.look(&here(&[3]), Timestamp(300));
        third.look(&here(&[]), Timestamp(301));
        drop(third);
        let mut fourth = open(310);
        let last =
            |sightings: &Sightings| [1, 2, 3].map(|id| sightings.last(&key(id), Timestamp(50)).0);
        assert_eq!(last(&fourth), [100, 210, 301]);
        assert_eq!(fourth.last(&key(2), Timestamp(250)), Timestamp(250), "another run");
        // It reports them, and is killed before the server has the ends.
        fourth.look(&here(&[]), Timestamp(400));
        let ended = [1, 2, 3].map(|id| (key(id), fourth.last(&key(id), Timestamp(50))));
        let listed = BTreeSet::from([1, 2, 3].map(key));
        fourth.settle(&ended, &listed);
        let mut fifth = open(410);
        assert_eq!(last(&fifth), [100, 210, 301]);
        // The server has the ends. The fourth start saw the jobs that end later.
        fifth.look(&here(&[4]), Timestamp(500));
        fifth.settle(&[], &BTreeSet::new());
        assert_eq!(open(510).last(&key(4), Timestamp(500)), Timestamp(510));
        assert_eq!(last(&open(510)), [510; 3]);
    }

    #[test]
    fn a_damaged_file_is_not_used() {
        let mut sightings = Sightings { before: Some(Timestamp(7)), ..Sightings::default() };
        sightings.look(&here(&[1]), Timestamp(9));
        let text = sightings.text();
        let good = contents(&text).unwrap();
        assert_eq!(good, (Some(Timestamp(7)), BTreeMap::from([(key(1), LastSeen::Here)])));
        for end in 0..text.len() {
            assert_eq!(text.get(..end).and_then(contents), None, "{end}");
        }
        assert_eq!(contents(&text.replace("slurm", "slurn")), None);
    }

    #[test]
    fn without_a_folder_the_start_itself_knows() {
        let mut sightings = Sightings::open(None, None);
        sightings.look(&here(&[]), Timestamp(30));
        assert_eq!(sightings.last(&key(1), Timestamp(5)), Timestamp(30));
        assert_eq!(sightings.last(&key(1), Timestamp(40)), Timestamp(40));
    }
}
