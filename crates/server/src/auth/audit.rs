//! The audit log: records changes, and reads of other users' jobs, one line each, in a file of the data
//! folder.
//!
//! ```text
//! {"action":"GET /api/v1/jobs/slurm:7","actor":"uid 0","address":"127.0.0.1","job":"slurm:7","owner":1000,"time":1767657600.25}
//! ```
//!
//! Entries of ordinary users go to separate files (`audit-users.log`), so they never displace an
//! administrator's entries. Each user may write 200 entries an hour; one further entry counts the rest.
//!
//! If a caller reads the same job in the same way again within the hour, the log records only the first
//! read. A page that polls every few seconds thus writes one line an hour. A dedicated thread writes the
//! lines, so a hanging disk delays no response. The server counts lines that do not fit into the thread's
//! queue.

use crate::common::counts::Counter;
use config::paths::AUDIT_OF_USERS_FILE;
use model::Timestamp;
use parking_lot::Mutex;
use query::ReadObserver;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A file of this size is rotated.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Number of rotated files kept, besides the current one.
const ASIDE: u32 = 4;
/// Capacity of the queue to the writer thread, in lines.
const LINES_AHEAD: usize = 1024;
/// Reads of one hour that are remembered. Beyond this limit the log repeats reads.
const READS_MAX: usize = 10_000;
const HOUR: i64 = 3600 * Timestamp::SECOND;
/// Entries that one user may write within an hour; further ones are only counted.
const OF_USER_MAX: u64 = 200;
/// Users with a counter of their own; further users share one counter.
const USERS_MAX: usize = 10_000;

/// The actor of an audit entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Actor {
    /// Name of the actor, without a secret: `uid 1000`, `token 7`. No other actor has this name.
    pub(crate) who: Arc<str>,
    /// User ID, if known.
    pub(crate) uid: Option<u32>,
    /// Address of the client.
    pub(crate) from: Arc<str>,
    /// Method and path of the request.
    pub(crate) what: Arc<str>,
}

/// The file that receives an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuditFile {
    /// Entries of administrators, staff, scheduler scripts and the server itself.
    Trusted,
    /// Entries of ordinary users.
    Users,
}

/// An entry queued for its file.
type Entry = (AuditFile, String);

/// Number of entries per user within an hour.
#[derive(Debug, Default)]
struct EntriesPerUser {
    hour: i64,
    counts: HashMap<Arc<str>, u64>,
}

impl Actor {
    /// Key for fair scheduling and per-caller limits: the user ID if known, from any address; otherwise
    /// actor and address. The addresses of loopback are one, because any local user may connect from each.
    pub(crate) fn user_key(&self) -> Arc<str> {
        match self.uid {
            Some(uid) => format!("uid {uid}").into(),
            None => {
                let is_local = self.from.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
                let from = if is_local { "loopback" } else { &*self.from };
                format!("{} at {from}", self.who).into()
            }
        }
    }
}

/// The audit log, as requests use it.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    lines: Option<SyncSender<Entry>>,
    writer: Option<JoinHandle<()>>,
    reads: Mutex<RecordedReads>,
    of_users: Mutex<EntriesPerUser>,
    /// Lines that could not be written.
    pub(crate) lost: Arc<Counter>,
    /// Users' entries beyond the limit; one entry per user records their number.
    pub(crate) limited: Counter,
}

/// Reads recorded within an hour.
#[derive(Debug, Default)]
struct RecordedReads {
    hour: i64,
    recorded: HashSet<(Arc<str>, Arc<str>, String)>,
}

