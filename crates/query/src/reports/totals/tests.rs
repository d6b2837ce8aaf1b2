//! Tests: which origin's value becomes the total.

use super::*;

fn nodes(list: &[(&str, &[(&str, f64)])]) -> ByNode {
    let mut nodes = ByNode::default();
    for (device, metrics) in list {
        for (metric, value) in *metrics {
            let counter = metric.ends_with("_total");
            let kind = if counter { Kind::Counter } else { Kind::Gauge };
            let sum = NodeSum { kind, increase: counter.then_some(*value), max: Some(*value) };
            nodes.insert(device, metric, sum);
        }
    }
    nodes
}

fn totals(by_node: &ByNode, wall_seconds: f64) -> (api::Totals, Vec<api::TotalOrigin>) {
    super::totals(by_node, &JobBounds { wall_seconds, ..JobBounds::default() })
}

fn origin<'a>(origins: &'a [api::TotalOrigin], total: &str) -> &'a api::TotalOrigin {
    origins.iter().find(|origin| origin.total == total).unwrap()
}

#[test]
fn on_each_node_the_larger_verified_value_wins() {
    let lost: &[_] = &[
        ("cgroup_cpu_seconds_total", 0.4),
        ("cgroup_unread_seconds", 0.75),
        ("taskstats_cpu_run_virtual_seconds_total", 2.0),
        ("taskstats_cpu_user_seconds_total", 1.5),
        ("taskstats_cpu_system_seconds_total", 0.5),
        ("taskstats_hiwater_rss_bytes", 5e8),
        ("cgroup_memory_peak_bytes", 1e6),
    ];
    let read: &[_] = &[
        ("cgroup_cpu_seconds_total", 3.0),
        ("taskstats_cpu_run_virtual_seconds_total", 2.9),
        ("cgroup_memory_peak_bytes", 2e8),
        ("taskstats_hiwater_rss_bytes", 1e8),
    ];
    let (totals, origins) = totals(&nodes(&[("n1", lost), ("n2", read)]), 2.0);
    assert_eq!((totals.cpu_seconds, totals.cores_used), (Some(5.0), Some(2.5)));
    let cpu = origin(&origins, "cpu_seconds");
    assert_eq!((&cpu.origins[..], cpu.nodes), (&["cgroup".to_owned(), "exits".to_owned()][..], 2));
    // The kernel accounts for a task before its exit is over.
    assert_eq!(cpu.note.as_deref(), Some("at least: last reading missed on 1 nodes"));
    assert_eq!(totals.memory_peak_bytes, Some(5e8));
    let memory = origin(&origins, "memory_peak_bytes");
    assert_eq!(
        (&*memory.origins, memory.note.as_deref()),
        (&["exits".to_owned()][..], Some("largest task"))
    );
    let user = origin(&origins, "cpu_user_seconds");
    assert_eq!((totals.cpu_user_seconds, user.nodes), (Some(1.5), 1));
    assert_eq!(user.note.as_deref(), Some("counted in timer ticks"));
    assert_eq!(totals.unread_seconds, Some(0.75));
}

#[test]
fn a_last_reading_that_was_missed_is_marked_where_nothing_covers_it() {
    let only: &[_] = &[("cgroup_cpu_seconds_total", 0.4), ("cgroup_unread_seconds", 0.75)];
    let (of_one, origins) = totals(&nodes(&[("n1", only)]), 2.0);
    assert_eq!((of_one.cpu_seconds, of_one.unread_seconds), (Some(0.4), Some(0.75)));
    assert_eq!(
        origin(&origins, "cpu_seconds").note.as_deref(),
        Some("at least: last reading missed")
    );
    let read: &[_] = &[("cgroup_cpu_seconds_total", 1.0)];
    let (_, origins) = totals(&nodes(&[("n1", only), ("n2", read)]), 2.0);
    let note = origin(&origins, "cpu_seconds").note.as_deref();
    assert_eq!(note, Some("at least: last reading missed on 1 nodes"));
}

/// In a job of 0.05 s the process joined the cgroup and ended between two readings of the tasks.
#[test]
fn exit_accounting_that_may_lack_a_task_is_a_lower_bound() {
    let note = |cgroup: Option<f64>, exits: f64| {
        let exits = [("taskstats_job_cpu_seconds_total", exits), ("cgroup_unread_seconds", 0.23)];
        let cgroup = cgroup.map(|seconds| ("cgroup_cpu_seconds_total", seconds));
        let metrics: Vec<_> = exits.into_iter().chain(cgroup).collect();
        let (_, origins) = totals(&nodes(&[("n1", &metrics)]), 0.5);
        let cores = origins.iter().find(|origin| origin.total == "cores_used");
        let note = origin(&origins, "cpu_seconds").note.clone();
        assert_eq!(cores.and_then(|cores| cores.note.clone()), note);
        note
    };
    let missed = Some("at least: last reading missed".to_owned());
    assert_eq!(note(None, 0.023), missed, "nothing to compare with");
    assert_eq!(note(Some(0.037), 0.037), missed, "no more than the cgroup");
    assert_eq!(note(Some(0.037), 0.052), missed, "the rest of a task's exit is in no account");
}

