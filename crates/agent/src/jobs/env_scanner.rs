//! What jobs ask for by their environment: the variable `JOBMETER_MONITOR` of one of a job's processes, as
//! `/proc/PID/environ` shows it. Slurm's own interfaces do not.
//!
//! A job is looked at when it gets its first process, and again, each time after twice as long, for a quarter of a
//! minute: its first processes may be its scheduler's, which know nothing of what the user set. Once a value is found,
//! or that time is over, nothing of a job is read any more. Only processes of the job's user count. Where the agent
//! may not read them, which takes root, or CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, nothing is found.

use crate::jobs::finder::event;
use crate::reading::work::Machine;
use cgroups::{JobCgroup, Jobs, Members, processes};
use kernel::Root;
use kernel::process::{variable, whole_entries};
use model::{ClusterId, DeviceId, JobEvent, JobKey, REJECTED_REQUEST, Timestamp};
use std::sync::Arc;
use wire::MONITOR_BYTES_MAX;

/// The variable.
const VARIABLE: &str = "JOBMETER_MONITOR";
/// From the first look at a job to the second; from each to the next twice as long as before.
const SECOND_LOOK_US: i64 = 250_000;
/// Looks at a job: the last is 15.75 s after the first.
const LOOKS_MAX: u32 = 7;
/// Most processes of a job whose owners are looked at in one look.
const OWNERS_MAX: usize = 1024;
/// Most processes of a job whose environment is read in one look.
const PROCESSES_MAX: usize = 64;
/// So much of an environment is read; the kernel's limit for one variable is as large.
const ENVIRON_BYTES_MAX: usize = 128 * 1024;

/// The jobs that are to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    /// This node is to read none.
    is_off: bool,
    waiting: Vec<Waiting>,
    /// A look is being made: there is one at a time, as one may hang.
    is_away: bool,
}

#[derive(Debug)]
struct Waiting {
    key: JobKey,
    /// Another run of the number has another.
    created: Timestamp,
    looks: u32,
    due_us: i64,
}

/// A look at a job about to be made.
pub(crate) struct Looking {
    pub(crate) key: JobKey,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) device: DeviceId,
}

/// What a look found.
pub(crate) struct Looked {
    key: JobKey,
    /// Nothing more is to be looked for.
    is_known: bool,
    /// The job, told again with what it asks for.
    pub(crate) event: Option<JobEvent>,
}

impl Wishes {
    /// Takes note of jobs that got their first process, and forgets those that ended. The user of a local job asks
    /// for himself.
    pub(crate) fn note(&mut self, populated: &[JobKey], jobs: &Jobs, steady_us: i64) {
        let is_here = |one: &Waiting| jobs.get(&one.key).is_some_and(|j| j.created == one.created);
        self.waiting.retain(is_here);
        if self.is_off {
            return;
        }
        for key in populated.iter().filter(|key| key.cluster.as_str() != ClusterId::LOCAL) {
            let Some(job) = jobs.get(key) else { continue };
            let (key, created) = (key.clone(), job.created);
            self.waiting.push(Waiting { key, created, looks: 0, due_us: steady_us });
        }
    }

    /// Reads environments from now on, those of the jobs that are here too, or none.
    pub(crate) fn set(&mut self, reads: bool, jobs: &Jobs, steady_us: i64) {
        let was_off = std::mem::replace(&mut self.is_off, !reads);
        if self.is_off {
            self.waiting.clear();
        } else if was_off {
            let here = jobs.iter().filter(|job| job.populated).map(|job| job.key.clone());
            self.note(&here.collect::<Vec<_>>(), jobs, steady_us);
        }
    }

    /// The job to be looked at now, if there is one; [`Self::take`] takes back what was found.
    pub(crate) fn next(&mut self, steady_us: i64) -> Option<JobKey> {
        let due = self.due_us().is_some_and(|due_us| due_us <= steady_us);
        let next = self.waiting.iter().min_by_key(|one| one.due_us).filter(|_| due)?;
        self.is_away = true;
        Some(next.key.clone())
    }

    /// When the next look is to be made, by the steady clock; none where none is, or while one is being made.
    pub(crate) fn due_us(&self) -> Option<i64> {
        self.waiting.iter().map(|one| one.due_us).min().filter(|_| !self.is_away)
    }

    /// Takes back a look that was made.
    pub(crate) fn take(&mut self, looked: &Looked, steady_us: i64) {
        self.is_away = false;
        self.waiting.retain_mut(|one| {
            if one.key != looked.key {
                return true;
            }
            one.due_us = steady_us.saturating_add(SECOND_LOOK_US << one.looks.min(LOOKS_MAX));
            one.looks += 1;
            !looked.is_known && one.looks < LOOKS_MAX
        });
    }
}

