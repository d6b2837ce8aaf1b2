//! Discovery in trees of files: what is a job and what is not, and how runs start and end.

mod machine;

use cgroups::{
    Changes, Config, Hierarchy, LayoutConfig, Members, Pattern, RejectionReason, processes, tasks,
};
use machine::{Machine, at, key};
use model::{ClusterId, JobId};

const V1: &str = "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
    cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
    cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n";
const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
const SCOPE: &str = "sys/fs/cgroup/system.slice/slurmstepd.scope";

#[test]
fn one_job_of_several_hierarchies() {
    let mut machine = Machine::new(V1, Config::default());
    for controller in ["cpuset", "cpu,cpuacct", "memory"] {
        machine.write(&format!("sys/fs/cgroup/{controller}/oar/alice_12/cgroup.procs"), "");
    }
    machine.owners(&[
        (0, 9, "sys/fs/cgroup/memory/oar/alice_12"),
        (0, 8, "sys/fs/cgroup/cpuset/oar/alice_12"),
        (0, 10, "sys/fs/cgroup/cpu,cpuacct/oar/alice_12"),
    ]);
    let changes = machine.update();
    assert_eq!(changes, Changes { started: vec![key("oar", 12)], ..Changes::default() });
    let job = machine.job("oar", 12).unwrap();
    let dirs: Vec<_> = job.dirs.iter().map(|dir| (dir.hierarchy, dir.path.as_str())).collect();
    assert_eq!(
        dirs,
        [
            (Hierarchy::Cpu, "sys/fs/cgroup/cpu,cpuacct/oar/alice_12"),
            (Hierarchy::Cpuacct, "sys/fs/cgroup/cpu,cpuacct/oar/alice_12"),
            (Hierarchy::Cpuset, "sys/fs/cgroup/cpuset/oar/alice_12"),
            (Hierarchy::Memory, "sys/fs/cgroup/memory/oar/alice_12"),
        ]
    );
    assert_eq!((job.user.as_deref(), job.uid, &*job.display_id), (Some("alice"), None, "12"));
    assert_eq!((job.created, job.populated), (at(8), false));

    let generation = machine.jobs.generation();
    assert!(machine.update().is_empty());
    assert_eq!(machine.jobs.generation(), generation);

    machine.write("sys/fs/cgroup/memory/oar/alice_12/cgroup.procs", "77\n");
    assert_eq!(machine.update().populated, [key("oar", 12)]);
    assert!(machine.job("oar", 12).unwrap().populated && machine.jobs.generation() > generation);
    machine.write("sys/fs/cgroup/memory/oar/alice_12/cgroup.procs", "");
    let changes = machine.update();
    assert_eq!(changes, Changes { emptied: vec![key("oar", 12)], ..Changes::default() });
    assert!(machine.job("oar", 12).unwrap().populated, "it had a process");
}

#[test]
fn a_job_that_ran_between_two_updates_is_reported() {
    let mut machine = Machine::new(V2, Config::default());
    machine.write(&format!("{SCOPE}/job_7/cgroup.events"), "populated 0\n");
    machine.write(&format!("{SCOPE}/job_7/cpu.stat"), "usage_usec 9\nuser_usec 9\nsystem_usec 0\n");
    let changes = machine.update();
    assert_eq!(changes.started, [key("slurm", 7)]);
    assert_eq!((changes.populated.len(), changes.emptied.len()), (1, 1));
    assert!(machine.update().is_empty());
}

#[test]
fn a_root_may_appear_later_and_again() {
    let mut machine = Machine::new(V1, Config::default());
    machine.mkdir("sys/fs/cgroup/cpuset");
    assert!(machine.update().is_empty());
    machine.mkdir("sys/fs/cgroup/cpuset/oar/alice_1");
    assert_eq!(machine.update().started, [key("oar", 1)]);
    machine.rmdir("sys/fs/cgroup/cpuset/oar");
    assert_eq!(machine.update().ended, [key("oar", 1)]);
    assert_eq!(machine.keys(), ["oar:1"], "listed until the next update");
    assert!(machine.job("oar", 1).unwrap().dirs.is_empty());
    assert!(machine.update().is_empty());
    assert!(machine.keys().is_empty());
    machine.owners(&[(0, 5, "sys/fs/cgroup/cpuset/oar/alice_2")]);
    machine.mkdir("sys/fs/cgroup/cpuset/oar/alice_2");
    assert_eq!(machine.update().started, [key("oar", 2)]);
}