/// Exit accounting gives a process that moved from one job to another to one of them.
#[test]
fn a_cgroup_that_was_read_to_its_end_has_the_processor_time_of_its_job() {
    let total = |unread: f64| {
        let job: &[_] = &[
            ("cgroup_cpu_seconds_total", 0.053),
            ("taskstats_job_cpu_seconds_total", 0.356),
            (UNREAD, unread),
        ];
        let (totals, origins) = totals(&nodes(&[("n1", job)]), 2.0);
        (totals.cpu_seconds, origin(&origins, "cpu_seconds").note.clone())
    };
    assert_eq!(total(0.0), (Some(0.053), None));
    assert_eq!(total(0.2), (Some(0.356), Some("at least: last reading missed".to_owned())));
}

#[test]
fn pressure_and_transfers_state_the_seconds_that_are_not_read() {
    let lost: &[_] = &[
        ("cgroup_cpu_seconds_total", 0.4),
        ("cgroup_unread_seconds", 0.04),
        ("cgroup_pressure_cpu_some_seconds_total", 0.5),
        ("cgroup_pressure_unread_seconds", 0.87),
        ("cgroup_io_read_bytes_total", 4096.0),
        ("cgroup_io_unread_seconds", 0.95),
    ];
    let note = |nodes: &ByNode, total: &str| {
        let (_, origins) = totals(nodes, 2.0);
        origin(&origins, total).note.clone()
    };
    let of_one = nodes(&[("n1", lost)]);
    for (total, expected) in [
        ("cpu_seconds", "at least: last reading missed"),
        ("pressure_cpu_seconds", "at least: last 0.87 s not read"),
        ("io_read_bytes", "at least: last 0.95 s not read"),
    ] {
        assert_eq!(note(&of_one, total).as_deref(), Some(expected), "{total}");
    }
    let read: &[_] = &[("cgroup_pressure_cpu_some_seconds_total", 1.0)];
    let of_two = note(&nodes(&[("n1", lost), ("n2", read)]), "pressure_cpu_seconds");
    assert_eq!(of_two.as_deref(), Some("at least: last 0.87 s not read on 1 nodes"));
    // The tasks' own accounting covers the end.
    let exits = [lost, &[("taskstats_read_bytes_total", 8192.0)]].concat();
    assert_eq!(note(&nodes(&[("n1", &exits)]), "io_read_bytes"), None);
}

#[test]
fn exit_accounting_with_less_than_the_cgroup_does_not_cover_the_end() {
    let cpu = |tasks: &[(&str, f64)]| {
        let cgroup = [("cgroup_cpu_seconds_total", 4.0), (UNREAD, 0.75)];
        let (totals, origins) = totals(&nodes(&[("n1", &[&cgroup, tasks].concat())]), 2.0);
        (totals.cpu_seconds, origin(&origins, "cpu_seconds").note.clone())
    };
    // As an agent knows the tasks of a job if the previous agent, which was killed, had observed them.
    let late = ("taskstats_cpu_run_virtual_seconds_total", 1.0);
    let missed = Some("at least: last reading missed".to_owned());
    assert_eq!(cpu(&[late]), (Some(4.0), missed.clone()));
    // With the cgroup's counter value up to that time.
    let later = ("taskstats_job_cpu_seconds_total", 4.5);
    assert_eq!(cpu(&[late, later]), (Some(4.5), missed.clone()));
    // It has nothing that the cgroup lacks, such as the exit of a task.
    assert_eq!(cpu(&[late, ("taskstats_job_cpu_seconds_total", 4.0)]), (Some(4.0), missed));
}

