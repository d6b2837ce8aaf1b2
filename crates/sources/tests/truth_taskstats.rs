//! The sources `taskstats` and `process` compared with the kernel's own account of a cgroup, on this machine.
//!
//! Needs root and version 1's `cpuacct`; without them each test prints a message and returns. The worker
//! processes are this test program itself, started again with a role.

mod truth;

use kernel::allocations::{CountingAllocator, on_this_thread};
use model::Cause;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use truth::roles::{
    ROLE, TOUCHED, WRITTEN, command, expect_denied, play, report_path, start_storm,
};
use truth::{Group, Observer, alone, print_line, wall_clock};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const UNATTRIBUTED: &str = "taskstats_unattributed_exits_total";
const CPU: &str = "taskstats_cpu_run_virtual_seconds_total";

/// Does nothing, except in a process that a test started.
#[test]
fn play_a_role() {
    play();
}

/// Seconds that only one of two accounts may have, independent of the length of the work. The first process
/// works before it joins its group, and the accounts are read at different times. A tick of the scheduler is
/// at most 10 ms.
const SLACK_S: f64 = 0.01;

/// Prints both numbers. Fails if they differ by more than the sum of: this share, twice the kernel's work
/// after this number of exit records, and [`SLACK_S`].
fn assert_close(what: &str, (found, ends): (f64, u32), expected: f64, share: f64) {
    let off = (found - expected) / expected;
    let besides = f64::from(ends) * after_an_end_s();
    print_line(&format!(
        "{what}: {found:.6} s, kernel's account {expected:.6} s, {:+.3} %, of which {besides:.6} s after {ends} exit records",
        off * 100.0
    ));
    let least = expected * (1.0 - share) - 2.0 * besides - SLACK_S;
    let within = least..=expected * (1.0 + share) + SLACK_S;
    assert!(within.contains(&found), "{what}: {found} instead of {expected}");
}

/// Processor time that the kernel counts for such a process after its exit record, when it frees the
/// memory. It was 0.5 to 4 ms, depending on the machine and its host's load; so it is measured.
fn after_an_end_s() -> f64 {
    static MEASURED: OnceLock<f64> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let Some((mut observer, [group])) = Observer::beside("taskstats", 90) else { return 0.0 };
        observer.watch_child(group.start("sequence 4"));
        observer.end(&group);
        let [cpu, ended] =
            [CPU, "taskstats_ended_tasks_total"].map(|metric| observer.value(metric, Some(&group)));
        // Five processes, each with the thread of its test.
        assert_eq!(ended, Some(10.0));
        cpu.map_or(0.0, |reported| ((group.cpu_seconds() - reported) / 5.0).max(0.0))
    })
}

