//! Roles of the processes that a test starts: this program, started again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use super::{Group, Observer};
use kernel::Root;
use kernel::clock::thread_cpu_us;
use kernel::rusage::{Reaped, reap};
use model::Timestamp;
use sources::{Open, Options, PartState, SourceError};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Environment variable with the role of a process that this program started.
pub(crate) const ROLE: &str = "JOBMETER_TEST_ROLE";
/// Environment variable with the cgroup that a process joins before it plays its role.
pub(crate) const GROUP: &str = "JOBMETER_TEST_GROUP";
/// A command that starts this program again with a role; the test `play_a_role` plays it.
pub(crate) fn command(role: &str) -> Command {
    #[expect(clippy::disallowed_methods, reason = "the work to be measured is done by processes")]
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "play_a_role", "--test-threads=1"]).env(ROLE, role);
    command.env_remove(GROUP).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Plays the role of a process that this program started; does nothing in a normal test run.
pub(crate) fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if let Ok(group) = std::env::var(GROUP) {
        fs::write(PathBuf::from(group).join("cgroup.procs"), std::process::id().to_string())
            .unwrap();
    }
    let (role, number) = role.split_once(' ').unwrap_or((&role, "0"));
    let number: u64 = number.parse().unwrap();
    match role {
        "burn" => burn(number),
        // One after the other.
        "sequence" => (0..number).for_each(|_| run("burn 300")),
        // Ends at once; its children continue.
        "shell" => (0..number).for_each(|_| drop(command("burn 100").spawn().unwrap())),
        "orphans" => run(&format!("shell {number}")),
        // Leaves its parent, its session and its terminal.
        "daemon" => {
            rustix::process::setsid().unwrap();
            drop(command("burn 200").spawn().unwrap());
        }
        "daemons" => (0..number).for_each(|_| run("daemon")),
        "known" => work_and_report(number),
        "threads" => work_in_threads(number),
        "sleepers" => sleep_in_threads(number),
        "parent" => have_zombies(number),
        "report-switches" => report_switches(number),
        "phases" => (0..number).for_each(|_| phase()),
        "expect-denied" => expect_denied(),
        "expect-exits-denied" => expect_exits_denied(),
        _ => panic!("{role}"),
    }
}

fn run(role: &str) {
    assert!(command(role).status().unwrap().success());
}

/// Uses this number of milliseconds of processor time.
fn burn(milliseconds: u64) {
    let until = thread_cpu_us() + milliseconds * 1000;
    while thread_cpu_us() < until {}
}

/// Bytes that each working thread writes, and reads back, with one call each.
pub(crate) const WRITTEN: usize = 1 << 20;
/// Memory that each working thread touches.
pub(crate) const TOUCHED: usize = 16 << 20;

/// Threads that hold memory, do I/O, work, and then sleep so that they can be read.
fn work_in_threads(threads: u64) {
    let work = |n| {
        let memory = vec![1_u8; TOUCHED];
        let written = memory.get(..WRITTEN).unwrap();
        let path = std::env::temp_dir().join(format!("jobmeter-test-{}-{n}", std::process::id()));
        fs::write(&path, written).unwrap();
        assert_eq!(fs::read(&path).unwrap().len(), WRITTEN);
        fs::remove_file(&path).unwrap();
        burn(200);
        std::thread::sleep(Duration::from_secs(2));
        memory.len()
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|n| drop(scope.spawn(move || work(n))));
    });
}

/// Starts a program that ends at once.
fn start_short() -> Child {
    #[expect(clippy::disallowed_methods, reason = "the work to be measured is done by processes")]
    let mut shell = Command::new("true");
    shell.spawn().unwrap()
}

