//! Frequencies of the processors, their limits, and thermal throttling.
//!
//! Reads `/sys/devices/system/cpu/cpuN/` (Linux 2.6.11; Documentation/admin-guide/pm/cpufreq.rst; for
//! `thermal_throttle` Documentation/ABI/testing/sysfs-devices-system-cpu, Linux 2.6.25, times 5.5):
//!
//! ```text
//! cpu0/cpufreq/scaling_cur_freq                      2899998     kilohertz
//! cpu0/cpufreq/scaling_max_freq                      3500000     highest frequency that the governor may
//! choose
//! cpu0/cpufreq/cpuinfo_max_freq                      3500000     highest frequency of the hardware
//! cpu0/thermal_throttle/core_throttle_count          3
//! cpu0/thermal_throttle/package_throttle_total_time_ms  412
//! ```
//!
//! The source reads the limits once a minute, because only administrators change them; they are means over
//! the processors. `scaling_cur_freq` is the measured frequency of the last tick where the processor measures
//! it (Intel and AMD, from `aperf` and `mperf`), else the frequency that the governor requested. The metrics
//! are mean, lowest and highest over the online processors; the option `cores` adds each single one.
//! Throttling of a core is read at the first of its hardware threads, throttling of a package at the first of
//! its processors. Both count since the first reading.
//!
//! Without a frequency driver, as in a virtual machine, the source reads `/proc/cpuinfo`, see
//! [`kernel::cpuinfo`]: mostly the frequency that the machine received at boot. There are then no limits and
//! no single processors.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::cores;
use crate::reading::values::{Values, Walk};
use crate::reading::wrapping::{Sum, Wrapping};
use crate::{
    Context, Every, Open, SampleWriter, Sink, Source, SourceError, SourceSpec, ValueBounds,
};
use kernel::cpuinfo::frequencies_khz;
use model::{Metric, Timestamp, Unit};

const DIR: &str = "sys/devices/system/cpu";
const CPUINFO: &str = "proc/cpuinfo";
/// Upper bound: no processor is faster.
const HERTZ_MAX: f64 = 20e9;
/// Upper bound per second of throttling events, and of throttled milliseconds.
const THROTTLES_RATE_MAX: u64 = 1_000_000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "cpufreq",
    help: "Frequencies of the processors, their limits, and thermal throttling.",
    reads: &[
        "/sys/devices/system/cpu/cpu*/cpufreq/{scaling_cur,scaling_min,scaling_max,cpuinfo_min,cpuinfo_max}_freq",
        "/sys/devices/system/cpu/cpu*/thermal_throttle/{core,package}_throttle_{count,total_time_ms}",
        "/sys/devices/system/cpu/cpu*/topology/{physical_package_id,core_id}",
        "/proc/cpuinfo",
    ],
    cost: "about 2 µs a file: one a processor, 2 a core and 2 a package, once a minute four more a processor; without a driver 5 µs a processor",
    every: Every::Tick,
    metrics: &[
        &MEAN,
        &LOWEST,
        &HIGHEST,
        &LIMIT_LOW,
        &LIMIT_HIGH,
        &ABLE_LOW,
        &ABLE_HIGH,
        &CORE,
        &THROTTLES,
        &THROTTLED,
        &PACKAGE_THROTTLES,
        &PACKAGE_THROTTLED,
    ],
    sane: &[
        ValueBounds::of(&MEAN).within(1.0, HERTZ_MAX),
        ValueBounds::of(&LOWEST).within(1.0, HERTZ_MAX),
        ValueBounds::of(&HIGHEST).within(1.0, HERTZ_MAX),
        ValueBounds::of(&CORE).within(1.0, HERTZ_MAX),
    ],
    options: &[cores("Also the frequency of every single processor.")],
    open,
    ..SourceSpec::DEFAULT
};

static MEAN: Metric = hertz("cpufreq_mean_hertz", "Current frequency, mean over the processors.");
static LOWEST: Metric =
    hertz("cpufreq_lowest_hertz", "Current frequency of the slowest processor.");
static HIGHEST: Metric =
    hertz("cpufreq_highest_hertz", "Current frequency of the fastest processor.");
static LIMIT_LOW: Metric = hertz(
    "cpufreq_limit_low_hertz",
    "Lowest frequency that the governor may choose, mean over the processors.",
);
static LIMIT_HIGH: Metric = hertz(
    "cpufreq_limit_high_hertz",
    "Highest frequency that the governor may choose, mean over the processors.",
);
static ABLE_LOW: Metric =
    hertz("cpufreq_able_low_hertz", "Lowest frequency of the hardware, mean over the processors.");