impl Looking {
    /// Looks, in the time it takes: a process that is stuck may hold up whoever reads its memory.
    pub(crate) fn make(self) -> Looked {
        let Self { key, jobs, machine, device } = self;
        let found = jobs.get(&key).and_then(|job| find(&machine.root, job));
        let is_known = found.is_some();
        let event = found.and_then(|found| {
            let value = found.unwrap_or_else(|why| {
                log::warn!("{VARIABLE} of job {key} is rejected: {why}");
                // The server shows it to the job's owner.
                format!("{REJECTED_REQUEST}{VARIABLE}: {why}").into()
            });
            log::info!("job {key} asks for metrics by its environment");
            let told = event(&jobs, &key, &device, None);
            told.map(|told| JobEvent { monitor: Some(value), ..told })
        });
        Looked { key, is_known, event }
    }
}

/// What the first process of the job's user that has the variable has in it.
fn find(root: &Root, job: &JobCgroup) -> Option<Result<Box<str>, String>> {
    let mut members = Members::default();
    // Of lists that cannot be read, what the others have.
    processes(root, job, &mut members).ok();
    let dir = job.dirs.first().and_then(|dir| root.stat(&dir.path).ok());
    let is_users = |uid: u32| match job.uid {
        Some(user) => uid == user,
        // The cgroups of OAR 2 and of Slurm in version 2 name no number. The scheduler's own processes are root's, or of
        // the account that makes the cgroups.
        None => uid != 0 && dir.is_some_and(|dir| uid != dir.uid),
    };
    let owned = |pid: &&u32| root.stat(&format!("proc/{pid}")).is_ok_and(|stat| is_users(stat.uid));
    let (mut environ, mut again) = (Vec::new(), Members::default());
    for pid in members.ids().iter().take(OWNERS_MAX).filter(owned).take(PROCESSES_MAX) {
        let Ok(file) = root.open(&format!("proc/{pid}/environ")) else { continue };
        let Ok(is_whole) = file.read_start(&mut environ, ENVIRON_BYTES_MAX) else { continue };
        let text = if is_whole { &environ[..] } else { whole_entries(&environ) };
        let Some(value) = variable(text, VARIABLE) else { continue };
        // The number of a process that ended meanwhile may be another job's process by now.
        processes(root, job, &mut again).ok();
        if again.ids().contains(pid) {
            return Some(checked(value));
        }
    }
    None
}