impl Audit {
    /// Opens the files and starts the writer thread.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let lost = Arc::new(Counter::default());
        let (lines, received) = sync_channel(LINES_AHEAD);
        let mut files = [RotatedFile::open(path)?, RotatedFile::open(&of_users(path))?];
        let failed = Arc::clone(&lost);
        let write = move || write_all(&mut files, &received, &failed);
        let writer = std::thread::Builder::new().name("audit".to_owned()).spawn(write)?;
        let (lines, writer, path) = (Some(lines), Some(writer), path.to_owned());
        let (reads, of_users) = (Mutex::default(), Mutex::default());
        Ok(Self { path, lines, writer, reads, of_users, lost, limited: Counter::default() })
    }

    /// Returns the files of trusted entries and those of users' entries, each list newest first.
    pub(crate) fn files(&self) -> [Vec<PathBuf>; 2] {
        [files(&self.path, ASIDE), files(&of_users(&self.path), ASIDE)]
    }

    /// Records a change by a trusted actor.
    pub(crate) fn wrote(&self, actor: &Actor, now: Timestamp, more: &Value) {
        self.line(AuditFile::Trusted, actor, now, more);
    }

    /// Records a change by an ordinary user.
    pub(crate) fn wrote_as_user(&self, actor: &Actor, now: Timestamp, more: &Value) {
        let user_key =
            actor.uid.map_or_else(|| Arc::clone(&actor.who), |uid| format!("uid {uid}").into());
        let mut of_users = self.of_users.lock();
        let hour = now.0.div_euclid(HOUR);
        if of_users.hour != hour {
            self.log_limited(&mut of_users, now);
            of_users.hour = hour;
        }
        let is_known = of_users.counts.contains_key(&user_key);
        let user_key =
            if is_known || of_users.counts.len() < USERS_MAX { user_key } else { "others".into() };
        let count = of_users.counts.entry(user_key).or_default();
        *count += 1;
        if *count <= OF_USER_MAX {
            drop(of_users);
            self.line(AuditFile::Users, actor, now, more);
        } else {
            self.limited.add(1);
        }
    }

    /// Writes one entry per user with the number of entries beyond the limit.
    fn log_limited(&self, of_users: &mut EntriesPerUser, now: Timestamp) {
        for (who, count) in of_users.counts.drain() {
            let beyond = count.saturating_sub(OF_USER_MAX);
            if beyond > 0 {
                let what = format!("{beyond} more changes within an hour").into();
                let actor = Actor { who, uid: None, from: "".into(), what };
                self.line(AuditFile::Users, &actor, now, &json!({"count": beyond}));
            }
        }
    }

    /// Records a read of another user's job, or of any jobs (`*`).
    fn read(&self, actor: &Actor, now: Timestamp, job: &str, owner: Option<u32>) {
        let key = (Arc::clone(&actor.who), Arc::clone(&actor.what), job.to_owned());
        let mut reads = self.reads.lock();
        let hour = now.0.div_euclid(HOUR);
        if reads.hour != hour || reads.recorded.len() >= READS_MAX {
            *reads = RecordedReads { hour, recorded: HashSet::new() };
        }
        if reads.recorded.insert(key) {
            self.line(AuditFile::Trusted, actor, now, &json!({"job": job, "owner": owner}));
        }
    }

    fn line(&self, lane: AuditFile, actor: &Actor, now: Timestamp, more: &Value) {
        let Actor { who, from, what, .. } = actor;
        let mut line =
            json!({"time": now.seconds(), "actor": who, "address": from, "action": what});
        if let (Some(line), Some(more)) = (line.as_object_mut(), more.as_object()) {
            line.extend(more.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        let entry = (lane, format!("{line}\n"));
        let sent = self.lines.as_ref().is_some_and(|to| to.try_send(entry).is_ok());
        if !sent {
            self.lost.add(1);
        }
    }
}

/// Writes all queued lines before the server ends.
impl Drop for Audit {
    fn drop(&mut self) {
        let of_users = self.of_users.get_mut();
        let mut of_users = std::mem::take(of_users);
        self.log_limited(&mut of_users, crate::common::clock::now());
        drop(self.lines.take());
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            log::error!("the thread that writes the audit panicked");
        }
    }
}

/// Path of the file for users' entries, beside the main file.
fn of_users(path: &Path) -> PathBuf {
    path.with_file_name(AUDIT_OF_USERS_FILE)
}

fn write_all([trusted, users]: &mut [RotatedFile; 2], lines: &Receiver<Entry>, lost: &Counter) {
    for (lane, line) in lines {
        let file = if lane == AuditFile::Users { &mut *users } else { &mut *trusted };
        if let Err(error) = file.write(&line) {
            lost.add(1);
            log::error!("{}: {error}; the audit entry is lost", file.path.display());
        }
    }
}

/// A file that is rotated when it gets too long.
struct RotatedFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl RotatedFile {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        if self.bytes.saturating_add(length) > FILE_BYTES_MAX {
            self.put_aside()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.bytes = self.bytes.saturating_add(length);
        Ok(())
    }

    /// Rotates: `audit.log` becomes `audit.log.1`, that becomes `audit.log.2`, and the oldest file is
    /// deleted.
    fn put_aside(&mut self) -> io::Result<()> {
        let files = files(&self.path, ASIDE);
        for (file, older) in files.iter().zip(files.iter().skip(1)).rev() {
            match std::fs::rename(file, older) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        *self = Self::open(&self.path)?;
        Ok(())
    }
}

/// Records what one query of a caller who may read everything reads.
#[derive(Debug)]
pub(crate) struct ReadRecorder {
    audit: Arc<Audit>,
    actor: Actor,
    now: Timestamp,
    named: Mutex<Option<model::JobKey>>,
    met: AtomicBool,
}

impl ReadRecorder {
    pub(crate) fn new(audit: &Arc<Audit>, actor: Actor, now: Timestamp) -> Self {
        let (audit, named) = (Arc::clone(audit), Mutex::new(None));
        Self { audit, actor, now, named, met: AtomicBool::new(false) }
    }