/// Starts children that end, reports it, and reaps none of them.
fn have_zombies(number: u64) {
    let children: Vec<_> = (0..number).map(|_| start_short()).collect();
    for child in &children {
        let stat = format!("/proc/{}/stat", child.id());
        while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    fs::write(report_path(std::process::id()), "").unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// Runs short children and reports the voluntary switches of them and of this process.
fn report_switches(number: u64) {
    // On a busy machine it may join late, and be noticed a moment later.
    let early = own_switches();
    std::thread::sleep(Duration::from_millis(1500));
    let run = |_| {
        drop(start_short());
        loop {
            match reap() {
                Reaped::Ended(_, code, usage) => {
                    assert_eq!(code, 0);
                    return usage.voluntary_switches;
                }
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    };
    let children: u64 = (0..number).map(run).sum();
    let total = children + own_switches() - early;
    fs::write(report_path(std::process::id()), total.to_string()).unwrap();
}

/// Voluntary switches of the tasks of this process.
fn own_switches() -> u64 {
    let own = |task: &str| -> u64 {
        let status = fs::read_to_string(format!("/proc/self/task/{task}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks.map(|task| own(task.unwrap().file_name().to_str().unwrap())).sum()
}

/// Processor time of a phase, in milliseconds.
pub(crate) const PHASE_MS: u64 = 300;

/// Uses processor time, writes a file, and stops until it receives SIGCONT.
fn phase() {
    burn(PHASE_MS);
    let path = std::env::temp_dir().join(format!("jobmeter-test-{}", std::process::id()));
    fs::write(&path, vec![1_u8; WRITTEN]).unwrap();
    fs::remove_file(&path).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)
        .unwrap();
}

/// The file in which a role reports its use.
pub(crate) fn report_path(pid: u32) -> PathBuf {
    std::env::temp_dir().join(format!("jobmeter-test-{pid}-report"))
}

/// Nanoseconds of processor time of the tasks of this process.
fn used_ns() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let texts = tasks.map(|task| fs::read_to_string(task.join("schedstat")).unwrap());
    texts.map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Touches memory, writes a file, and uses this number of milliseconds of processor time over twice that
/// time. At the end it reports two lines: its processor time in nanoseconds before it joined its cgroup, of
/// which it is the only process, and the text of `/proc/self/stat`.
fn work_and_report(milliseconds: u64) {
    let group = PathBuf::from(std::env::var(GROUP).unwrap()).join("cpuacct.usage");
    let since_ns: u64 = fs::read_to_string(group).unwrap().trim().parse().unwrap();
    let before_ns = used_ns().saturating_sub(since_ns);
    let memory = vec![1_u8; TOUCHED];
    let path = std::env::temp_dir().join(format!("jobmeter-test-{}", std::process::id()));
    fs::write(&path, memory.get(..WRITTEN).unwrap()).unwrap();
    fs::remove_file(&path).unwrap();
    for _ in 0..milliseconds / 100 {
        burn(100);
        std::thread::sleep(Duration::from_millis(100));
    }
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    fs::write(report_path(std::process::id()), format!("{before_ns}\n{stat}")).unwrap();
}

/// Starts threads that sleep until the process is killed.
fn sleep_in_threads(threads: u64) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| std::thread::sleep(Duration::from_secs(600)));
        }
    });
}

/// Expects that without permission the source is denied, with the permission to grant.
pub(crate) fn expect_denied() {
    let root = Root::live().unwrap();
    let spec = sources::list::find("taskstats").unwrap();
    let options = Options::defaults(spec.options);
    let error = (spec.open)(&Open { root: &root, options: &options, boot: Timestamp(0) });
    let error = error.err().unwrap().to_string();
    assert_eq!(
        error,
        "denied: the kernel's accounting of tasks (netlink TASKSTATS); grant CAP_NET_ADMIN, or root"
    );
}

/// Expects that without exit records the part `exits` is denied and the rest works.
fn expect_exits_denied() {
    for name in ["taskstats", "process"] {
        let mut observer = Observer::open(name, &[]).unwrap();
        observer.collect();
        let parts = observer.sink.parts();
        let exits = parts.iter().find(|(part, _)| *part == "exits").map(|(_, state)| state);
        let Some(PartState::Not(error @ SourceError::Denied { .. })) = exits else {
            panic!("{name}: {parts:?}");
        };
        assert!(error.to_string().contains("namespace"), "{error}");
        assert_eq!(observer.source.drain_every(), None);
    }
}

/// Starts a shell in a cgroup that, after 0.5 s, forks 10 000 processes that end at once.
pub(crate) fn start_storm(group: &Group) -> Child {
    let loops =
        "echo $$ > \"$0\"; sleep 0.5; i=0; while [ $i -lt 10000 ]; do (:); i=$((i+1)); done";
    #[expect(
        clippy::disallowed_methods,
        reason = "a shell forks faster than this program can start again"
    )]
    let mut shell = Command::new("sh");
    shell.args(["-c", loops]).arg(group.path.join("cgroup.procs")).spawn().unwrap()
}