#[test]
fn a_configured_root_replaces_the_default_and_may_appear_later() {
    let mut config = Config::default();
    let roots =
        ["/dev/oar_cgroups_links/cpuset/oar/", "/sys/fs/cgroup/cpuset/site"].map(str::to_owned);
    config.oar =
        Some(LayoutConfig { cluster: ClusterId::new("grid").unwrap(), roots: roots.to_vec() });
    let mut machine = Machine::new(V1, config);
    machine.mkdir("sys/fs/cgroup/cpuset/oar/alice_1");
    machine.mkdir("sys/fs/cgroup/memory/site/bob_2");
    machine.update();
    assert_eq!(machine.keys(), ["grid:2"]);
    assert!(machine.discovery.report().places.iter().any(|place| !place.in_hierarchy));

    machine.mkdir("dev/oar_cgroups_links");
    std::os::unix::fs::symlink("/sys/fs/cgroup/cpuset", machine.at("dev/oar_cgroups_links/cpuset"))
        .unwrap();
    assert_eq!(machine.update().started, [key("grid", 1)]);
    assert_eq!(machine.keys(), ["grid:1", "grid:2"]);
}

#[test]
fn hierarchies_may_be_mounted_later() {
    let mut machine = Machine::new("", Config::default());
    machine.mkdir("sys/fs/cgroup/cpuset/oar/alice_1");
    assert!(machine.update().is_empty());
    machine.write("proc/self/mounts", V1);
    assert_eq!(machine.update().started, [key("oar", 1)]);
}

#[test]
fn many_jobs_at_once() {
    let mut machine = Machine::new(V1, Config::default());
    for id in 1..=500 {
        machine.write(
            &format!("sys/fs/cgroup/cpuset/slurm/uid_{}/job_{id}/cgroup.procs", id % 7),
            "5\n",
        );
    }
    let changes = machine.update();
    assert_eq!((changes.started.len(), changes.populated.len()), (500, 500));
    assert_eq!(machine.job("slurm", 9).unwrap().uid, Some(2));
    machine.rmdir("sys/fs/cgroup/cpuset/slurm");
    assert_eq!(machine.update().ended.len(), 500);
    machine.update();
    assert_eq!(machine.jobs.iter().len(), 0);
}

#[test]
fn jobs_beyond_the_limit_start_when_others_end() {
    let mut machine = Machine::new(V2, Config::default());
    for id in 1..=cgroups::JOBS_MAX + 2 {
        machine.mkdir(&format!("sys/fs/cgroup/jobmeter/job_{id}"));
    }
    assert_eq!(machine.update().started.len(), cgroups::JOBS_MAX);
    assert_eq!(machine.discovery.counts().rejected, 2);
    assert!(machine.rejected().iter().all(|(_, why)| matches!(why, RejectionReason::TooMany(_))));
    machine.rmdir("sys/fs/cgroup/jobmeter/job_1");
    machine.rmdir("sys/fs/cgroup/jobmeter/job_2");
    assert_eq!(machine.update().ended.len(), 2);
    assert_eq!(machine.update().started.len(), 2);
    assert_eq!(machine.discovery.counts().rejected, 0);
}

#[test]
fn directories_that_a_user_can_create_are_not_jobs() {
    let mut machine = Machine::new(V2, Config::default());
    let user = "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service";
    for path in [
        "job_1",
        "slurmstepd.scope/job_2",
        "oar/me_3",
        "oar.slice/oar-u1.slice/oar-u1-j4.slice",
        "jobmeter/job_5",
        "app.slice/job_6",
    ] {
        machine.mkdir(&format!("{user}/{path}"));
    }
    machine.mkdir("sys/fs/cgroup/oar/mallory_7");
    machine.mkdir("sys/fs/cgroup/oar.slice/oar-u1000.slice/oar-u1000-j8.slice");
    machine.mkdir("sys/fs/cgroup/slurm/uid_1000/job_9");
    machine.owners(&[
        (1000, 1, user),
        (1000, 1, "sys/fs/cgroup/oar/mallory_7"),
        (1000, 1, "sys/fs/cgroup/oar.slice/oar-u1000.slice"),
        (1000, 1, "sys/fs/cgroup/slurm"),
    ]);
    machine.update();
    assert!(machine.keys().is_empty(), "{:?}", machine.keys());
    let rejected = machine.rejected();
    let paths: Vec<_> = rejected.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "/sys/fs/cgroup/oar.slice/oar-u1000.slice",
            "/sys/fs/cgroup/oar/mallory_7",
            "/sys/fs/cgroup/slurm"
        ]
    );
    assert!(rejected.iter().all(|(_, why)| *why == RejectionReason::Owner(1000)));
    assert_eq!(machine.discovery.counts().rejected, 3);
}