#[test]
fn peak_memory_is_what_was_charged_unless_its_reading_was_missed() {
    let peak = |metrics: &[(&str, f64)]| {
        let (totals, origins) = totals(&nodes(&[("n1", metrics)]), 2.0);
        let note =
            totals.memory_peak_bytes.map(|_| origin(&origins, "memory_peak_bytes").note.clone());
        (totals.memory_peak_bytes, note.flatten())
    };
    let task = ("taskstats_hiwater_rss_bytes", 7e7);
    let charged = Some("charged to the cgroup".to_owned());
    assert_eq!(peak(&[(CHARGED, 6e7), task]), (Some(6e7), charged.clone()));
    let missed = (Some(7e7), Some("largest task".to_owned()));
    assert_eq!(peak(&[(CHARGED, 6e7), task, (UNREAD, 0.5)]), missed.clone());
    let limit = Some("charged to the cgroup, at its limit".to_owned());
    assert_eq!(peak(&[(AT_LIMIT, 3e7), task, (UNREAD, 0.5)]), (Some(3e7), limit.clone()));
    assert_eq!(peak(&[(CHARGED, 1e7), (AT_LIMIT, 3e7), task]), (Some(3e7), limit));
    let raised = peak(&[(CHARGED, 6e7), (AT_LIMIT, 3e7), task]);
    assert_eq!(raised, (Some(6e7), charged.clone()), "the limit was raised after the kill");
    let part = Some("at least, by an OOM kill".to_owned());
    assert_eq!(peak(&[(KILLED_PART, 8e7), task, (UNREAD, 0.5)]), (Some(8e7), part));
    assert_eq!(peak(&[(KILLED_PART, 3e7), task, (UNREAD, 0.5)]), missed, "of a smaller step");
    let stale = peak(&[(CHARGED, 6e7), (KILLED_PART, 3e7), (UNREAD, 0.5)]);
    let note = "charged to the cgroup; at least: last reading missed".to_owned();
    assert_eq!(stale, (Some(6e7), Some(note)));
    let reported = [("run_report_wall_seconds", 1.0), ("run_report_memory_peak_bytes", 6e7)];
    assert_eq!(peak(&[&reported[..], &[(CHARGED, 6e7), task]].concat()), (Some(6e7), charged));
    let of_task = (Some(6e7), Some("largest task".to_owned()));
    assert_eq!(peak(&[&reported[..], &[task]].concat()), of_task);
    let followed = peak(&[&reported[..], &[task, ("run_cpu_seconds_total", 0.01)]].concat());
    let note =
        "largest process, or all at one reading; shared pages count once per process".to_owned();
    assert_eq!(
        followed,
        (Some(6e7), Some(note)),
        "a command too short for a reading of its memory"
    );
    // A reading after the last process ended.
    assert_eq!(peak(&[("run_memory_resident_bytes", 0.0)]), (None, None));
    assert_eq!(peak(&[("cgroup_memory_bytes", 0.0), (CHARGED, 0.0)]), (None, None));
}

#[test]
fn written_bytes_state_the_cancelled_part() {
    let note = |metrics: &[(&str, f64)]| {
        let (totals, origins) = totals(&nodes(&[("n1", metrics)]), 2.0);
        (totals.io_write_bytes, origin(&origins, "io_write_bytes").note.clone())
    };
    let written = ("taskstats_write_bytes_total", 9e6);
    let cancelled = |bytes| note(&[written, (CANCELLED, bytes)]);
    assert_eq!(cancelled(0.0), (Some(9e6), None));
    assert_eq!(cancelled(4e6), (Some(5e6), Some("cancelled writes subtracted".to_owned())));
    let others = Some("cancelled writes of another job's files".to_owned());
    assert_eq!(cancelled(2e7), (Some(0.0), others));
    let unknown = Some("cancelled writes not known".to_owned());
    assert_eq!(note(&[written]), (Some(9e6), unknown.clone()));
    let reported = |other| {
        note(&[("run_report_wall_seconds", 1.0), ("run_report_io_write_bytes", 7.0), other])
    };
    assert_eq!(reported(("run_cpu_seconds_total", 1.0)), (Some(7.0), unknown));
    assert_eq!(reported(("cgroup_io_write_bytes_total", 7.0)), (Some(7.0), None));
}

#[test]
fn what_no_origin_states_is_not_zero() {
    let (of_none, origins) = totals(&ByNode::default(), 2.0);
    assert_eq!(of_none, api::Totals { wall_seconds: 2.0, ..api::Totals::default() });
    assert!(origins.is_empty());
    let unknown = NodeSum { kind: Kind::Counter, increase: None, max: Some(7.0) };
    let mut nodes = ByNode::default();
    nodes.insert("n1", "cgroup_cpu_seconds_total", unknown);
    nodes.insert(
        "n1",
        "taskstats_hiwater_rss_bytes",
        NodeSum { kind: Kind::Gauge, increase: None, max: Some(0.0) },
    );
    let (totals, _) = totals(&nodes, 2.0);
    assert_eq!((totals.cpu_seconds, totals.memory_peak_bytes), (None, None));
}

