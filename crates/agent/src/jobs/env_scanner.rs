//! On-demand requests of jobs: the environment variable `JOBMETER_MONITOR` of one of a job's processes. The agent
//! reads it from `/proc/PID/environ`, because Slurm's own interfaces do not report it.
//!
//! The agent scans a job when it gets its first process. It repeats the scan at doubling intervals for about 16 s:
//! the first processes may be the scheduler's, which lack the user's variables. The agent stops once it finds a
//! value or the time is over. It reads only processes of the job's user. This takes root, or CAP_SYS_PTRACE and
//! CAP_DAC_READ_SEARCH; without them the agent finds nothing.

use crate::jobs::finder::event;
use crate::reading::one_reading::Machine;
use cgroups::{JobCgroup, Jobs, Members, processes};
use kernel::Root;
use kernel::process::{variable, whole_entries};
use model::{ClusterId, DeviceId, JobEvent, JobKey, REJECTED_REQUEST, Timestamp};
use std::sync::Arc;
use wire::MONITOR_BYTES_MAX;

/// Name of the environment variable.
const VARIABLE: &str = "JOBMETER_MONITOR";
/// Time between the first and the second scan of a job. Each further interval is twice as long.
const SECOND_LOOK_US: i64 = 250_000;
/// Maximum number of scans of a job. The last is 15.75 s after the first.
const LOOKS_MAX: u32 = 7;
/// Maximum number of a job's processes that are checked for their owner in one scan.
const OWNERS_MAX: usize = 1024;
/// Maximum number of a job's processes that are read for their environment in one scan.
const PROCESSES_MAX: usize = 64;
/// Maximum number of bytes read of an environment. The kernel's limit for one variable is the same.
const ENVIRON_BYTES_MAX: usize = 128 * 1024;

/// The jobs waiting for a scan of their environment.
#[derive(Debug, Default)]
pub(crate) struct EnvScanner {
    /// The plan disables scans on this node.
    is_off: bool,
    waiting: Vec<WaitingJob>,
    /// A scan is in progress. The agent makes one at a time, as it may hang.
    is_being_read: bool,
}

#[derive(Debug)]
struct WaitingJob {
    key: JobKey,
    /// Creation time of the job. It tells runs with a reused job ID apart.
    created: Timestamp,
    looks: u32,
    due_us: i64,
}

/// A scan of a job that is about to start.
pub(crate) struct ScanTask {
    pub(crate) key: JobKey,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) machine: Arc<Machine>,
    pub(crate) device: DeviceId,
}

/// The result of a scan.
pub(crate) struct ScanResult {
    key: JobKey,
    /// The job needs no further scans.
    is_known: bool,
    /// The job event, sent again with the request.
    pub(crate) event: Option<JobEvent>,
}

impl EnvScanner {
    /// Queues jobs that got their first process, and drops those that ended. Local jobs are skipped: their users
    /// request metrics with `jobmeter run`.
    pub(crate) fn note(&mut self, populated: &[JobKey], jobs: &Jobs, steady_us: i64) {
        let is_here =
            |one: &WaitingJob| jobs.get(&one.key).is_some_and(|j| j.created == one.created);
        self.waiting.retain(is_here);
        if self.is_off {
            return;
        }
        for key in populated.iter().filter(|key| key.cluster.as_str() != ClusterId::LOCAL) {
            let Some(job) = jobs.get(key) else { continue };
            let (key, created) = (key.clone(), job.created);
            self.waiting.push(WaitingJob { key, created, looks: 0, due_us: steady_us });
        }
    }

    /// Switches scans on or off. Switching them on also queues the jobs that are running.
    pub(crate) fn set(&mut self, reads: bool, jobs: &Jobs, steady_us: i64) {
        let was_off = std::mem::replace(&mut self.is_off, !reads);
        if self.is_off {
            self.waiting.clear();
        } else if was_off {
            let here = jobs.iter().filter(|job| job.populated).map(|job| job.key.clone());
            self.note(&here.collect::<Vec<_>>(), jobs, steady_us);
        }
    }

