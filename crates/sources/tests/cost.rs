//! Cost of a tick of each source on this machine, for the `cost` of its declaration:
//! `CARGO_PROFILE_DEV_OPT_LEVEL=3 cargo test -p sources --test cost -- --ignored --nocapture`.

use cgroups::Jobs;
use kernel::Root;
use kernel::clock::thread_cpu_us;
use model::{DeviceId, Timestamp};
use sources::{Context, Open, Options, SOURCES, Sink};
use std::io::Write;

const TICKS: u64 = 2000;

#[test]
#[ignore = "prints a table; asserts nothing, as a busy machine would fail it"]
fn processor_time_of_a_tick() {
    let root = Root::live().unwrap();
    let (now, boot) = (Timestamp(1_767_706_500_000_000), Timestamp::YEAR_2000);
    let jobs = Jobs::default();
    let cx =
        Context { root: &root, now, boot, jobs: &jobs, budget_us: 1_000_000, is_between: false };
    let mut err = std::io::stderr();
    for spec in SOURCES {
        let options = Options::defaults(spec.options);
        let mut sink = Sink::of_source(spec, DeviceId::new("node-1").unwrap());
        let opened = (spec.open)(&Open { root: &root, options: &options, boot });
        let mut tick = |source: &mut Box<dyn sources::Source>| {
            sink.begin(now);
            let result = source.collect(&cx, &mut sink);
            let samples = sink.len();
            sink.sealed();
            result.map(|()| samples)
        };
        let measured = opened.and_then(|mut source| {
            let samples = tick(&mut source)?;
            let start = thread_cpu_us();
            (0..TICKS).try_for_each(|_| tick(&mut source).map(drop))?;
            Ok((samples, (thread_cpu_us() - start) as f64 / TICKS as f64))
        });
        match measured {
            Ok((samples, us)) => {
                writeln!(err, "{:<12} {us:>7.1} µs {samples:>4} samples", spec.name)
            }
            Err(error) => writeln!(err, "{:<12} {error}", spec.name),
        }
        .unwrap();
    }
}