static ABLE_HIGH: Metric = hertz(
    "cpufreq_able_high_hertz",
    "Highest frequency of the hardware, mean over the processors.",
);
static CORE: Metric = hertz("cpufreq_core_hertz", "Current frequency of this processor.");
static THROTTLES: Metric = Metric::counter(
    "cpufreq_throttles_total",
    Unit::Count,
    "Thermal throttling events of cores, summed over cores, since the first reading.",
);
static THROTTLED: Metric = Metric::counter(
    "cpufreq_throttled_seconds_total",
    Unit::Seconds,
    "Time in which heat throttled cores, summed over cores, since the first reading.",
)
.steps(1000);
static PACKAGE_THROTTLES: Metric = Metric::counter(
    "cpufreq_package_throttles_total",
    Unit::Count,
    "Thermal throttling events of a package, since the first reading.",
);
static PACKAGE_THROTTLED: Metric = Metric::counter(
    "cpufreq_package_throttled_seconds_total",
    Unit::Seconds,
    "Time in which heat throttled a package, since the first reading.",
)
.steps(1000);

const fn hertz(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Hertz, help)
}

/// Limits of a processor; the metrics are their means.
static LIMITS: [(&str, &Metric); 4] = [
    ("scaling_min_freq", &LIMIT_LOW),
    ("scaling_max_freq", &LIMIT_HIGH),
    ("cpuinfo_min_freq", &ABLE_LOW),
    ("cpuinfo_max_freq", &ABLE_HIGH),
];

/// State of a file.
#[derive(Debug)]
enum FileState {
    /// A frequency.
    Nothing,
    /// Last value of a core's counter.
    Core(Option<u64>),
    /// Counter of a package.
    Package(Option<Wrapping>),
}

struct Cpufreq {
    files: Values<FileState>,
    /// Whether the first processor has any of these files.
    has_files: bool,
    /// Present if the processor has no frequency driver.
    cpuinfo: Option<TickFile>,
    cores_wanted: bool,
    /// Result of the last walk.
    limits: [Spread; LIMITS.len()],
    throttles: Sum,
    throttled_ms: Sum,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let has = |dir: &str| open.root.stat(&format!("{DIR}/cpu0/{dir}")).is_ok();
    let (driver, throttle) = (has("cpufreq"), has("thermal_throttle"));
    let cpuinfo = match driver {
        true => None,
        false => TickFile::open(open.root, CPUINFO).ok(),
    };
    if cpuinfo.is_none() && !driver && !throttle {
        let why = "/sys/devices/system/cpu/cpu0: neither cpufreq nor thermal_throttle, and no /proc/cpuinfo";
        return Err(SourceError::absent(why));
    }
    Ok(Box::new(Cpufreq {
        files: Values::default(),
        has_files: driver || throttle,
        cpuinfo,
        cores_wanted: open.options.switch("cores"),
        limits: Default::default(),
        throttles: Sum::default(),
        throttled_ms: Sum::default(),
    }))
}

/// Sum, count and extremes of frequencies, in kilohertz.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    sum: i64,
    count: u32,
    lowest: Option<i64>,
    highest: Option<i64>,
}

impl Spread {
    fn add(&mut self, khz: i64) {
        self.sum = self.sum.saturating_add(khz);
        self.count += 1;
        self.lowest = Some(self.lowest.map_or(khz, |lowest| lowest.min(khz)));
        self.highest = Some(self.highest.map_or(khz, |highest| highest.max(khz)));
    }

    fn mean_hertz(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 * 1e3 / f64::from(self.count))
    }
}

impl Source for Cpufreq {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/devices/system/cpu/cpu*: neither cpufreq nor thermal_throttle any more";
        let mut now = self.of_cpuinfo()?;
        if !self.has_files {
            if now.count == 0 {
                return Err(SourceError::absent("/proc/cpuinfo: it contains no frequency"));
            }
            push(&now, &[], &mut out.of_device());
            return Ok(());
        }
        let Self { files, cores_wanted, limits, throttles, throttled_ms, .. } = self;
        files.look(cx.root, cx.now, absent, |found| *limits = walk(found))?;
        let (mut cores, mut of) = (false, out.of_device());
        let read = files.each(|file, number| {
            let Ok(count) = u64::try_from(number) else { return };
            let counts = file.is(&THROTTLES);
            if let FileState::Core(last) = &mut file.kept {
                cores = true;
                let sum = if counts { &mut *throttles } else { &mut *throttled_ms };
                sum.add(last, count, None);
            } else if let FileState::Package(kept) = &mut file.kept {
                let counted = kept.get_or_insert(Wrapping::new(cx.now, count));
                let (total, start) = counted.add(cx.now, count, u64::MAX, THROTTLES_RATE_MAX);
                let lost = counted.lost();
                file.lost(&mut of, lost);
                file.counter(&mut of, total, start);
            } else {
                now.add(number);
                if *cores_wanted {
                    file.labelled(|labels| of.gauge(&CORE, labels, number as f64 * 1e3));
                }
            }
        });
        push(&now, limits, &mut of);
        let state = read.state("files", out);
        if cores {
            self.push_throttling(cx.now, &mut out.of_device());
        }
        state
    }
}