    /// Returns the job to scan now, if there is one. [`Self::take`] takes the result.
    pub(crate) fn next(&mut self, steady_us: i64) -> Option<JobKey> {
        let due = self.due_us().is_some_and(|due_us| due_us <= steady_us);
        let next = self.waiting.iter().min_by_key(|one| one.due_us).filter(|_| due)?;
        self.is_being_read = true;
        Some(next.key.clone())
    }

    /// Monotonic time of the next scan. Returns `None` if no job waits or a scan is in progress.
    pub(crate) fn due_us(&self) -> Option<i64> {
        self.waiting.iter().map(|one| one.due_us).min().filter(|_| !self.is_being_read)
    }

    /// Takes the result of a scan.
    pub(crate) fn take(&mut self, looked: &ScanResult, steady_us: i64) {
        self.is_being_read = false;
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

impl ScanTask {
    /// Scans the job. A process that blocks readers of its memory delays this by 1 s, once per owner of processes.
    pub(crate) fn make(self) -> ScanResult {
        let Self { key, jobs, machine, device } = self;
        let found = jobs.get(&key).and_then(|job| find(&machine.root, job));
        let is_known = found.is_some();
        let event = found.and_then(|found| {
            let value = found.unwrap_or_else(|why| {
                log::warn!("{VARIABLE} of job {key} is rejected: {why}");
                // The server shows the reason to the job owner.
                format!("{REJECTED_REQUEST}{VARIABLE}: {why}").into()
            });
            log::info!("job {key} requests metrics by its environment");
            let event_found = event(&jobs, &key, &device, None);
            event_found.map(|event_found| JobEvent { monitor: Some(value), ..event_found })
        });
        ScanResult { key, is_known, event }
    }
}

/// Value of the variable in the first process of the job's user that has it.
fn find(root: &Root, job: &JobCgroup) -> Option<Result<Box<str>, String>> {
    let mut members = Members::default();
    // Some process lists may be unreadable. The others are used.
    processes(root, job, &mut members).ok();
    let dir = job.dirs.first().and_then(|dir| root.stat(&dir.path).ok());
    let is_users = |uid: u32| match job.uid {
        Some(user) => uid == user,
        // The cgroup names of OAR 2 and of Slurm on cgroup v1 may carry no user ID. The scheduler's own processes
        // belong to root or to the owner of the cgroup.
        None => uid != 0 && dir.is_some_and(|dir| uid != dir.uid),
    };
    let owned = |pid: &&u32| root.stat(&format!("proc/{pid}")).is_ok_and(|stat| is_users(stat.uid));
    let mut again = Members::default();
    for pid in members.ids().iter().take(OWNERS_MAX).filter(owned).take(PROCESSES_MAX) {
        let Ok((environ, is_whole)) = root.environment(*pid, ENVIRON_BYTES_MAX) else { continue };
        let text = if is_whole { &environ[..] } else { whole_entries(&environ) };
        let Some(value) = variable(text, VARIABLE) else { continue };
        // A process ID may have been reused meanwhile. Check that it still belongs to the job.
        processes(root, job, &mut again).ok();
        if again.ids().contains(pid) {
            return Some(checked(value));
        }
    }
    None
}

/// Checks the value before it is sent. The server checks the regular expressions.
fn checked(value: &[u8]) -> Result<Box<str>, String> {
    let value = std::str::from_utf8(value).map_err(|_| "it is not UTF-8".to_owned())?.trim();
    if value.len() > MONITOR_BYTES_MAX {
        return Err(format!("it has {} bytes; {MONITOR_BYTES_MAX} at most", value.len()));
    }
    if value.chars().any(|letter| model::is_unprintable(letter) && letter != '\t') {
        return Err("it has unprintable characters".to_owned());
    }
    if value.starts_with(REJECTED_REQUEST) {
        return Err(format!(
            "it starts with `{REJECTED_REQUEST}`, which metric names do not \
                            contain"
        ));
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

    /// A test machine with one job. Each process has an ID and an environment.
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
                display_id: "7".into(),
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
    fn the_first_process_with_the_variable_decides() {
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
    fn an_invalid_value_is_reported_and_only_the_start_of_a_large_environment_is_read() {
        let with = |value: &[u8]| Machine::new(&[(3, &[b"JOBMETER_MONITOR=", value].concat())]);
        let long = "x".repeat(MONITOR_BYTES_MAX);
        assert_eq!(with(long.as_bytes()).find(), Some(long.clone()));
        let longer = long + "x";
        let event_found = "it has 1025 bytes; 1024 at most";
        assert_eq!(with(longer.as_bytes()).find().as_deref(), Some(event_found));
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
        let agent_metrics = machine.job.uid.unwrap();
        machine.job.uid = Some(agent_metrics + 1);
        assert_eq!(machine.find(), None);
        // Without a user ID, neither root's processes nor those of the cgroup's owner count.
        machine.job.uid = None;
        assert_eq!(machine.find(), None);
        if agent_metrics == 0 {
            chown(machine.path("proc/4"), Some(1234), None).unwrap();
            assert_eq!(machine.find().as_deref(), Some("b"));
            chown(machine.path(DIR), Some(1234), None).unwrap();
            assert_eq!(machine.find(), None);
        }
    }

    /// A FIFO without a writer blocks its reader like a process with locked memory (FUSE behind `/proc/PID/mem`).
    #[test]
    fn a_process_that_blocks_its_readers_stops_no_scan_of_another_users_job() {
        let with = b"JOBMETER_MONITOR=a\0";
        let mut machine = Machine::new(&[(3, with), (4, with), (5, with)]);
        let (own, before) = (machine.job.uid.unwrap(), kernel::environments_given_up());
        std::fs::remove_file(machine.path("proc/3/environ")).unwrap();
        let (path, mode) = (machine.path("proc/3/environ"), rustix::fs::Mode::from(0o600));
        rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).unwrap();
        assert_eq!(machine.find(), None, "other processes of its owner wait");
        assert_eq!(machine.find(), None, "no second thread is left behind");
        assert_eq!(kernel::environments_given_up() - before, 1);
        if own == 0 {
            chown(machine.path("proc/4"), Some(1234), None).unwrap();
            machine.job.uid = Some(1234);
            assert_eq!(machine.find().as_deref(), Some("a"));
        }
    }

    #[test]
    fn looks_are_few_and_end() {
        let machine = Machine::new(&[]);
        let (key, jobs) =
            (machine.job.key.clone(), Jobs::new(vec![machine.job.clone()], Vec::new()));
        let mut scanner = EnvScanner::default();
        let looked = |is_known| ScanResult { key: key.clone(), is_known, event: None };
        let mut local = key.clone();
        local.cluster = ClusterId::local();
        scanner.note(&[key.clone(), local], &jobs, 1000);
        let (mut now, mut at) = (1000, Vec::new());
        while let Some(due) = scanner.due_us() {
            now = now.max(due);
            assert_eq!(scanner.next(now - 1), None);
            assert_eq!(scanner.next(now).as_ref(), Some(&key));
            assert_eq!((scanner.next(now), scanner.due_us()), (None, None), "one at a time");
            at.push((now - 1000) / 1000);
            scanner.take(&looked(false), now);
        }
        assert_eq!(at, [0, 250, 750, 1750, 3750, 7750, 15_750]);
        scanner.note(std::slice::from_ref(&key), &jobs, now);
        scanner.next(now).unwrap();
        scanner.take(&looked(true), now);
        assert_eq!(scanner.due_us(), None, "it is known");
        scanner.note(std::slice::from_ref(&key), &jobs, now);
        scanner.set(false, &jobs, now);
        assert_eq!(scanner.due_us(), None, "`remote.allow` has no promotions");
        scanner.note(std::slice::from_ref(&key), &jobs, now);
        assert_eq!(scanner.due_us(), None);
        assert!(jobs.iter().all(|job| job.populated));
        scanner.set(true, &jobs, now);
        assert_eq!(scanner.due_us(), Some(now), "those that are here are looked at");
        scanner.set(true, &jobs, now + 5);
        scanner.next(now).unwrap();
        scanner.take(&looked(true), now);
        // Ended jobs and earlier runs of a job ID are not scanned.
        scanner.note(std::slice::from_ref(&key), &jobs, now);
        let later = JobCgroup { created: Timestamp(6), ..machine.job.clone() };
        scanner.note(&[], &Jobs::new(vec![later], Vec::new()), now);
        assert_eq!(scanner.due_us(), None);
    }
}
