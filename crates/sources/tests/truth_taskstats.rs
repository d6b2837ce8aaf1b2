//! The sources `taskstats` and `process` beside the kernel's own account of a cgroup, on this machine.
//!
//! Needs root and version 1's `cpuacct`; without them each test says so and returns. The processes that
//! do the work are this test program itself, started again with a role.

mod truth;

use kernel::allocations::{CountingAllocator, on_this_thread};
use model::Cause;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use truth::roles::{ROLE, TOUCHED, WRITTEN, command, expect_denied, play, start_storm, told_by};
use truth::{Group, Observer, alone, say, wall_clock};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const UNATTRIBUTED: &str = "taskstats_unattributed_exits_total";
const CPU: &str = "taskstats_cpu_run_virtual_seconds_total";

/// Nothing, but in a process that a test started.
#[test]
fn play_a_role() {
    play();
}

/// Seconds that one account has and the other lacks, however long the work was: the first process works before it has
/// joined its group, and each account is read at an instant of its own. A tick of the scheduler is 10 ms at most.
const SLACK_S: f64 = 0.01;

/// Says both numbers, and fails where they differ by more than this share, by what the kernel counts after it
/// has told of so many ends, up to twice of it, and by [`SLACK_S`].
fn assert_close(what: &str, (found, ends): (f64, u32), expected: f64, share: f64) {
    let off = (found - expected) / expected;
    let besides = f64::from(ends) * after_an_end_s();
    say(&format!(
        "{what}: {found:.6} s, kernel's account {expected:.6} s, {:+.3} %, of which {besides:.6} s after {ends} ends",
        off * 100.0
    ));
    let least = expected * (1.0 - share) - 2.0 * besides - SLACK_S;
    let within = least..=expected * (1.0 + share) + SLACK_S;
    assert!(within.contains(&found), "{what}: {found} instead of {expected}");
}

/// What the kernel counts for a process as large as these after it has told of its end, when it gives its memory
/// back: from 0.5 to 4 ms have been seen, by the machine and what its host does; so it is measured.
fn after_an_end_s() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let Some((mut observer, [group])) = Observer::beside("taskstats", 90) else { return 0.0 };
        observer.watch_child(group.start("sequence 4"));
        observer.end(&group);
        let [told, ended] =
            [CPU, "taskstats_ended_tasks_total"].map(|metric| observer.value(metric, Some(&group)));
        // Five processes, each with the thread of its test.
        assert_eq!(ended, Some(10.0));
        told.map_or(0.0, |told| ((group.cpu_seconds() - told) / 5.0).max(0.0))
    })
}

/// Whose each end of the machine was is known; not so if the kernel had to drop some, as it does where
/// others keep the processors from taking them.
fn assert_all_attributed(observer: &mut Observer) {
    let [unattributed, overflows] =
        [UNATTRIBUTED, "taskstats_overflows_total"].map(|metric| observer.device(metric));
    assert!(unattributed == 0.0, "{unattributed} unattributed ends, {overflows} overflows");
}

#[test]
fn twenty_five_short_processes_one_after_the_other() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 1) else { return };
    observer.watch_child(group.start("sequence 25"));
    observer.end(&group);
    let cpu = observer.value(CPU, Some(&group)).unwrap();
    assert_close("25 processes of 0.3 s", (cpu, 26), group.cpu_seconds(), 0.005);
    let residual = observer.value("taskstats_residual_cpu_seconds", Some(&group)).unwrap();
    assert!((residual - (group.cpu_seconds() - cpu)).abs() < 1e-6, "{residual}");
    assert_all_attributed(&mut observer);
}

/// An agent finds a job when it looks for cgroups: its first process has joined by then, so that it may be
/// listed before its fork is taken.
fn watch_one_that_joined_before(observer: &mut Observer, group: &Group) -> u32 {
    let child = group.start("known 1200");
    let pid = child.id();
    while group.processes() == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    observer.find(std::slice::from_ref(group));
    observer.watch_child(child);
    observer.end(group);
    pid
}

