//! Jobs that come and go, as the sampler tells of them.

use super::*;

#[test]
fn a_job_that_ends_is_read_and_told_at_once() {
    let mut plan = plan();
    plan.period = Duration::from_secs(5);
    plan.sources[0].period = Duration::from_secs(5);
    plan.sources[1].period = Duration::from_secs(5);
    let mut bench = Bench::new(&plan);
    let job = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
    bench.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    bench.write(".jobmeter/owners", &format!("0 {} {job}\n", START - 9));
    bench.write(&format!("{job}/cgroup.events"), "populated 1\nfrozen 0\n");
    bench.pass(6_300_000);
    std::fs::remove_dir_all(bench.dir.path().join(job)).unwrap();
    bench.sampler.note();
    bench.work();
    let batches = bench.batches();
    let events: Vec<JobEvent> = batches.iter().flat_map(|batch| batch.jobs.clone()).collect();
    assert_eq!(events.len(), 2, "{events:?}");
    assert_eq!((events[0].key.to_string(), events[0].stop), ("slurm:7".to_owned(), None));
    assert_eq!(events[1].stop, Some(second(6).plus(300_000)));
    assert_eq!(Bench::samples(&batches)["second_last"], [(6.3, 1.0)]);
    let at = batches.last().unwrap().samples().last().unwrap().1;
    assert_eq!(at, second(6).plus(300_000), "sealed before the next tick");
}

#[test]
fn jobs_that_went_while_no_agent_looked_are_told_as_ended() {
    let mut bench = Bench::new(&plan());
    let here = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
    bench.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    bench.write(".jobmeter/owners", &format!("0 {} {here}\n", START - 9));
    bench.write(&format!("{here}/cgroup.events"), "populated 1\nfrozen 0\n");
    bench.pass(1_000_000);
    let job = |id| {
        let cluster = model::ClusterId::new("slurm").unwrap();
        JobKey { cluster, id: model::JobId::new(id).unwrap() }
    };
    let open = [(7, Timestamp(START - 9)), (8, Timestamp(START - 7)), (9, second(3))];
    let told = || WantedJobs {
        local: Vec::new(),
        open: open.iter().map(|(id, start)| (job(*id), *start)).collect(),
    };
    bench.sampler.set_jobs(told());
    bench.pass(2_000_000);
    let ends = |batches: &[Batch]| -> Vec<JobEvent> {
        let events = batches.iter().flat_map(|batch| batch.jobs.clone());
        events.filter(|event| event.stop.is_some()).collect()
    };
    assert_eq!(ends(&bench.batches()), [], "what comes to light late is not gone");
    bench.pass(9_000_000);
    // One that an answer on its way still names is not told twice.
    bench.sampler.set_jobs(told());
    bench.pass(12_000_000);
    let ended = ends(&bench.batches());
    let [end] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((end.key.clone(), end.start), (job(8), Timestamp(START - 7)));
    assert_eq!(end.stop, Some(second(0)), "nobody knows more than when the agent began to look");
}