impl Cpufreq {
    /// The frequencies of `/proc/cpuinfo`; empty where a driver reports them.
    fn of_cpuinfo(&mut self) -> Result<Spread, SourceError> {
        let mut now = Spread::default();
        let Some(file) = &mut self.cpuinfo else { return Ok(now) };
        for khz in frequencies_khz(file.read()?).map_err(|e| broken(CPUINFO, e))? {
            let khz = khz.map_err(|e| broken(CPUINFO, e))?;
            now.add(i64::try_from(khz).unwrap_or(i64::MAX));
        }
        Ok(now)
    }

    fn push_throttling(&mut self, now: Timestamp, of: &mut SampleWriter<'_>) {
        let (count, start) = self.throttles.total(now);
        of.counter(&THROTTLES, &[], count as f64, start);
        let (ms, start) = self.throttled_ms.total(now);
        of.counter(&THROTTLED, &[], ms as f64 / 1e3, start);
    }
}

fn push(now: &Spread, limits: &[Spread], of: &mut SampleWriter<'_>) {
    if let Some(mean) = now.mean_hertz() {
        of.gauge(&MEAN, &[], mean);
    }
    for (metric, khz) in [(&LOWEST, now.lowest), (&HIGHEST, now.highest)] {
        if let Some(khz) = khz {
            of.gauge(metric, &[], khz as f64 * 1e3);
        }
    }
    for ((_, metric), limit) in LIMITS.iter().zip(limits) {
        if let Some(mean) = limit.mean_hertz() {
            of.gauge(metric, &[], mean);
        }
    }
}

/// Finds the files, and reads the limits.
fn walk(walk: &mut Walk<'_, FileState>) -> [Spread; LIMITS.len()] {
    let mut limits = [Spread::default(); LIMITS.len()];
    let (mut cores, mut packages) = (Vec::new(), Vec::new());
    let mut cpus: Vec<(u32, String)> = walk
        .names(DIR)
        .into_iter()
        .filter_map(|entry| Some((entry.strip_prefix("cpu")?.parse().ok()?, entry)))
        .collect();
    cpus.sort();
    for (number, entry) in cpus {
        let dir = format!("{DIR}/{entry}");
        let cpu = number.to_string();
        let path = format!("{dir}/cpufreq/scaling_cur_freq");
        walk.file(&path, &MEAN, &[("cpu", &cpu)], 1e-3, FileState::Nothing);
        for ((file, _), limit) in LIMITS.iter().zip(&mut limits) {
            let khz =
                walk.text(&format!("{dir}/cpufreq/{file}")).and_then(|text| text.parse().ok());
            khz.into_iter().for_each(|khz| limit.add(khz));
        }
        // An offline processor has no topology.
        let Some(package) = walk.text(&format!("{dir}/topology/physical_package_id")) else {
            continue;
        };
        let core = walk.text(&format!("{dir}/topology/core_id")).unwrap_or_else(|| cpu.clone());
        let at = |file: &str| format!("{dir}/thermal_throttle/{file}");
        let core = (package.clone(), core);
        if !cores.contains(&core) {
            let kept = || FileState::Core(None);
            walk.file(&at("core_throttle_count"), &THROTTLES, &[], 1.0, kept());
            walk.file(&at("core_throttle_total_time_ms"), &THROTTLED, &[], 1e3, kept());
            cores.push(core);
        }
        if !packages.contains(&package) {
            let (kept, labels) = (|| FileState::Package(None), [("package", &*package)]);
            walk.file(&at("package_throttle_count"), &PACKAGE_THROTTLES, &labels, 1.0, kept());
            let total = at("package_throttle_total_time_ms");
            walk.file(&total, &PACKAGE_THROTTLED, &labels, 1e3, kept());
            packages.push(package);
        }
    }
    limits
}
