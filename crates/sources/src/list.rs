//! Every source, one file each in `list/`. To add one: write `list/<name>.rs`, add its word below.

use crate::SourceSpec;

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

/// The source with this name.
pub fn find(name: &str) -> Option<&'static SourceSpec> {
    SOURCES.iter().find(|spec| spec.name == name).copied()
}

/// The names of events that the option `events` of the source `perf` accepts.
pub fn perf_events() -> impl Iterator<Item = &'static str> {
    perf::event_names()
}