    fn named(&self) -> parking_lot::MutexGuard<'_, Option<model::JobKey>> {
        self.named.lock()
    }
}

impl ReadObserver for ReadRecorder {
    fn names(&self, job: &model::JobKey, owner: Option<u32>) {
        *self.named() = Some(job.clone());
        if owner.is_none() || owner != self.actor.uid {
            self.audit.read(&self.actor, self.now, &job.to_string(), owner);
        }
    }

    fn meets(&self, job: Option<&model::JobKey>) {
        let is_named = job.is_some() && self.named().as_ref() == job;
        if !is_named && !self.met.swap(true, Ordering::Relaxed) {
            self.audit.read(&self.actor, self.now, "*", None);
        }
    }
}

/// Describes what a request changed: a response extension for the audit log.
#[derive(Clone, Debug, Default)]
pub(crate) struct AuditedChange(pub(crate) Value);

/// Marks a request that changed nothing despite its method: a response extension for the audit log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unchanged;

/// Returns the file and its rotated predecessors, newest first.
pub(crate) fn files(path: &Path, aside: u32) -> Vec<PathBuf> {
    let named = |nth: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{nth}"));
        PathBuf::from(name)
    };
    std::iter::once(path.to_owned()).chain((1..=aside).map(named)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn actor(uid: u32) -> Actor {
        let who = format!("uid {uid}").into();
        Actor { who, uid: Some(uid), from: "127.0.0.1".into(), what: "GET /api/v1/jobs".into() }
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn reads_of_an_hour_are_reported_once_and_ones_own_never() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Arc::new(Audit::open(&path).unwrap());
        let job =
            model::JobKey { cluster: model::ClusterId::local(), id: model::JobId::new(7).unwrap() };
        let read = |uid: u32, hour: i64, owner: u32| {
            let reading = ReadRecorder::new(&audit, actor(uid), Timestamp(hour * HOUR + 5));
            reading.names(&job, Some(owner));
            reading.meets(Some(&job));
        };
        read(0, 1, 1000);
        read(0, 1, 1000);
        read(0, 2, 1000);
        read(1000, 2, 1000);
        let any = ReadRecorder::new(&audit, actor(5), Timestamp(2 * HOUR));
        any.meets(None);
        any.meets(Some(&job));
        assert_eq!(audit.lost.get(), 0);
        drop((any, audit));
        let recorded = lines(&path);
        let jobs: Vec<_> = recorded.iter().map(|line| (&line["actor"], &line["job"])).collect();
        let root: Value = "uid 0".into();
        let seven: Value = "local:7".into();
        assert_eq!(jobs, [(&root, &seven), (&root, &seven), (&"uid 5".into(), &"*".into())]);
        assert_eq!(
            (&recorded[0]["owner"], &recorded[0]["address"]),
            (&1000.into(), &"127.0.0.1".into())
        );
    }

    #[test]
    fn one_users_entries_are_limited_and_displace_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let audit = Audit::open(&path).unwrap();
        audit.wrote(&actor(0), Timestamp(1), &json!({"account": "physics"}));
        for number in 0..OF_USER_MAX + 300 {
            audit.wrote_as_user(&actor(1000), Timestamp(2), &json!({"job": number}));
            if number % 100 == 0 {
                // Wait, so that the writer thread keeps up.
                while !of_users(&path).metadata().is_ok_and(|about| about.len() > 0) {
                    std::thread::yield_now();
                }
            }
        }
        audit.wrote_as_user(&actor(1001), Timestamp(2), &json!({}));
        assert_eq!((audit.limited.get(), audit.lost.get()), (300, 0));
        audit.wrote_as_user(&actor(1000), Timestamp(2 + HOUR), &json!({}));
        drop(audit);
        assert_eq!(lines(&path).len(), 1, "the administrator's alone");
        let of_users = lines(&of_users(&path));
        let of = |who: &str| of_users.iter().filter(|line| line["actor"] == who).count();
        assert_eq!((of("uid 1000"), of("uid 1001")), (202, 1));
        let counted = of_users.iter().find(|line| line["count"] == 300).unwrap();
        assert_eq!(counted["action"], "300 more changes within an hour");
    }

    #[test]
    fn a_long_file_is_put_aside_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let mut file = RotatedFile::open(&path).unwrap();
        for round in 0..7 {
            file.bytes = FILE_BYTES_MAX;
            file.write(&format!("{round}\n")).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            (read("audit.log"), read("audit.log.1"), read("audit.log.4")),
            ("6\n".into(), "5\n".into(), "2\n".into())
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5);
    }
}