#[test]
fn a_process_that_is_listed_first_and_read_often_counts_once() {
    let _alone = alone();
    // Read once, as an agent does by default, and at every tick.
    for (id, poll_s) in [(11, "30"), (12, "0")] {
        let Some(mut observer) = Observer::open("taskstats", &[("poll_s", poll_s)]) else { return };
        observer.collect();
        std::thread::sleep(Duration::from_millis(20));
        let Some(group) = Group::new(id) else { return };
        let pid = watch_one_that_joined_before(&mut observer, &group);
        let value = |metric| observer.value(metric, Some(&group)).unwrap();
        let told = fs::read_to_string(told_by(pid)).unwrap();
        fs::remove_file(told_by(pid)).unwrap();
        let (before_ns, told) = told.split_once('\n').unwrap();
        // What it used before it joined is no use of the job.
        let before = before_ns.parse::<f64>().unwrap() / 1e9;
        say(&format!("{before:.6} s before it joined"));
        assert!(value("taskstats_residual_cpu_seconds") >= 0.0);
        assert_close("listed first", (value(CPU), 1), group.cpu_seconds(), 0.005);
        let (_, told) = told.rsplit_once(") ").unwrap();
        let told: f64 = told.split(' ').nth(7).unwrap().parse().unwrap();
        let faults = value("taskstats_minor_faults_total");
        say(&format!("minor faults: {faults}, {told} until just before its end"));
        assert!(faults >= told && faults < told * 1.05 + 50.0, "{faults} instead of {told}");
        // What else it wrote is less than a KiB.
        assert_eq!(value("taskstats_write_char_bytes_total"), WRITTEN as f64);
        // The process and the thread of its test.
        assert_eq!(value("taskstats_ended_tasks_total"), 2.0);
        assert_all_attributed(&mut observer);
    }
}

#[test]
fn the_io_of_a_process_that_is_listed_first_counts_once() {
    let _alone = alone();
    let Some(mut observer) = Observer::open("process", &[]) else { return };
    observer.collect();
    std::thread::sleep(Duration::from_millis(20));
    let Some(group) = Group::new(13) else { return };
    let pid = watch_one_that_joined_before(&mut observer, &group);
    fs::remove_file(told_by(pid)).unwrap();
    let written = observer.value("process_write_char_bytes_total", Some(&group)).unwrap();
    say(&format!("written: {written} of {WRITTEN}"));
    assert!((WRITTEN as f64..=WRITTEN as f64 + 1024.0).contains(&written), "{written}");
}

#[test]
fn a_shell_that_ends_before_its_children() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 2) else { return };
    observer.watch_child(group.start("orphans 5"));
    observer.watch_while(|| group.processes() > 0);
    observer.end(&group);
    let cpu = observer.value(CPU, Some(&group)).unwrap();
    assert!(cpu > 0.5, "five times 0.1 s: {cpu}");
    assert_close("orphans", (cpu, 7), group.cpu_seconds(), 0.02);
    assert_all_attributed(&mut observer);
}

#[test]
fn daemons_that_fork_twice_and_leave_their_session() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("taskstats", 3) else { return };
    observer.watch_child(group.start("daemons 4"));
    observer.watch_while(|| group.processes() > 0);
    observer.end(&group);
    let cpu = observer.value(CPU, Some(&group)).unwrap();
    assert!(cpu > 0.8, "four times 0.2 s: {cpu}");
    assert_close("daemons", (cpu, 13), group.cpu_seconds(), 0.02);
}

#[test]
fn ten_thousand_forks_in_another_job() {
    let _alone = alone();
    for attempt in 1..=5 {
        let Some((mut observer, [quiet, storm])) = Observer::beside("taskstats", 4) else { return };
        let worker = quiet.start("burn 1000");
        let shell = start_storm(&storm);
        observer.watch_child(worker);
        observer.watch_child(shell);
        if observer.device("taskstats_overflows_total") > 0.0 {
            say(&format!(
                "attempt {attempt}: others kept the processors from taking the ends in time"
            ));
            continue;
        }
        assert_all_attributed(&mut observer);
        assert_eq!(observer.device("taskstats_not_looked_at_total"), 0.0);
        observer.end(&quiet);
        let cpu = observer.value(CPU, Some(&quiet)).unwrap();
        // Where others keep the processors, it may work for a while before it has joined its group.
        assert_close("one process beside 10 000", (cpu, 1), quiet.cpu_seconds(), 0.03);
        observer.end(&storm);
        let value = |metric| observer.value(metric, Some(&storm)).unwrap();
        // With the shell and its sleep.
        assert_eq!(value("taskstats_ended_tasks_total"), 10_002.0);
        let residual = value("taskstats_residual_cpu_seconds");
        // Processes as short as these do half of their work after their end was told.
        say(&format!("10 000 forks: {:.3} s of tasks, {residual:.3} s besides", value(CPU)));
        assert!(residual > 0.0 && residual / 10_002.0 < 0.000_5, "{residual}");
        return;
    }
    panic!("the ends could not be taken in time");
}

