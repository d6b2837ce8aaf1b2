//! Tests of jobs that start and end.

use super::*;

#[test]
fn a_job_that_ends_is_read_and_reported_at_once() {
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

/// Writes the cgroup of a job that has a process.
fn write_job(bench: &Bench, id: i64) -> String {
    let job = format!("sys/fs/cgroup/system.slice/slurmstepd.scope/job_{id}");
    bench.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    bench.write(&format!("{job}/cgroup.events"), "populated 1\nfrozen 0\n");
    job
}

#[test]
fn a_job_that_starts_right_after_a_drain_is_followed_at_once() {
    let mut bench = Bench::new(&plan());
    write_job(&bench, 7);
    bench.pass(2_050_000);
    write_job(&bench, 8);
    bench.sampler.note();
    bench.work();
    bench.pass(100_000);
    bench.sampler.seal_now();
    let samples = &Bench::samples(&bench.batches())["second_value"];
    assert!(samples.iter().any(|(at, _)| *at == 2.05), "{samples:?}");
}

#[test]
fn a_source_that_is_read_aside_when_a_job_ends_reads_the_job_afterwards() {
    for is_back in [true, false] {
        let mut bench = Bench::new(&plan());
        let job = write_job(&bench, 7);
        bench.pass(2_500_000);
        let slow = bench.reading("second");
        bench.clock.pass(100_000);
        assert!(bench.sampler.watch(), "it is set aside");
        std::fs::remove_dir_all(bench.dir.path().join(job)).unwrap();
        bench.sampler.note();
        bench.pass(300_000);
        assert_eq!(bench.sampler.jobs.iter().len(), 0, "searches go on");
        if is_back {
            bench.sampler.done(slow.make(&*bench.clock), 0);
        } else {
            // It never comes back: a source that hangs keeps no job.
            bench.clock.pass(2_000_000);
            bench.sampler.watch();
        }
        bench.pass(1_000_000);
        let last = Bench::samples(&bench.batches()).remove("second_last");
        assert_eq!(last.map_or(0, |last| last.len()), usize::from(is_back));
        assert_eq!(bench.sampler.jobs.iter().len(), 0);
    }
}

#[test]
fn the_state_at_a_clean_end_has_every_job_even_one_that_just_began() {
    let mut bench = Bench::new(&plan());
    write_job(&bench, 7);
    bench.pass(2_500_000);
    let slow = bench.reading("second");
    bench.clock.pass(100_000);
    assert!(bench.sampler.watch(), "it is set aside");
    write_job(&bench, 8);
    bench.sampler.finish();
    assert!(bench.work() > bench.clock.wall(), "it waits for the source that is read aside");
    bench.sampler.done(slow.make(&*bench.clock), 0);
    assert_eq!(bench.work(), Timestamp(0), "it ends");
    let states = bench.sampler.states();
    assert_eq!(states, ["first", "second"].map(|name| (name.to_owned(), vec![7, 8])));
}

#[test]
fn jobs_that_went_while_no_agent_looked_are_reported_as_ended() {
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
    let wanted_jobs = || WantedJobs {
        open: open.iter().map(|(id, start)| (job(*id), *start)).collect(),
        ..WantedJobs::default()
    };
    bench.sampler.set_jobs(wanted_jobs());
    bench.pass(2_000_000);
    let ends = |batches: &[Batch]| -> Vec<JobEvent> {
        let events = batches.iter().flat_map(|batch| batch.jobs.clone());
        events.filter(|event| event.stop.is_some()).collect()
    };
    assert_eq!(ends(&bench.batches()), [], "what comes to light late is not gone");
    bench.pass(9_000_000);
    // A job that a delayed acknowledgement still lists is not reported twice.
    bench.sampler.set_jobs(wanted_jobs());
    bench.pass(12_000_000);
    let ended = ends(&bench.batches());
    let [end] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((end.key.clone(), end.start), (job(8), Timestamp(START - 7)));
    assert_eq!(end.stop, Some(second(0)), "nobody knows more than when the agent began to look");
}

#[test]
fn a_request_in_a_jobs_environment_is_reported_once_it_is_there() {
    let mut bench = Bench::new(&plan());
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(bench.dir.path()).unwrap());
    let job = format!("sys/fs/cgroup/freezer/slurm/uid_{uid}/job_7");
    bench.write("proc/self/mounts", "cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n");
    bench.write(".jobmeter/owners", &format!("0 {} {job}\n", START - 9));
    bench.write(&format!("{job}/cgroup.procs"), "");
    bench.write(&format!("{job}/step_batch/cgroup.procs"), "3\n");
    // At first the job has only a process of the scheduler.
    bench.write("proc/3/environ", "HOME=/\0");
    bench.pass(2_000_000);
    let wanted_jobs = |bench: &Bench| -> Vec<_> {
        let batches = bench.batches();
        let events = batches.into_iter().flat_map(|batch| batch.jobs);
        events.map(|event| (event.key.to_string(), event.stop, event.monitor)).collect()
    };
    assert_eq!(wanted_jobs(&bench), [("slurm:7".to_owned(), None, None)]);
    bench.write(&format!("{job}/step_batch/cgroup.procs"), "3\n4\n");
    bench.write("proc/4/environ", "A=1\0JOBMETER_MONITOR=perf_.*\0");
    bench.pass(5_000_000);
    assert_eq!(wanted_jobs(&bench), [("slurm:7".to_owned(), None, Some("perf_.*".into()))]);
    // The request is known, so no process is read any more.
    bench.write("proc/4/environ", "JOBMETER_MONITOR=net_.*\0");
    bench.pass(30_000_000);
    assert_eq!(wanted_jobs(&bench), []);
}

