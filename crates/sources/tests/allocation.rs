//! In the steady state no source allocates: checks the third and the fourth tick on the live machine.

use cgroups::Jobs;
use kernel::Root;
use kernel::allocations::{CountingAllocator, on_this_thread};
use model::{DeviceId, Timestamp};
use sources::{Context, Open, Options, SOURCES, Sink, SourceError, SourceSpec};
use std::io::Write;
use std::path::Path;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Maximum number of attempts per source: its series may change because a disk or a process
/// appears or disappears.
const ATTEMPTS_MAX: usize = 10;

/// Options that enable more readings: source, name, value.
const MORE: [(&str, &str, &str); 9] = [
    ("cpu", "cores", "true"),
    ("cpufreq", "cores", "true"),
    ("disk", "include", "*"),
    ("interfaces", "virtual", "true"),
    ("network", "virtual", "true"),
    ("perf", "events", "page_faults,task_clock,msr/tsc/"),
    ("schedstat", "cores", "true"),
    ("softirqs", "cores", "true"),
    ("users", "sessions", "true"),
];

#[test]
fn the_counter_counts_allocations_of_its_own_thread_only() {
    let before = on_this_thread();
    let mut bytes: Vec<u8> = Vec::with_capacity(10);
    assert_eq!(on_this_thread(), before + 1);
    bytes.reserve_exact(100);
    assert_eq!(on_this_thread(), before + 2);
    drop(bytes);
    assert_eq!(on_this_thread(), before + 2);
    let other = std::thread::spawn(|| {
        let before = on_this_thread();
        drop(vec![0_u8; 10]);
        on_this_thread() - before
    });
    assert_eq!(other.join().unwrap(), 1);
}

#[test]
fn the_third_and_the_fourth_tick_allocate_nothing() {
    let (root, device) = (Root::live().unwrap(), DeviceId::new("node-1").unwrap());
    let mut read = 0;
    for spec in SOURCES {
        for more in [false, true] {
            let settings = MORE.iter().filter(|(source, ..)| more && *source == spec.name);
            let settings = settings.map(|(_, name, value)| (*name, *value));
            let options = Options::of(spec, settings).unwrap();
            match allocations(spec, &device, &root, &options) {
                Ok(counts) => {
                    assert_eq!(counts, [0, 0], "{}, more: {more}", spec.name);
                    read += 1;
                }
                Err(error @ (SourceError::Absent(_) | SourceError::Denied { .. })) => {
                    writeln!(std::io::stderr(), "skipped: {} is {error}", spec.name).unwrap();
                }
                Err(error) => panic!("{}: {error}", spec.name),
            }
        }
    }
    assert!(read > 0, "no source could be read");
}

/// Sources of hardware and file systems that a test machine lacks, on recorded machines. A
/// recorded machine reopens its files at each reading, which does not allocate either.
#[test]
fn sources_of_recorded_hardware_allocate_nothing_either() {
    let device = DeviceId::new("node-1").unwrap();
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/hosts");
    let of_hosts = [
        ("sensors-intel", &["rapl", "hwmon", "thermal", "cpufreq", "battery"][..]),
        (
            "cluster-node",
            &[
                "edac",
                "infiniband",
                "softirqs",
                "numa",
                "schedstat",
                "interfaces",
                "nfs",
                "lustre",
                "beegfs",
            ],
        ),
    ];
    for (host, names) in of_hosts {
        let root = Root::recorded(&hosts.join(host).join("2")).unwrap();
        for name in names {
            let spec = sources::list::find(name).unwrap();
            let options = Options::defaults(spec.options);
            assert_eq!(allocations(spec, &device, &root, &options), Ok([0, 0]), "{host} {name}");
        }
    }
}

/// Allocations in the third and the fourth tick, once all four had the same series.
fn allocations(
    spec: &SourceSpec,
    device: &DeviceId,
    root: &Root,
    options: &Options,
) -> Result<[u64; 2], SourceError> {
    let boot = Timestamp::YEAR_2000;
    let jobs = Jobs::default();
    for _ in 0..ATTEMPTS_MAX {
        let mut sink = Sink::of_source(spec, device.clone());
        let mut source = (spec.open)(&Open { root, options, boot })?;
        let mut counts = [0; 4];
        for (count, second) in counts.iter_mut().zip(1..) {
            let now = boot.plus(second * Timestamp::SECOND);
            let cx =
                Context { root, now, boot, jobs: &jobs, budget_us: 1_000_000, is_between: false };
            sink.begin(now);
            if second == 3 {
                // Reading the table marks it as seen.
                sink.table().for_each(drop);
            }
            let before = on_this_thread();
            source.collect(&cx, &mut sink)?;
            *count = on_this_thread() - before;
            sink.sealed();
        }
        if !sink.table_changed() {
            return Ok([counts[2], counts[3]]);
        }
    }
    Err(SourceError::broken(format!("its series changed {ATTEMPTS_MAX} times within four ticks")))
}