#[test]
fn the_account_of_the_scheduler_is_trusted() {
    let mut machine = Machine::new(V1, Config { scheduler_uids: vec![900], ..Config::default() });
    machine.write("etc/passwd", "root:x:0:0::/:\noar:x:107:113::/:\n");
    for (name, uid) in [("alice_1", 107), ("bob_2", 900), ("carol_3", 901)] {
        machine.mkdir(&format!("sys/fs/cgroup/cpuset/oar/{name}"));
        let path = format!("sys/fs/cgroup/cpuset/oar/{name}");
        let old = std::fs::read_to_string(machine.at(".jobmeter/owners")).unwrap_or_default();
        machine.write(".jobmeter/owners", &format!("{old}{uid} 1 {path}\n"));
    }
    machine.update();
    assert_eq!(machine.keys(), ["oar:1", "oar:2"]);
}

#[test]
fn links_are_not_followed() {
    let mut machine = Machine::new(V1, Config::default());
    machine.mkdir("elsewhere/alice_1");
    machine.mkdir("sys/fs/cgroup/cpuset/oar");
    machine.mkdir("sys/fs/cgroup/memory");
    let link = |to: &str, path: &str| std::os::unix::fs::symlink(to, machine.at(path)).unwrap();
    link("../../../../../elsewhere/alice_1", "sys/fs/cgroup/cpuset/oar/alice_1");
    link("../../../../elsewhere", "sys/fs/cgroup/memory/oar");
    link("/", "sys/fs/cgroup/memory/jobmeter");
    machine.update();
    assert!(machine.keys().is_empty());
    let rejected = machine.rejected();
    assert_eq!(rejected.len(), 2, "{rejected:?}");
    assert!(rejected.iter().all(|(_, why)| *why == RejectionReason::NoDirectory));
}

#[test]
fn a_recreated_directory_is_another_run() {
    let mut machine = Machine::new(V2, Config::default());
    let path = format!("{SCOPE}/job_7");
    machine.owners(&[(0, 5, &path)]);
    machine.mkdir(&path);
    machine.update();
    assert_eq!(machine.job("slurm", 7).unwrap().created, at(5));
    machine.owners(&[(0, 9, &path)]);
    let changes = machine.update();
    assert_eq!(changes, Changes { ended: vec![key("slurm", 7)], ..Changes::default() });
    let old = machine.job("slurm", 7).unwrap();
    assert_eq!(old.created, at(5));
    assert!(old.dirs.is_empty(), "the path now belongs to another run");
    assert_eq!(machine.update().started, [key("slurm", 7)]);
    assert_eq!(machine.job("slurm", 7).unwrap().created, at(9));
}

#[test]
fn a_directory_left_behind_does_not_keep_a_job() {
    let mut machine = Machine::new(V1, Config::default());
    let (cpuset, memory) = ("sys/fs/cgroup/cpuset/oar/alice_1", "sys/fs/cgroup/memory/oar/alice_1");
    machine.owners(&[(0, 1, cpuset), (0, 1, memory)]);
    machine.write(&format!("{cpuset}/cgroup.procs"), "5\n");
    machine.write(&format!("{memory}/cgroup.procs"), "5\n");
    machine.update();
    machine.rmdir(cpuset);
    assert!(machine.update().is_empty(), "it still has a process");
    assert_eq!(machine.job("oar", 1).unwrap().dirs.len(), 1);
    machine.write(&format!("{memory}/cgroup.procs"), "");
    let changes = machine.update();
    assert_eq!((changes.emptied.len(), changes.ended.len()), (1, 1));
    assert_eq!(machine.job("oar", 1).unwrap().dirs.len(), 1, "to be read for the last time");
    machine.update();
    assert!(machine.keys().is_empty());
    assert_eq!(machine.rejected(), [(format!("/{memory}"), RejectionReason::LeftBehind)]);

    machine.owners(&[(0, 9, cpuset), (0, 1, memory)]);
    machine.mkdir(cpuset);
    assert_eq!(machine.update().started, [key("oar", 1)]);
    let job = machine.job("oar", 1).unwrap();
    assert_eq!(
        (job.created, job.dirs.len()),
        (at(9), 1),
        "the remaining directory belongs to the earlier run"
    );
}