/// Asserts that every exit record of the machine was attributed. This fails if the kernel had to drop some,
/// which happens if other processes prevent the test from receiving them.
fn assert_all_attributed(observer: &mut Observer) {
    let [unattributed, overflows] =
        [UNATTRIBUTED, "taskstats_overflows_total"].map(|metric| observer.device(metric));
    assert!(unattributed == 0.0, "{unattributed} unattributed exits, {overflows} overflows");
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

/// An agent finds a job by its cgroup. Its first process has joined by then, so a list may contain it
/// before its fork event is received.
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
fn a_process_listed_before_its_fork_counts_once() {
    let _alone = alone();
    // Read once, as by default, and at every tick.
    for (id, poll_s) in [(11, "30"), (12, "0")] {
        let Some(mut observer) = Observer::open("taskstats", &[("poll_s", poll_s)]) else { return };
        observer.collect();
        std::thread::sleep(Duration::from_millis(20));
        let Some(group) = Group::new(id) else { return };
        let pid = watch_one_that_joined_before(&mut observer, &group);
        let value = |metric| observer.value(metric, Some(&group)).unwrap();
        let report = fs::read_to_string(report_path(pid)).unwrap();
        fs::remove_file(report_path(pid)).unwrap();
        let (before_ns, stat) = report.split_once('\n').unwrap();
        // Use before the process joined does not belong to the job.
        let before = before_ns.parse::<f64>().unwrap() / 1e9;
        print_line(&format!("{before:.6} s before it joined"));
        assert!(value("taskstats_residual_cpu_seconds") >= 0.0);
        assert_close("listed first", (value(CPU), 1), group.cpu_seconds(), 0.005);
        let (_, stat) = stat.rsplit_once(") ").unwrap();
        let reported: f64 = stat.split(' ').nth(7).unwrap().parse().unwrap();
        let faults = value("taskstats_minor_faults_total");
        print_line(&format!("minor faults: {faults}, {reported} until just before its end"));
        assert!(faults >= reported && faults < reported * 1.05 + 50.0, "{faults} not {reported}");
        // Its other writes are less than 1 KiB.
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
    fs::remove_file(report_path(pid)).unwrap();
    let written = observer.value("process_write_char_bytes_total", Some(&group)).unwrap();
    print_line(&format!("written: {written} of {WRITTEN}"));
    assert!((WRITTEN as f64..=WRITTEN as f64 + 1024.0).contains(&written), "{written}");
}

#[test]
fn a_shell_that_ends_before_its_children_is_attributed() {
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
            print_line(&format!(
                "attempt {attempt}: a busy machine delayed the receipt of exit records"
            ));
            continue;
        }
        assert_all_attributed(&mut observer);
        assert_eq!(observer.device("taskstats_not_looked_at_total"), 0.0);
        observer.end(&quiet);
        let cpu = observer.value(CPU, Some(&quiet)).unwrap();
        // On a busy machine it may work for a while before it joins its group.
        assert_close("one process beside 10 000", (cpu, 1), quiet.cpu_seconds(), 0.03);
        observer.end(&storm);
        let value = |metric| observer.value(metric, Some(&storm)).unwrap();
        // With the shell and its sleep.
        assert_eq!(value("taskstats_ended_tasks_total"), 10_002.0);
        let residual = value("taskstats_residual_cpu_seconds");
        // Processes as short as these do half of their work after the exit record.
        print_line(&format!("10 000 forks: {:.3} s of tasks, {residual:.3} s besides", value(CPU)));
        assert!(residual > 0.0 && residual / 10_002.0 < 0.000_5, "{residual}");
        return;
    }
    panic!("exit records could not be received in time");
}

#[test]
fn after_a_restart_the_counter_starts_again() {
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
    // Only what it used while its tasks were read: they are read twice, to measure the job.
    assert!(observer.value(CPU, Some(&group)).unwrap() < used);
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
        // The kernel buffers page counts per processor: 1 MiB in total.
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
        print_line(&format!("{metric}: {value} of {bytes}"));
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
        print_line(&format!("{n} processes of 2 threads: {value} of {bytes}"));
        assert!(value > bytes - 8192.0 && value < bytes + 65_536.0);
    }
}

/// Plays a role under a program that changes the process's rights; false if that is not possible.
fn play_under(program: &str, arguments: &[&str], role: &str) -> bool {
    let inner = command(role);
    #[expect(clippy::disallowed_methods, reason = "no test may change its own rights for others")]
    let mut outer = Command::new(program);
    outer.args(arguments).arg(inner.get_program()).args(inner.get_args()).env(ROLE, role);
    match outer.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            let text =
                String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
            // Some machines forbid namespaces even for root.
            assert!(text.contains("Operation not permitted"), "{program}: {text}");
            print_line(&format!("not run: {text}"));
            false
        }
        Err(error) => {
            print_line(&format!("not run: {program}: {error}"));
            false
        }
    }
}

#[test]
fn missing_exit_records_are_reported() {
    let _alone = alone();
    if Observer::open("taskstats", &[]).is_none() {
        return;
    }
    let ran = [
        play_under("unshare", &["--net"], "expect-exits-denied"),
        play_under("unshare", &["--pid", "--fork"], "expect-exits-denied"),
    ];
    print_line(&format!("in another network, in another process namespace: {ran:?}"));
}

#[test]
fn without_permission_taskstats_is_denied() {
    let _alone = alone();
    if Observer::open("taskstats", &[]).is_some() {
        play_under("setpriv", &["--bounding-set=-net_admin"], "expect-denied");
    } else {
        expect_denied();
    }
}

#[test]
fn records_dropped_by_the_kernel_are_a_gap() {
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
    // No record is received while it forks: the buffer holds about 1 600.
    assert!(shell.wait().unwrap().success());
    observer.collect();
    let gaps = observer.sink.take_gaps();
    assert_eq!(gaps.iter().map(|gap| gap.cause).collect::<Vec<_>>(), [Cause::EventsLost]);
    assert!(gaps[0].from < gaps[0].to);
    assert!(observer.value("taskstats_overflows_total", None).unwrap() >= 1.0);
    // After that, nothing is missing.
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
fn an_unchanged_job_allocates_nothing() {
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
