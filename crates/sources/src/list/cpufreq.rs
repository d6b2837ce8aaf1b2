//! Frequencies of the processors, their limits, and how often heat held them back.
//!
//! Reads `/sys/devices/system/cpu/cpuN/` (Linux 2.6.11; Documentation/admin-guide/pm/cpufreq.rst; for
//! `thermal_throttle` Documentation/ABI/testing/sysfs-devices-system-cpu, Linux 2.6.25, times 5.5):
//!
//! ```text
//! cpu0/cpufreq/scaling_cur_freq                      2899998     thousands of hertz
//! cpu0/cpufreq/scaling_max_freq                      3500000     what the governor may choose at most
//! cpu0/cpufreq/cpuinfo_max_freq                      3500000     what the processor can
//! cpu0/thermal_throttle/core_throttle_count          3
//! cpu0/thermal_throttle/package_throttle_total_time_ms  412
//! ```
//!
//! The limits are read once a minute, as they change when somebody changes them, and are means over the processors.
//! `scaling_cur_freq` is what the processor ran at in the last tick where it measures that (Intel and AMD, from
//! `aperf` and `mperf`), else what the governor asked for. Told are mean, lowest and highest over the processors on
//! line, with the option `cores` each one. A core's throttling is read at the first of its hardware threads, a
//! package's at the first of its processors; each counts since the first reading.
//!
//! Without a driver of frequencies, as in a virtual machine, those of `/proc/cpuinfo` are told, see
//! [`kernel::cpuinfo`]: mostly what the machine was told when it booted. There is then no limit, and no processor alone.

use crate::reading::file::{TickFile, broken};
use crate::reading::parts::cores;
use crate::reading::values::{Values, Walk};
use crate::reading::wrapping::{Sum, Wrapping};
use crate::{Context, Every, Of, Open, Sane, Sink, Source, SourceError, SourceSpec};
use kernel::cpuinfo::frequencies_khz;
use model::{Metric, Timestamp, Unit};

const DIR: &str = "sys/devices/system/cpu";
const CPUINFO: &str = "proc/cpuinfo";
/// No processor is faster.
const HERTZ_MAX: f64 = 20e9;
/// No processor is held back more often in a second, nor for more milliseconds of it.
const THROTTLES_RATE_MAX: u64 = 1_000_000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "cpufreq",
    help: "Frequencies of the processors, their limits, and how often heat held them back.",
    reads: &[
        "/sys/devices/system/cpu/cpu*/cpufreq/{scaling_cur,scaling_min,scaling_max,cpuinfo_min,cpuinfo_max}_freq",
        "/sys/devices/system/cpu/cpu*/thermal_throttle/{core,package}_throttle_{count,total_time_ms}",
        "/sys/devices/system/cpu/cpu*/topology/{physical_package_id,core_id}",
        "/proc/cpuinfo",
    ],
    cost: "about 2 µs a file: one a processor, 2 a core and 2 a package; once a minute four more a processor; without a driver 5 µs a processor",
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
        Sane::of(&MEAN).within(1.0, HERTZ_MAX),
        Sane::of(&LOWEST).within(1.0, HERTZ_MAX),
        Sane::of(&HIGHEST).within(1.0, HERTZ_MAX),
        Sane::of(&CORE).within(1.0, HERTZ_MAX),
    ],
    options: &[cores("Also the frequency of every processor alone.")],
    open,
};

static MEAN: Metric =
    hertz("cpufreq_mean_hertz", "Frequency of the processors now, the mean over all of them.");
static LOWEST: Metric =
    hertz("cpufreq_lowest_hertz", "Frequency of the processor that is slowest now.");
static HIGHEST: Metric =
    hertz("cpufreq_highest_hertz", "Frequency of the processor that is fastest now.");
static LIMIT_LOW: Metric = hertz(
    "cpufreq_limit_low_hertz",
    "Lowest frequency that may be chosen, the mean over the processors.",
);
static LIMIT_HIGH: Metric = hertz(
    "cpufreq_limit_high_hertz",
    "Highest frequency that may be chosen, the mean over the processors.",
);
static ABLE_LOW: Metric = hertz(
    "cpufreq_able_low_hertz",
    "Lowest frequency that the hardware is able to, the mean over the processors.",
);
static ABLE_HIGH: Metric = hertz(
    "cpufreq_able_high_hertz",
    "Highest frequency that the hardware is able to, the mean over the processors.",
);
static CORE: Metric = hertz("cpufreq_core_hertz", "Frequency of this processor now.");
static THROTTLES: Metric = Metric::counter(
    "cpufreq_throttles_total",
    Unit::Count,
    "Times that a core was too hot and held back, summed over cores, since the first reading.",
);
static THROTTLED: Metric = Metric::counter(
    "cpufreq_throttled_seconds_total",
    Unit::Seconds,
    "Time that cores were held back for heat, summed over cores, since the first reading.",
)
.steps(1000);
static PACKAGE_THROTTLES: Metric = Metric::counter(
    "cpufreq_package_throttles_total",
    Unit::Count,
    "Times that a package was too hot and held back, since the first reading.",
);
static PACKAGE_THROTTLED: Metric = Metric::counter(
    "cpufreq_package_throttled_seconds_total",
    Unit::Seconds,
    "Time that a package was held back for heat, since the first reading.",
)
.steps(1000);