#[test]
fn several_slurmds_on_one_machine() {
    let mut machine = Machine::new(V1, Config::default());
    machine.mkdir("sys/fs/cgroup/memory/slurm_n1/uid_0/job_1");
    machine.mkdir("sys/fs/cgroup/memory/slurm_n2/uid_0/job_1");
    machine.mkdir("sys/fs/cgroup/memory/slurm_n2/uid_0/job_2");
    machine.update();
    assert_eq!(machine.keys(), ["slurm:1", "slurm:2"]);
    let second = "/sys/fs/cgroup/memory/slurm_n2/uid_0/job_1".to_owned();
    assert_eq!(machine.rejected(), [(second, RejectionReason::Second)]);
    machine.rmdir("sys/fs/cgroup/memory/slurm_n1");
    machine.update();
    machine.update();
    assert_eq!(
        machine.job("slurm", 1).unwrap().dirs[0].path,
        "sys/fs/cgroup/memory/slurm_n2/uid_0/job_1"
    );
    assert!(machine.rejected().is_empty());
}

#[test]
fn a_sluid_is_resolved_once_or_listed() {
    let mut machine = Machine::new(V2, Config::default());
    let job = format!("{SCOPE}/sEKNKTV3WPV500");
    machine.write(&format!("{job}/step_batch/user/task_0/cgroup.procs"), "30\n");
    machine.write("proc/30/status", "Name:\tslurmstepd\nUid:\t1000\t1000\t1000\t1000\n");
    machine.write("proc/30/cmdline", "slurmstepd: [666.batch]\0");
    machine.update();
    assert!(machine.keys().is_empty());
    assert_eq!(machine.discovery.report().unresolved, [format!("/{job}")]);
    assert_eq!(machine.discovery.counts().unresolved, 1);

    machine.write(&format!("{job}/step_batch/slurm/cgroup.procs"), "29\n");
    machine.write("proc/29/status", "Name:\tslurmstepd\nUid:\t0\t0\t0\t0\n");
    machine.write("proc/29/cmdline", "slurmstepd: [3385.batch]\0");
    machine.write(
        "proc/29/cgroup",
        "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_batch/slurm\n",
    );
    assert_eq!(machine.update().started, [key("slurm", 3385)]);
    assert!(machine.discovery.report().unresolved.is_empty());
    assert_eq!(machine.job("slurm", 3385).unwrap().dirs[0].path, job);
    machine.rmdir("proc/29");
    assert!(machine.update().is_empty(), "resolved once");
}

#[test]
fn a_users_directory_counts_if_it_is_registered() {
    let mut machine = Machine::new(V2, Config::default());
    let path = "sys/fs/cgroup/jobmeter/job_3";
    machine.mkdir(path);
    machine.mkdir("sys/fs/cgroup/jobmeter/job_4");
    machine.owners(&[(1000, 1, path)]);
    machine.update();
    assert_eq!(machine.keys(), ["local:4"], "root's directory needs no registration");
    assert_eq!(machine.rejected(), [(format!("/{path}"), RejectionReason::Unregistered(1000))]);
    let id = JobId::new(3).unwrap();
    machine.discovery.set_registered(vec![(id, 1001)]);
    assert!(machine.update().started.is_empty(), "registered for another user");
    machine.discovery.set_registered(vec![(id, 1000)]);
    assert_eq!(machine.update().started, [key("local", 3)]);
    assert_eq!(machine.job("local", 3).unwrap().uid, Some(1000));
    machine.owners(&[(1000, 1, path), (1000, 1, "sys/fs/cgroup/jobmeter")]);
    let mut other = Machine::new(V2, Config::default());
    other.mkdir(path);
    other.owners(&[(1000, 1, path), (1000, 1, "sys/fs/cgroup/jobmeter")]);
    other.discovery.set_registered(vec![(id, 1000)]);
    other.update();
    assert!(other.keys().is_empty(), "the parent directory must belong to root");
}

#[test]
fn a_job_of_another_server_is_rejected() {
    let mut machine = Machine::new(V2, Config::default());
    let (own, other) = ("sys/fs/cgroup/jobmeter/job_3@aaa", "sys/fs/cgroup/jobmeter/job_3@bbb");
    machine.mkdir(own);
    machine.mkdir(other);
    machine.discovery.set_server("");
    machine.update();
    assert!(machine.keys().is_empty(), "the server has not stated its identity yet");
    machine.discovery.set_server("aaa");
    assert_eq!(machine.update().started, [key("local", 3)]);
    let job = machine.job("local", 3).unwrap();
    assert_eq!((job.dirs[0].path.as_str(), &*job.display_id), (own, "3"));
    assert_eq!(machine.rejected(), [(format!("/{other}"), RejectionReason::OtherServer)]);
}