#[test]
fn a_request_that_cannot_be_sent_is_reported_with_the_reason() {
    let mut bench = Bench::new(&plan());
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(bench.dir.path()).unwrap());
    let job = format!("sys/fs/cgroup/freezer/slurm/uid_{uid}/job_7");
    bench.write("proc/self/mounts", "cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n");
    bench.write(".jobmeter/owners", &format!("0 {} {job}\n", START - 9));
    bench.write(&format!("{job}/cgroup.procs"), "3\n");
    bench.write("proc/3/environ", &format!("JOBMETER_MONITOR={}\0", "x".repeat(1025)));
    bench.pass(2_000_000);
    let events = bench.batches().into_iter().flat_map(|batch| batch.jobs);
    let requests: Vec<_> = events.filter_map(|event| event.monitor).collect();
    assert_eq!(requests, ["!JOBMETER_MONITOR: it has 1025 bytes; 1024 at most".into()]);
}

#[test]
fn a_look_that_hangs_holds_up_no_source_and_no_other_job_is_looked_at_meanwhile() {
    let mut bench = Bench::new(&plan());
    let scope = "sys/fs/cgroup/system.slice/slurmstepd.scope";
    bench.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    bench.write(&format!("{scope}/job_7/cgroup.events"), "populated 1\nfrozen 0\n");
    let look = loop {
        let generation = bench.sampler.generation;
        match bench.sampler.step() {
            Step::Read(reading) => bench.sampler.done(reading.make(&*bench.clock), generation),
            Step::Find(finding) => bench.sampler.found(finding.make(), generation),
            Step::Look(looking) => break looking,
            Step::Wait(until) => bench.clock.pass(until.since(bench.clock.wall())),
            Step::End => panic!("it ended"),
        }
    };
    let generation = bench.sampler.generation;
    bench.clock.pass(600_000);
    assert!(bench.sampler.watch(), "another thread goes on");
    bench.write(&format!("{scope}/job_8/cgroup.events"), "populated 1\nfrozen 0\n");
    bench.sampler.note();
    bench.pass(20_000_000);
    let samples = Bench::samples(&bench.batches());
    assert!(samples.values().all(|values| values.len() > 15), "sources are read: {samples:?}");
    assert_eq!(bench.sampler.jobs.iter().len(), 2, "jobs are found");
    assert!(bench.sampler.env_scanner.due_us().is_none());
    bench.sampler.looked(look.make(), generation);
    assert!(bench.sampler.env_scanner.due_us().is_some(), "the next is looked at");
}

#[test]
fn a_job_of_a_killed_run_ends_with_its_last_process() {
    let mut bench = Bench::new(&plan());
    let job = "sys/fs/cgroup/freezer/jobmeter/job_7";
    bench.write("proc/self/mounts", "cgroup /sys/fs/cgroup/freezer cgroup rw,freezer 0 0\n");
    bench.write(&format!("{job}/cgroup.procs"), "3\n");
    bench.pass(5_000_000);
    bench.write(&format!("{job}/cgroup.procs"), "");
    bench.pass(30_000_000);
    let events = bench.batches().into_iter().flat_map(|batch| batch.jobs);
    let stops: Vec<_> = events.filter_map(|event| event.stop).collect();
    let [stop] = stops[..] else { panic!("{stops:?}") };
    assert!(stop >= second(5) && stop <= second(7), "{stop}");
}