/// The value as it is sent; whether it holds regular expressions the server decides.
fn checked(value: &[u8]) -> Result<Box<str>, String> {
    let value = std::str::from_utf8(value).map_err(|_| "it is not UTF-8".to_owned())?.trim();
    if value.len() > MONITOR_BYTES_MAX {
        return Err(format!("it has {} bytes; {MONITOR_BYTES_MAX} at most", value.len()));
    }
    if value.chars().any(|letter| model::is_unprintable(letter) && letter != '\t') {
        return Err("it has unprintable characters".to_owned());
    }
    if value.starts_with(REJECTED_REQUEST) {
        return Err(format!("it begins with `{REJECTED_REQUEST}`, which no metric's name has"));
    }
    Ok(value.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgroups::{Hierarchy, JobDir};
    use model::JobId;
    use std::os::unix::fs::{MetadataExt, chown};
    use std::path::Path;

    const DIR: &str = "cg/job_7";

    /// A machine with a job of these processes: the number and the environment of each.
    struct Machine {
        dir: tempfile::TempDir,
        root: Root,
        job: JobCgroup,
    }

    impl Machine {
        fn new(of: &[(u32, &[u8])]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::recorded(dir.path()).unwrap();
            let uid = Some(std::fs::metadata(dir.path()).unwrap().uid());
            let key =
                JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(7).unwrap() };
            let dirs = vec![JobDir { hierarchy: Hierarchy::Unified, path: DIR.to_owned() }];
            let job = JobCgroup {
                key,
                spelling: "7".into(),
                user: None,
                uid,
                dirs,
                created: Timestamp(5),
                populated: true,
                directories_max: cgroups::USER_DIRECTORIES_MAX,
            };
            let machine = Self { dir, root, job };
            let ids: Vec<_> = of.iter().map(|(pid, _)| format!("{pid}\n")).collect();
            machine.write(&format!("{DIR}/cgroup.procs"), ids.concat().as_bytes());
            for (pid, environ) in of {
                machine.write(&format!("proc/{pid}/environ"), environ);
            }
            machine
        }

        fn path(&self, path: &str) -> std::path::PathBuf {
            self.dir.path().join(path)
        }

        fn write(&self, path: &str, text: &[u8]) {
            let path = self.path(path);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
            std::fs::write(path, text).unwrap();
        }

        fn find(&self) -> Option<String> {
            find(&self.root, &self.job).map(|found| found.map_or_else(|e| e, String::from))
        }
    }

    #[test]
    fn the_first_process_that_has_it_tells() {
        let found = Machine::new(&[
            (3, b"HOME=/"),
            (4, b"JOBMETER_MONITOR=perf_.* \0B="),
            (5, b"JOBMETER_MONITOR=x\0"),
        ]);
        assert_eq!(found.find().as_deref(), Some("perf_.*"));
        assert_eq!(Machine::new(&[(3, b"JOBMETER_MONITOR= \0")]).find().as_deref(), Some(""));
        assert_eq!(Machine::new(&[(3, b"HOME=/\0")]).find(), None);
        assert_eq!(Machine::new(&[]).find(), None);
    }

    #[test]
    fn what_cannot_be_sent_is_told_and_only_the_start_of_much_is_read() {
        let with = |value: &[u8]| Machine::new(&[(3, &[b"JOBMETER_MONITOR=", value].concat())]);
        let long = "x".repeat(MONITOR_BYTES_MAX);
        assert_eq!(with(long.as_bytes()).find(), Some(long.clone()));
        let longer = long + "x";
        let told = "it has 1025 bytes; 1024 at most";
        assert_eq!(with(longer.as_bytes()).find().as_deref(), Some(told));
        assert_eq!(with(b"a\nb").find().as_deref(), Some("it has unprintable characters"));
        assert_eq!(with(b"\xff").find().as_deref(), Some("it is not UTF-8"));
        let after = |bytes: usize| {
            let text = [&b"A".repeat(bytes)[..], b"\0JOBMETER_MONITOR=abc\0"].concat();
            Machine::new(&[(3, &text)]).find()
        };
        assert_eq!(after(ENVIRON_BYTES_MAX - 40).as_deref(), Some("abc"));
        assert_eq!(after(ENVIRON_BYTES_MAX - 20), None, "it is cut within the variable");
    }

    #[test]
    fn only_processes_of_the_jobs_user_count() {
        let mut machine =
            Machine::new(&[(3, b"JOBMETER_MONITOR=a\0"), (4, b"JOBMETER_MONITOR=b\0")]);
        let own = machine.job.uid.unwrap();
        machine.job.uid = Some(own + 1);
        assert_eq!(machine.find(), None);
        // Without a number: neither root's nor of the account that made the cgroup.
        machine.job.uid = None;
        assert_eq!(machine.find(), None);
        if own == 0 {
            chown(machine.path("proc/4"), Some(1234), None).unwrap();
            assert_eq!(machine.find().as_deref(), Some("b"));
            chown(machine.path(DIR), Some(1234), None).unwrap();
            assert_eq!(machine.find(), None);
        }
    }

    #[test]
    fn looks_are_few_and_end() {
        let machine = Machine::new(&[]);
        let (key, jobs) =
            (machine.job.key.clone(), Jobs::new(vec![machine.job.clone()], Vec::new()));
        let mut wishes = Wishes::default();
        let looked = |is_known| Looked { key: key.clone(), is_known, event: None };
        let mut local = key.clone();
        local.cluster = ClusterId::local();
        wishes.note(&[key.clone(), local], &jobs, 1000);
        let (mut now, mut at) = (1000, Vec::new());
        while let Some(due) = wishes.due_us() {
            now = now.max(due);
            assert_eq!(wishes.next(now - 1), None);
            assert_eq!(wishes.next(now).as_ref(), Some(&key));
            assert_eq!((wishes.next(now), wishes.due_us()), (None, None), "one at a time");
            at.push((now - 1000) / 1000);
            wishes.take(&looked(false), now);
        }
        assert_eq!(at, [0, 250, 750, 1750, 3750, 7750, 15_750]);
        wishes.note(std::slice::from_ref(&key), &jobs, now);
        wishes.next(now).unwrap();
        wishes.take(&looked(true), now);
        assert_eq!(wishes.due_us(), None, "it is known");
        wishes.note(std::slice::from_ref(&key), &jobs, now);
        wishes.set(false, &jobs, now);
        assert_eq!(wishes.due_us(), None, "the node takes no promotions");
        wishes.note(std::slice::from_ref(&key), &jobs, now);
        assert_eq!(wishes.due_us(), None);
        assert!(jobs.iter().all(|job| job.populated));
        wishes.set(true, &jobs, now);
        assert_eq!(wishes.due_us(), Some(now), "those that are here are looked at");
        wishes.set(true, &jobs, now + 5);
        wishes.next(now).unwrap();
        wishes.take(&looked(true), now);
        // Of one that ended, and of an earlier run of its number, nothing is looked for.
        wishes.note(std::slice::from_ref(&key), &jobs, now);
        let later = JobCgroup { created: Timestamp(6), ..machine.job.clone() };
        wishes.note(&[], &Jobs::new(vec![later], Vec::new()), now);
        assert_eq!(wishes.due_us(), None);
    }
}