#[test]
fn a_sites_own_layout() {
    let cluster = ClusterId::new("pbs").unwrap();
    let pattern = Pattern::new(cluster, r"pbspro\.slice/pbspro-(?<job>\d+)\..*\.slice").unwrap();
    let mut machine = Machine::new(V2, Config { patterns: vec![pattern], ..Config::default() });
    machine.mkdir("sys/fs/cgroup/pbspro.slice/pbspro-42.server.slice");
    machine.mkdir("sys/fs/cgroup/pbspro.slice/pbspro-x.server.slice");
    machine.mkdir("sys/fs/cgroup/user.slice/pbspro.slice/pbspro-43.server.slice");
    machine.update();
    assert_eq!(machine.keys(), ["pbs:42"]);
}

#[test]
fn units_without_a_scheduler() {
    let mut machine = Machine::new(V2, Config::default());
    let names = |machine: &Machine| -> Vec<String> {
        machine.jobs.units().iter().map(|unit| unit.name.to_string()).collect()
    };
    for path in [
        "system.slice/ssh.service",
        "user.slice/user-1000.slice/session-2.scope",
        "user.slice/user-1000.slice/user@1000.service/app.slice/x.scope",
        "jobmeter/job_1",
    ] {
        machine.mkdir(&format!("sys/fs/cgroup/{path}"));
    }
    machine.owners(&[(1000, 3, "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service")]);
    assert!(machine.update().units);
    assert_eq!(names(&machine), ["session-2.scope", "ssh.service", "user@1000.service"]);
    assert_eq!(machine.jobs.units()[2].created, at(3));
    machine.rmdir("sys/fs/cgroup/system.slice/ssh.service");
    assert!(machine.update().units);
    assert!(!machine.update().units);
    assert_eq!(names(&machine).len(), 2);
    machine.mkdir(SCOPE);
    assert!(machine.update().units);
    assert!(names(&machine).is_empty() && machine.discovery.report().scheduler_seen);

    let mut without = Machine::new(V2, Config { units: false, ..Config::default() });
    without.mkdir("sys/fs/cgroup/system.slice/ssh.service");
    without.update();
    assert!(without.jobs.units().is_empty());
}

#[test]
fn processes_and_tasks_of_all_steps() {
    let mut machine = Machine::new(V1, Config::default());
    let job = "sys/fs/cgroup/memory/slurm/uid_0/job_1";
    for (path, ids) in [
        ("cgroup.procs", ""),
        ("tasks", ""),
        ("step_0/task_0/cgroup.procs", "5\n"),
        ("step_0/task_0/tasks", "5\n6\n"),
        ("step_1/cgroup.procs", "7\n"),
        ("step_1/tasks", "7\n"),
    ] {
        machine.write(&format!("{job}/{path}"), ids);
    }
    let v2 = format!("{SCOPE}/job_2");
    machine.write(&format!("{job}/../../../slurm/x"), "");
    machine.update();
    let mut members = Members::default();
    let mut sorted = |machine: &Machine, id, want_tasks| {
        let job = machine.job("slurm", id).unwrap();
        if want_tasks {
            tasks(&machine.root, job, &mut members).unwrap();
        } else {
            processes(&machine.root, job, &mut members).unwrap();
        }
        let mut ids = members.ids().to_vec();
        ids.sort_unstable();
        ids
    };
    assert_eq!(sorted(&machine, 1, false), [5, 7]);
    assert_eq!(sorted(&machine, 1, true), [5, 6, 7]);

    let mut unified = Machine::new(V2, Config::default());
    unified.write(&format!("{v2}/step_0/user/task_0/cgroup.procs"), "8\n");
    unified.write(&format!("{v2}/step_0/user/task_0/cgroup.threads"), "8\n9\n");
    unified.write(&format!("{v2}/step_0/slurm/cgroup.procs"), "4\n0\n");
    unified.write(&format!("{v2}/step_0/slurm/cgroup.threads"), "4\n");
    unified.update();
    assert_eq!(sorted(&unified, 2, false), [4, 8]);
    assert_eq!(sorted(&unified, 2, true), [4, 8, 9]);
    unified.write(&format!("{v2}/step_0/slurm/cgroup.procs"), "nonsense\n");
    let job = unified.job("slurm", 2).unwrap();
    let error = processes(&unified.root, job, &mut Members::default()).unwrap_err().to_string();
    assert!(error.contains("step_0/slurm/cgroup.procs") && error.contains("nonsense"), "{error}");
}