#[test]
fn after_a_restart_the_counter_begins_anew() {
    let _alone = alone();
    let Some(group) = Group::new(6) else { return };
    let mut child = group.start("burn 2500");
    std::thread::sleep(Duration::from_millis(800));
    let Some(mut observer) = Observer::open("taskstats", &[("poll_s", "0")]) else {
        child.wait().unwrap();
        return;
    };
    observer.find(std::slice::from_ref(&group));
    let (used, opened) = (group.cpu_seconds(), wall_clock());
    observer.collect();
    assert_eq!(observer.value(CPU, Some(&group)), Some(0.0));
    let start = observer
        .sink
        .samples()
        .find_map(|(entry, ..)| (entry.metric.name == CPU).then_some(entry.start));
    assert!(start.flatten().unwrap() >= opened);
    observer.watch_child(child);
    observer.end(&group);
    let cpu = observer.value(CPU, Some(&group)).unwrap();
    assert_close("since the restart", (cpu, 1), group.cpu_seconds() - used, 0.02);
}

#[test]
fn eight_working_threads_count_once() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("process", 7) else { return };
    let child = group.start("threads 8");
    let pid = child.id();
    let mut seen = None;
    let status = |name: &str| -> f64 {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let mut child = child;
    observer.watch_while(|| {
        if group.processes() == 1 && status("Threads") == 10.0 && status("RssAnon") > 128.0 * 1024.0
        {
            seen = Some((status("VmRSS") * 1024.0, status("VmSize") * 1024.0));
        }
        child.try_wait().unwrap().is_none() && seen.is_none()
    });
    observer.collect();
    let (rss, vm) = seen.expect("eight threads with their memory");
    let value = |metric| observer.value(metric, Some(&group)).unwrap();
    assert_eq!((value("process_count"), value("process_threads")), (1.0, 10.0));
    assert!(
        // The kernel adds pages up for each processor before it counts them: 1 MiB of them.
        (value("process_rss_bytes") - rss).abs() < 0.05 * rss + 1_048_576.0,
        "{}",
        value("process_rss_bytes")
    );
    assert!((value("process_vm_bytes") - vm).abs() < 0.05 * vm);
    assert!(value("process_rss_anon_bytes") >= 8.0 * TOUCHED as f64);
    let parts = ["anon", "file", "shmem"].map(|part| {
        value(match part {
            "anon" => "process_rss_anon_bytes",
            "file" => "process_rss_file_bytes",
            _ => "process_rss_shmem_bytes",
        })
    });
    assert_eq!(parts.iter().sum::<f64>(), value("process_rss_bytes"));
    let states = ["process_running", "process_sleeping", "process_disk_sleeping"];
    assert_eq!(states.map(value).iter().sum::<f64>(), 1.0);
    observer.watch_child(child);
    observer.end(&group);
    let bytes = (8 * WRITTEN) as f64;
    for metric in ["process_write_char_bytes_total", "process_read_char_bytes_total"] {
        let value = observer.value(metric, Some(&group)).unwrap();
        say(&format!("{metric}: {value} of {bytes}"));
        assert!(value >= bytes && value < 1.1 * bytes, "{metric}: {value}");
    }
}

#[test]
fn the_io_of_ended_processes_is_kept() {
    let _alone = alone();
    let Some((mut observer, [group])) = Observer::beside("process", 8) else { return };
    let mut last = 0.0;
    for n in 1..=3 {
        observer.watch_child(group.start("threads 2"));
        observer.collect();
        let value = observer.value("process_write_char_bytes_total", Some(&group)).unwrap();
        assert!(value >= last, "{value} after {last}");
        last = value;
        let bytes = f64::from(n * 2) * WRITTEN as f64;
        say(&format!("{n} processes of 2 threads: {value} of {bytes}"));
        assert!(value > bytes - 8192.0 && value < bytes + 65_536.0);
    }
}

