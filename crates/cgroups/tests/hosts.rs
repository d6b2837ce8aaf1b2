//! Jobs and units of the recorded machines of `testdata/hosts` at their two ticks.

#![expect(clippy::unwrap_used, reason = "a failure here fails the test")]

use cgroups::{Config, Discovery, Jobs, RejectionReason, Report};
use kernel::Root;
use model::Timestamp;
use std::path::Path;

const FIRST_TICK: Timestamp = Timestamp(1_767_706_500_000_000);

/// Result of a tick: jobs with their users and ages in seconds, units, and changes.
#[derive(Debug, PartialEq)]
struct Found {
    jobs: Vec<String>,
    units: Vec<String>,
    changes: String,
}

fn found(host: &str) -> ([Found; 2], Report) {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hosts").join(host);
    let mut root = Root::recorded(&hosts.join("1")).unwrap();
    let (mut discovery, mut jobs) = (Discovery::new(Config::default()), Jobs::default());
    let mut tick = |root: &Root, now: Timestamp| {
        let update = discovery.update(root, now, &mut jobs);
        let lists = [
            ("+", &update.started),
            ("!", &update.populated),
            ("0", &update.emptied),
            ("-", &update.ended),
        ];
        let changes = lists
            .iter()
            .flat_map(|(sign, keys)| keys.iter().map(move |key| format!("{sign}{key}")));
        let job = |job: &cgroups::JobCgroup| {
            let user =
                job.user.as_deref().map(str::to_owned).or(job.uid.map(|uid| uid.to_string()));
            let age = now.since(job.created) / Timestamp::SECOND;
            let empty = if job.populated { "" } else { " empty" };
            format!(
                "{} {} {age} s, {} dirs{empty}",
                job.key,
                user.unwrap_or_default(),
                job.dirs.len()
            )
        };
        Found {
            jobs: jobs.iter().map(job).collect(),
            units: jobs.units().iter().map(|unit| unit.name.to_string()).collect(),
            changes: changes.collect::<Vec<_>>().join(" "),
        }
    };
    let first = tick(&root, FIRST_TICK);
    root.step_to(&hosts.join("2")).unwrap();
    let second = tick(&root, FIRST_TICK.plus(5 * Timestamp::SECOND));
    ([first, second], discovery.report())
}

fn of(jobs: &[&str], changes: &str) -> Found {
    let jobs = jobs.iter().map(|job| (*job).to_owned()).collect();
    Found { jobs, units: Vec::new(), changes: changes.to_owned() }
}

#[test]
fn oar_2_on_version_1() {
    let (ticks, report) = found("oar2-v1");
    let first = of(
        &["oar:1234 alice 599 s, 7 dirs", "oar:5678 bob 2 s, 7 dirs empty"],
        "+oar:1234 +oar:5678 !oar:1234",
    );
    let second = of(&["oar:1234 alice 604 s, 7 dirs", "oar:5678 bob 7 s, 7 dirs"], "!oar:5678");
    assert_eq!(ticks, [first, second]);
    assert!(report.rejected.is_empty(), "the account oar is trusted");
}

#[test]
fn oar_3_on_version_2() {
    let (ticks, _) = found("oar3-v2");
    let first = of(
        &[
            "oar:45670 1000 899 s, 1 dirs",
            "oar:45671 1001 30 s, 1 dirs",
            "oar:45672 1002 100 s, 1 dirs",
        ],
        "+oar:45670 +oar:45671 +oar:45672 !oar:45670 !oar:45671 !oar:45672",
    );
    let second = of(
        &[
            "oar:45670 1000 904 s, 1 dirs",
            "oar:45671 1001 35 s, 0 dirs",
            "oar:45672 1002 105 s, 0 dirs",
        ],
        "-oar:45671 -oar:45672",
    );
    assert_eq!(ticks, [first, second]);
}

#[test]
fn slurm_on_version_1() {
    let (ticks, _) = found("slurm-v1");
    let first = of(&["slurm:42 1000 300 s, 4 dirs"], "+slurm:42 !slurm:42");
    let second =
        of(&["slurm:42 1000 305 s, 4 dirs", "slurm:43 1001 1 s, 2 dirs"], "+slurm:43 !slurm:43");
    assert_eq!(ticks, [first, second]);
}

#[test]
fn slurm_on_version_2() {
    let (ticks, report) = found("slurm-v2");
    let first = of(
        &["slurm:42  200 s, 1 dirs", "slurm:43  201 s, 1 dirs"],
        "+slurm:42 +slurm:43 !slurm:42 !slurm:43",
    );
    let second = of(&["slurm:42  205 s, 1 dirs", "slurm:43  206 s, 1 dirs"], "");
    assert_eq!(ticks, [first, second]);
    assert!(report.scheduler_seen);
}

#[test]
fn slurm_by_sluids() {
    let (ticks, report) = found("slurm-v2-sluid");
    let first = of(&["slurm:3385  200 s, 1 dirs"], "+slurm:3385 !slurm:3385");
    let second = of(&["slurm:3385  205 s, 1 dirs"], "");
    assert_eq!(ticks, [first, second]);
    assert_eq!(report.unresolved, ["/sys/fs/cgroup/system.slice/slurmstepd.scope/sFNDM35NQ39R00"]);
}

#[test]
fn a_hybrid_machine_with_a_job_of_jobmeter_run() {
    let (ticks, _) = found("hybrid");
    let first = of(&["local:7  9 s, 6 dirs"], "+local:7 !local:7");
    let second = of(&["local:7  14 s, 6 dirs"], "");
    assert_eq!(ticks, [first, second]);
}

#[test]
fn a_laptop() {
    let (ticks, report) = found("laptop-v2");
    let units = [
        "cron.service",
        "getty@tty1.service",
        "init.scope",
        "session-2.scope",
        "ssh.service",
        "user@1000.service",
    ];
    for tick in ticks {
        assert_eq!(tick.units, units);
        assert!(tick.jobs.is_empty());
    }
    assert!(!report.scheduler_seen && report.rejected.is_empty());
}

#[test]
fn directories_of_users_are_rejected() {
    let (ticks, report) = found("hostile-v2");
    let first = of(
        &["slurm:77  50 s, 1 dirs", "slurm:78  40 s, 1 dirs"],
        "+slurm:77 +slurm:78 !slurm:77 !slurm:78",
    );
    assert_eq!(ticks[0], first);
    let rejected: Vec<_> = report
        .rejected
        .iter()
        .map(|rejected| (rejected.path.as_str(), rejected.why.clone()))
        .collect();
    let expected = [
        ("/sys/fs/cgroup/jobmeter/job_9", RejectionReason::Unregistered(1000)),
        ("/sys/fs/cgroup/oar/mallory_8", RejectionReason::Owner(1000)),
        ("/sys/fs/cgroup/slurm/uid_1000", RejectionReason::Owner(1000)),
        ("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_79", RejectionReason::NoDirectory),
    ];
    assert_eq!(rejected, expected);
}