#[test]
fn written_bytes_are_without_those_that_the_kernel_cancelled() {
    let deleted: &[_] = &[
        ("taskstats_write_bytes_total", 157e6),
        ("taskstats_cancelled_write_bytes_total", 157e6),
        ("cgroup_io_write_bytes_total", 4096.0),
    ];
    let (totals, origins) = totals(&nodes(&[("n1", deleted)]), 2.0);
    assert_eq!(totals.io_write_bytes, Some(4096.0));
    assert_eq!(origin(&origins, "io_write_bytes").origins, ["cgroup"]);
}

/// Processes that joined the job and ended before the agent looked at its cgroup.
#[test]
fn processor_time_of_missed_tasks_makes_their_other_totals_lower_bounds() {
    let notes = |residual: f64, ended: f64| {
        let job: &[_] = &[
            ("cgroup_cpu_seconds_total", 1.0),
            ("taskstats_cpu_run_virtual_seconds_total", 1.0 - residual),
            ("taskstats_write_bytes_total", 8192.0),
            (CANCELLED, 0.0),
            ("taskstats_voluntary_switches_total", 9.0),
            ("taskstats_ended_tasks_total", ended),
            (RESIDUAL, residual),
            (UNREAD, 0.0),
        ];
        let (_, origins) = totals(&nodes(&[("n1", job)]), 2.0);
        ["cpu_seconds", "io_write_bytes", "voluntary_switches"]
            .map(|total| origin(&origins, total).note.clone())
    };
    let missed = Some("at least: tasks of 0.08 s processor time were missed".to_owned());
    assert_eq!(notes(0.08, 3.0), [None, missed.clone(), missed]);
    assert_eq!(notes(0.08, 300.0), [None, None, None], "the ends of 300 tasks");
    assert_eq!(notes(0.02, 0.0), [None, None, None]);
}

#[test]
fn a_reservation_of_a_report_is_a_note_on_each_of_its_totals() {
    let report = [
        ("run_report_wall_seconds", 1.0),
        ("run_report_cpu_seconds", 0.593),
        ("run_report_io_write_bytes", 8192.0),
        ("run_report_throttled_seconds", 0.0),
        ("run_cpu_seconds_total", 0.593),
    ];
    let notes = |reservation: &[(&str, f64)]| {
        let (_, origins) = totals(&nodes(&[("n1", &[&report, reservation].concat())]), 1.0);
        let of = |total| origin(&origins, total).note.clone().unwrap_or_default();
        ["cpu_seconds", "io_write_bytes", "throttled_seconds", "wall_seconds"].map(of)
    };
    assert_eq!(notes(&[]), ["", "cancelled writes not known", "", ""]);
    let lost = "at least: without children of a process that ignores SIGCHLD";
    let written = format!("cancelled writes not known; {lost}");
    assert_eq!(notes(&[("run_report_lost_children", 1.0)]), [lost, &written, "", ""]);
    let moved = notes(&[("run_report_left_processes", 1.0)]);
    assert_eq!(moved[0], "at least: without processes that moved to another cgroup");
}

#[test]
fn the_report_of_jobmeter_run_holds_over_samples() {
    let samples = [
        ("cgroup_cpu_seconds_total", 3.0),
        ("cgroup_memory_peak_bytes", 5e8),
        ("cgroup_unread_seconds", 0.5),
        ("run_report_wall_seconds", 1.5),
        ("run_report_cpu_seconds", 2.0),
    ];
    let (totals, origins) = totals(&nodes(&[("n1", &samples)]), 1.75);
    assert_eq!((totals.wall_seconds, totals.cpu_seconds), (1.5, Some(2.0)));
    assert_eq!((totals.memory_peak_bytes, totals.unread_seconds), (Some(5e8), None));
    let of = |name: &str| &origins.iter().find(|origin| origin.total == name).unwrap().origins;
    assert_eq!((&*of("cpu_seconds")[0], &*of("memory_peak_bytes")[0]), ("report", "cgroup"));
}

#[test]
fn user_and_system_time_do_not_exceed_exact_processor_time() {
    let job = |unread| {
        nodes(&[(
            "n1",
            &[
                ("cgroup_cpu_seconds_total", 0.02),
                ("cgroup_unread_seconds", unread),
                ("taskstats_cpu_user_seconds_total", 0.03),
                ("taskstats_cpu_system_seconds_total", 0.01),
            ],
        )])
    };
    let split = |unread| {
        let (totals, _) = totals(&job(unread), 1.0);
        (totals.cpu_seconds, totals.cpu_user_seconds, totals.cpu_system_seconds)
    };
    let (cpu, user, system) = split(0.0);
    assert_eq!((cpu, user, system), (Some(0.02), Some(0.015), Some(0.005)));
    // A lower bound says nothing about the split.
    assert_eq!(split(0.5).1, Some(0.03));
}