const fn hertz(name: &'static str, help: &'static str) -> Metric {
    Metric::gauge(name, Unit::Hertz, help)
}

/// A processor's limits, of which the means are told.
static LIMITS: [(&str, &Metric); 4] = [
    ("scaling_min_freq", &LIMIT_LOW),
    ("scaling_max_freq", &LIMIT_HIGH),
    ("cpuinfo_min_freq", &ABLE_LOW),
    ("cpuinfo_max_freq", &ABLE_HIGH),
];

/// What is kept of a file.
#[derive(Debug)]
enum Kept {
    /// A frequency.
    Nothing,
    /// What a core's counter stood at.
    Core(Option<u64>),
    /// What a package's counter counted.
    Package(Option<Wrapping>),
}

struct Cpufreq {
    files: Values<Kept>,
    /// Whether the first processor has any of them.
    has_files: bool,
    /// Where it has no frequency.
    cpuinfo: Option<TickFile>,
    cores_wanted: bool,
    /// As the last walk found them.
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

/// Frequencies added up, in thousands of hertz.
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
                return Err(SourceError::absent("/proc/cpuinfo: it tells no frequency here"));
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
            if let Kept::Core(last) = &mut file.kept {
                cores = true;
                let sum = if counts { &mut *throttles } else { &mut *throttled_ms };
                sum.add(last, count, None);
            } else if let Kept::Package(kept) = &mut file.kept {
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
    /// The frequencies of `/proc/cpuinfo`; none where a driver tells them.
    fn of_cpuinfo(&mut self) -> Result<Spread, SourceError> {
        let mut now = Spread::default();
        let Some(file) = &mut self.cpuinfo else { return Ok(now) };
        for khz in frequencies_khz(file.read()?).map_err(|e| broken(CPUINFO, e))? {
            let khz = khz.map_err(|e| broken(CPUINFO, e))?;
            now.add(i64::try_from(khz).unwrap_or(i64::MAX));
        }
        Ok(now)
    }

    fn push_throttling(&mut self, now: Timestamp, of: &mut Of<'_>) {
        let (count, start) = self.throttles.told(now);
        of.counter(&THROTTLES, &[], count as f64, start);
        let (ms, start) = self.throttled_ms.told(now);
        of.counter(&THROTTLED, &[], ms as f64 / 1e3, start);
    }
}

fn push(now: &Spread, limits: &[Spread], of: &mut Of<'_>) {
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

/// Finds the files; the limits, which are read here.
fn walk(walk: &mut Walk<'_, Kept>) -> [Spread; LIMITS.len()] {
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
        walk.file(&path, &MEAN, &[("cpu", &cpu)], 1e-3, Kept::Nothing);
        for ((file, _), limit) in LIMITS.iter().zip(&mut limits) {
            let khz =
                walk.text(&format!("{dir}/cpufreq/{file}")).and_then(|text| text.parse().ok());
            khz.into_iter().for_each(|khz| limit.add(khz));
        }
        // A processor off line has no topology.
        let Some(package) = walk.text(&format!("{dir}/topology/physical_package_id")) else {
            continue;
        };
        let core = walk.text(&format!("{dir}/topology/core_id")).unwrap_or_else(|| cpu.clone());
        let at = |file: &str| format!("{dir}/thermal_throttle/{file}");
        let core = (package.clone(), core);
        if !cores.contains(&core) {
            let kept = || Kept::Core(None);
            walk.file(&at("core_throttle_count"), &THROTTLES, &[], 1.0, kept());
            walk.file(&at("core_throttle_total_time_ms"), &THROTTLED, &[], 1e3, kept());
            cores.push(core);
        }
        if !packages.contains(&package) {
            let (kept, labels) = (|| Kept::Package(None), [("package", &*package)]);
            walk.file(&at("package_throttle_count"), &PACKAGE_THROTTLES, &labels, 1.0, kept());
            let total = at("package_throttle_total_time_ms");
            walk.file(&total, &PACKAGE_THROTTLED, &labels, 1e3, kept());
            packages.push(package);
        }
    }
    limits
}