/// Plays a role under a program that changes what a process may do; false where that cannot be.
fn play_under(program: &str, arguments: &[&str], role: &str) -> bool {
    let inner = command(role);
    #[expect(clippy::disallowed_methods, reason = "no test may change its own rights for others")]
    let mut outer = Command::new(program);
    outer.args(arguments).arg(inner.get_program()).args(inner.get_args()).env(ROLE, role);
    match outer.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let told =
                String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
            // A machine may forbid namespaces to root, too.
            assert!(told.contains("Operation not permitted"), "{program}: {told}");
            say(&format!("not run: {told}"));
            false
        }
        Err(error) => {
            say(&format!("not run: {program}: {error}"));
            false
        }
    }
}

#[test]
fn where_exits_are_not_told_that_is_said() {
    let _alone = alone();
    if Observer::open("taskstats", &[]).is_none() {
        return;
    }
    let ran = [
        play_under("unshare", &["--net"], "expect-exits-denied"),
        play_under("unshare", &["--pid", "--fork"], "expect-exits-denied"),
    ];
    say(&format!("in another network, in another process namespace: {ran:?}"));
}

#[test]
fn without_the_right_to_ask_taskstats_is_denied() {
    let _alone = alone();
    if Observer::open("taskstats", &[]).is_some() {
        play_under("setpriv", &["--bounding-set=-net_admin"], "expect-denied");
    } else {
        expect_denied();
    }
}

#[test]
fn what_the_kernel_drops_is_a_gap() {
    let _alone = alone();
    let settings = [("receive_mib", "1")];
    let Some(mut observer) = Observer::open("taskstats", &settings) else { return };
    observer.collect();
    std::thread::sleep(Duration::from_millis(20));
    let Some(group) = Group::new(10) else { return };
    observer.find(std::slice::from_ref(&group));
    observer.collect();
    let mut shell = start_storm(&group);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(100));
        observer.with(|source, cx, sink| source.drain(cx, sink)).unwrap();
    }
    // Nobody takes the ends while it forks: there is room for about 1 600.
    assert!(shell.wait().unwrap().success());
    observer.collect();
    let gaps = observer.sink.take_gaps();
    assert_eq!(gaps.iter().map(|gap| gap.cause).collect::<Vec<_>>(), [Cause::EventsLost]);
    assert!(gaps[0].from < gaps[0].to);
    assert!(observer.value("taskstats_overflows_total", None).unwrap() >= 1.0);
    // From then on nothing is missing.
    observer.collect();
    assert_eq!(observer.sink.take_gaps(), []);
    observer.end(&group);
    let before = observer.value("taskstats_ended_tasks_total", Some(&group)).unwrap();
    assert!(before > 1000.0 && before < 10_000.0, "{before}");
    observer.watch_child(group.start("sequence 2"));
    observer.end(&group);
    let after = observer.value("taskstats_ended_tasks_total", Some(&group)).unwrap();
    // Three processes of this program, with a thread each for the test.
    assert_eq!(after - before, 6.0);
}

#[test]
fn a_job_that_stays_the_same_costs_no_memory() {
    let _alone = alone();
    let Some(group) = Group::new(9) else { return };
    let mut child = group.start("sleepers 20");
    let tasks = || fs::read_to_string(group.path.join("tasks")).unwrap().lines().count();
    while tasks() < 22 {
        std::thread::sleep(Duration::from_millis(20));
    }
    for (name, settings) in [("taskstats", &[("poll_s", "0")][..]), ("process", &[])] {
        let Some(mut observer) = Observer::open(name, settings) else { continue };
        observer.find(std::slice::from_ref(&group));
        (0..5).for_each(|_| observer.collect());
        let before = on_this_thread();
        observer.collect();
        assert_eq!(on_this_thread() - before, 0, "{name}");
        assert!(observer.sink.len() > 20, "{name}: {}", observer.sink.len());
    }
    child.kill().unwrap();
    child.wait().unwrap();
}
