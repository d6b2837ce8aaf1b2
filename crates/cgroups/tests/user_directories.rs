//! Limits of the directories of one user.

mod machine;

use cgroups::{
    Config, Hierarchy, JobCgroup, JobDir, Jobs, Members, USER_DIRECTORIES_MAX, cut_walks, processes,
};
use machine::{Machine, at, key};
use std::collections::BTreeMap;

const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
const SCOPE: &str = "sys/fs/cgroup/system.slice/slurmstepd.scope";

/// One user's directories have a common limit, over any number of jobs, and do not hide other users' jobs.
#[test]
fn directories_of_one_user_are_limited_and_others_are_read() {
    let machine = Machine::new(V2, Config::default());
    // Three jobs of the user 1000 with 1000 directories each, and one of the user 2000.
    let jobs: Vec<JobCgroup> = [(1, 1000), (2, 1000), (3, 1000), (4, 2000)]
        .map(|(id, uid)| {
            let path = format!("{SCOPE}/job_{id}");
            let count = if uid == 1000 { 1000 } else { 20 };
            for directory in 0..count {
                machine.write(&format!("{path}/d{directory}/cgroup.procs"), &format!("{id}\n"));
            }
            machine.write(&format!("{path}/cgroup.procs"), &format!("{id}\n"));
            let dirs = vec![JobDir { hierarchy: Hierarchy::Unified, path }];
            let (display_id, directories_max) = (id.to_string().into(), 0);
            let (key, user, uid) = (key("slurm", id), None, Some(uid));
            JobCgroup {
                key,
                display_id,
                user,
                uid,
                dirs,
                created: at(0),
                populated: true,
                directories_max,
            }
        })
        .to_vec();
    let (mut members, before) = (Members::default(), cut_walks());
    let mut looked = BTreeMap::new();
    for job in Jobs::new(jobs, Vec::new()).iter() {
        processes(&machine.root, job, &mut members).unwrap();
        // The job's own directory is read first, so that its processes are always found.
        assert_eq!(members.ids().first(), job.key.id.get().try_into().ok().as_ref());
        assert_eq!(members.is_cut(), job.uid == Some(1000));
        *looked.entry(job.uid).or_insert(0) += members.looked();
    }
    // Without the limit it was 3003.
    assert!(looked[&Some(1000)] <= USER_DIRECTORIES_MAX, "{looked:?}");
    assert_eq!(looked[&Some(2000)], 21);
    assert!(cut_walks() >= before + 3);
    // A scheduler may run so many jobs of a user on a node that equal parts would be too small.
    let of = |cluster: &str, uid, count: i64| {
        let job = |id| JobCgroup {
            key: key(cluster, id),
            display_id: "".into(),
            user: None,
            uid,
            dirs: Vec::new(),
            created: at(0),
            populated: true,
            directories_max: 0,
        };
        let jobs = Jobs::new((1..=count).map(job).collect(), Vec::new());
        jobs.iter().map(|job| job.directories_max).max()
    };
    assert_eq!(of("slurm", Some(1000), 128), Some(32));
    assert_eq!(of("local", Some(1000), 512), Some(2));
    assert_eq!(of("slurm", None, 128), Some(USER_DIRECTORIES_MAX), "jobs of unknown users");
}
