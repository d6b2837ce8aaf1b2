//! Every source, one file each in `list/`. To add one: write `list/<name>.rs`, add its word below.

use crate::{Options, SourceSpec};
use kernel::Root;

macro_rules! sources {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*
        /// All sources, in the order of the manual.
        pub static SOURCES: &[&SourceSpec] = &[$(&$name::SPEC),*];
    };
}

sources! {
    cgroup,
    taskstats,
    process,
    cpu,
    memory,
    vmstat,
    load,
    disk,
    network,
    pressure,
    uptime,
    filesystem,
    rapl,
    hwmon,
    nvidia,
    amdgpu,
    thermal,
    cpufreq,
    edac,
    battery,
    infiniband,
    softirqs,
    numa,
    schedstat,
    boot,
    mounts,
    interfaces,
    users,
    sockets,
    nfs,
    lustre,
    beegfs,
    perf,
    resctrl,
    ipmi,
    exec,
}

/// Errors in a source's options that depend on this machine: the option, and the error. The values are already
/// well-formed. Starts and counts nothing.
pub fn check(spec: &SourceSpec, root: &Root, options: &Options) -> Vec<(&'static str, String)> {
    match spec.name {
        "exec" => exec::check(root, options),
        "perf" => perf::check(root, options),
        _ => Vec::new(),
    }
}

/// The source with this name.
pub fn find(name: &str) -> Option<&'static SourceSpec> {
    SOURCES.iter().find(|spec| spec.name == name).copied()
}

/// The names of events that the option `events` of the source `perf` accepts.
pub fn perf_events() -> impl Iterator<Item = &'static str> {
    perf::event_names()
}
