//! Tests of changing demand: promotions, idle nodes and bursts.

use super::*;
use crate::reading::plan::BurstPlan;
use config::FlushOn;
use sources::RingLimits;

const JOB: &str = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7";
const TENTH: i64 = 100_000;

/// The first source with a burst: 10 readings per second, kept for 3 s.
fn with_burst(flush_on: FlushOn) -> Plan {
    let mut plan = first_only();
    let keep = RingLimits {
        time: Duration::from_secs(3),
        period: Duration::from_millis(100),
        bytes_max: 1 << 16,
    };
    plan.sources[0].burst = Some(BurstPlan { keep, flush_on });
    plan
}

fn job_comes(bench: &mut Bench) {
    bench.write(&format!("{JOB}/cgroup.events"), "populated 1\nfrozen 0\n");
    let made = bench.clock.wall().0 / Timestamp::SECOND;
    bench.write(".jobmeter/owners", &format!("0 {made} {JOB}\n"));
    bench.sampler.note();
}

fn job_ends(bench: &mut Bench) {
    std::fs::remove_dir_all(bench.dir.path().join(JOB)).unwrap();
    bench.sampler.note();
}

fn with_cgroups(plan: &Plan) -> Bench {
    let bench = Bench::new(plan);
    bench.write("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    bench.write("sys/fs/cgroup/cgroup.procs", "");
    bench
}

fn times(batches: &[Batch], metric: &str) -> Vec<f64> {
    let samples = Bench::samples(batches);
    samples.get(metric).map_or_else(Vec::new, |all| all.iter().map(|(at, _)| *at).collect())
}

#[test]
fn what_nobody_wants_any_more_is_no_gap_and_what_is_wanted_comes_with_the_next_tick() {
    let mut bench = Bench::new(&plan());
    bench.pass(1_500_000);
    let mut other = plan();
    other.sources[0].enabled = false;
    other.sources[1].off = Arc::from([&SECOND_VALUE]);
    bench.sampler.apply(&other);
    bench.pass(5_000_000);
    let without = bench.batches();
    assert_eq!(times(&without, "first_value"), [0.0, 1.0]);
    assert!(times(&without, "second_value").iter().all(|at| *at < 1.5));
    assert_eq!(bench.sampler.entries[1].state, State::Working, "it is read for its other metric");
    bench.sampler.apply(&plan());
    bench.pass(600_000);
    let again = bench.batches();
    assert_eq!(times(&again, "first_value"), [7.0]);
    assert!(times(&again, "second_value").contains(&7.0));
    assert_eq!(Bench::gaps(&[without, again].concat()), []);
}

#[test]
fn a_source_that_failed_is_tried_at_once_when_it_is_wanted_again() {
    let mut bench = Bench::new(&first_only());
    std::fs::remove_file(bench.dir.path().join("first")).unwrap();
    bench.pass(1_500_000);
    let mut off = first_only();
    off.sources[0].enabled = false;
    bench.sampler.apply(&off);
    bench.report("first", "ok");
    bench.sampler.apply(&first_only());
    bench.pass(1_000_000);
    assert_eq!(times(&bench.batches(), "first_value"), [2.0]);
}

#[test]
fn an_idle_node_is_read_slowly_and_one_with_a_job_fast_within_one_tick() {
    let mut plan = first_only();
    plan.sources[0].period = Duration::from_secs(5);
    plan.sources[0].period_idle = Some(Duration::from_secs(60));
    plan.period = Duration::from_secs(5);
    let mut bench = with_cgroups(&plan);
    bench.pass(134_000_000);
    assert_eq!(times(&bench.batches(), "first_value"), [0.0, 60.0, 120.0]);
    bench.pass(300_000);
    job_comes(&mut bench);
    bench.pass(11_000_000);
    assert_eq!(times(&bench.batches(), "first_value"), [135.0, 140.0, 145.0]);
    job_ends(&mut bench);
    bench.pass(120_000_000);
    let idle = bench.batches();
    assert_eq!(times(&idle, "first_value"), [180.0, 240.0]);
    assert_eq!(Bench::gaps(&idle), [], "what is read more rarely is no gap");
    assert_eq!(bench.sampler.entries[0].stats.missed, 0);
}

#[test]
fn a_longer_wait_is_announced_with_a_batch_before_it() {
    let mut fast = first_only();
    fast.sources[0].period_idle = Some(Duration::from_secs(20));
    let mut bench = with_cgroups(&fast);
    let wait = |bench: &Bench| bench.sampler.agent_metrics.wait_us() / Timestamp::SECOND;
    bench.pass(25_000_000);
    assert_eq!(wait(&bench), 20);
    job_comes(&mut bench);
    bench.pass(5_000_000);
    assert_eq!(wait(&bench), 1);
    bench.batches();
    job_ends(&mut bench);
    bench.pass(1_500_000);
    assert_eq!(wait(&bench), 20);
    assert!(!bench.batches().is_empty(), "what says so is sent at once");
    // The plan has a longer period, and no data is sent until then.
    bench.pass(3_000_000);
    bench.batches();
    let mut slow = first_only();
    slow.sources[0].period = Duration::from_secs(300);
    bench.sampler.apply(&slow);
    bench.pass(1_500_000);
    assert_eq!((wait(&bench), bench.batches().len()), (300, 1));
    bench.pass(20_000_000);
    assert_eq!(bench.batches().len(), 0);
}

#[test]
fn a_tick_that_is_due_when_a_job_comes_is_neither_lost_nor_taken_twice() {
    let mut plan = first_only();
    plan.sources[0].period_idle = Some(Duration::from_secs(60));
    let mut bench = with_cgroups(&plan);
    bench.clock.pass(59_000_000);
    bench.work();
    bench.clock.pass(1_000_000);
    job_comes(&mut bench);
    bench.pass(1_500_000);
    assert_eq!(times(&bench.batches(), "first_value"), [59.0, 60.0, 61.0]);
}

#[test]
fn a_requested_burst_is_sent_once_and_without_the_samples_of_ticks() {
    let mut bench = Bench::new(&with_burst(FlushOn::default()));
    bench.pass(6_050_000);
    let ordinary = bench.batches();
    assert_eq!(times(&ordinary, "first_value"), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(bench.sampler.entries[0].stats.reads, 61);
    bench.sampler.flush("second");
    bench.sampler.flush("first");
    bench.pass(2_000_000);
    let sent = bench.batches();
    let tenth = |at: Timestamp| at.since(second(0)) / TENTH;
    let mut flushed: Vec<i64> =
        sent.iter().flat_map(Batch::samples).map(|(_, at, _)| tenth(at)).collect();
    flushed.sort_unstable();
    // The 3 s before, without the ticks already sent; then the ticks that followed.
    let mut want: Vec<i64> = (29..60).filter(|tenth| tenth % 10 != 0).collect();
    want.extend([70, 80]);
    assert_eq!(flushed, want);
    bench.pass(1_000_000);
    bench.sampler.flush("first");
    bench.pass(1_500_000);
    let second: Vec<f64> = times(&bench.batches(), "first_value");
    assert!(second.iter().all(|at| *at > 6.0), "nothing comes twice: {second:?}");
    assert_eq!(second.iter().filter(|at| at.fract() != 0.0).count(), 27);
    assert_eq!(bench.sampler.entries[0].burst.as_ref().unwrap().flushes, 2);
}

#[test]
fn a_start_or_an_end_of_a_job_sends_the_burst_as_requested() {
    let both = FlushOn { job_start: true, job_end: true };
    for (on, starts, ends) in [
        (both, true, true),
        (FlushOn { job_end: false, ..both }, true, false),
        (FlushOn { job_start: false, ..both }, false, true),
    ] {
        let mut bench = with_cgroups(&with_burst(on));
        let between = |bench: &Bench| {
            let all = times(&bench.batches(), "first_value");
            all.iter().filter(|at| at.fract() != 0.0).count()
        };
        bench.pass(5_250_000);
        assert_eq!(between(&bench), 0);
        job_comes(&mut bench);
        bench.pass(1_000_000);
        assert_eq!(between(&bench) >= 26, starts);
        bench.pass(4_000_000);
        job_ends(&mut bench);
        bench.pass(1_500_000);
        assert_eq!(between(&bench) >= 26, ends);
    }
}

#[test]
fn a_large_burst_goes_in_parts_once_a_second_and_the_last_at_the_end() {
    let mut bench = Bench::new(&with_burst(FlushOn::default()));
    bench.report("first", "many");
    bench.pass(3_950_000);
    bench.batches();
    bench.sampler.flush("first");
    bench.work();
    let at_once: usize = bench.batches().iter().map(|batch| batch.values.len()).sum();
    assert_eq!(at_once, 0, "the last was less than a second ago");
    let mut sizes = Vec::new();
    for _ in 0..3 {
        bench.pass(1_000_000);
        sizes.push(bench.batches().iter().map(|batch| batch.values.len()).collect::<Vec<_>>());
    }
    assert!(sizes.iter().all(|batches| batches.len() == 1), "{sizes:?}");
    assert!(sizes[0][0] > sizes[2][0], "{sizes:?}");
    bench.sampler.flush("first");
    bench.sampler.end();
    while !matches!(bench.sampler.step(), Step::End) {}
    let last: usize = bench.batches().iter().map(|batch| batch.values.len()).sum();
    assert!(last > 20, "{last}");
}

#[test]
fn a_sealing_out_of_turn_is_a_second_from_the_others_and_does_not_move_them() {
    for (period, early_ms, want) in
        [(5, 6_300, &[5.0, 6.3, 10.0, 15.0][..]), (5, 9_800, &[5.0, 9.8, 10.8, 15.0])]
    {
        let mut plan = with_burst(FlushOn::default());
        plan.sources[0].period = Duration::from_secs(period);
        let mut bench = Bench::new(&plan);
        bench.work();
        let mut sealed = Vec::new();
        for step in 1..=160 {
            bench.pass(TENTH);
            if step * 100 == early_ms {
                bench.sampler.flush("first");
                bench.work();
            }
            if !bench.batches().is_empty() {
                sealed.push(f64::from(step) / 10.0);
            }
        }
        assert_eq!(sealed[sealed.len() - want.len()..], *want, "{sealed:?}");
    }
}

#[test]
fn an_outage_lasts_to_the_next_tick_and_an_ended_burst_keeps_nothing() {
    let mut bench = Bench::new(&with_burst(FlushOn::default()));
    bench.pass(1_950_000);
    bench.report("first", "denied");
    bench.pass(100_000);
    bench.report("first", "ok");
    bench.pass(1_500_000);
    let gaps = Bench::gaps(&bench.batches());
    assert_eq!((gaps[0].from, gaps[0].to), (second(1), second(3)), "{gaps:?}");
    bench.sampler.apply(&first_only());
    bench.sampler.flush("first");
    bench.pass(2_000_000);
    assert_eq!(times(&bench.batches(), "first_value"), [4.0, 5.0]);
    let slot = bench.sampler.entries[0].slot.as_ref().unwrap();
    assert_eq!(slot.sink.kept_bytes(), 0);
    assert_eq!(bench.clock.wall().0 % TENTH, 50_000);
}
