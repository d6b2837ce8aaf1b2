//! FrUCToSA: its 20 sensors, which call psutil, by the fields of psutil 7.2.

use crate::equivalent::{Group, Scope, grows, is, label, not};
use crate::formula::Formula::{
    self, Difference, Each, Metric, Number, Product, Quotient, Selected, Sum,
};

/// The time of all processors.
const CPU_TIME: Formula = Sum(&[
    Metric("cpu_user_seconds_total"),
    Metric("cpu_nice_seconds_total"),
    Metric("cpu_system_seconds_total"),
    Metric("cpu_idle_seconds_total"),
    Metric("cpu_iowait_seconds_total"),
    Metric("cpu_irq_seconds_total"),
    Metric("cpu_softirq_seconds_total"),
    Metric("cpu_steal_seconds_total"),
]);
/// The time of one processor.
const CORE_TIME: Formula = Sum(&[
    core("cpu_core_user_seconds_total"),
    core("cpu_core_nice_seconds_total"),
    core("cpu_core_system_seconds_total"),
    core("cpu_core_idle_seconds_total"),
    core("cpu_core_iowait_seconds_total"),
    core("cpu_core_irq_seconds_total"),
    core("cpu_core_softirq_seconds_total"),
    core("cpu_core_steal_seconds_total"),
]);
/// Used bytes of the root file system.
const ROOT_USED: Formula = Difference(
    &Selected("filesystem_size_bytes", "mount", "/"),
    &Selected("filesystem_free_bytes", "mount", "/"),
);
/// Why a field of a connection has no equivalent.
const PERSONAL: &str = "a list of connections is personal data, not a measurement";
/// Why a limit of a sensor has no equivalent.
const MAKERS_LIMIT: &str = "a limit of the chip's maker, not a measurement";

/// A metric of the processor that the name stands for.
const fn core(metric: &'static str) -> Formula {
    Each(metric, "cpu", "N")
}

/// In the order of FrUCToSA's manual.
pub const GROUPS: &[&Group] = &[
    &CPU_PERCENT,
    &VIRTUAL_MEMORY,
    &CPU_TIMES,
    &CPU_TIMES_PERCENT,
    &CPU_COUNT,
    &CPU_STATS,
    &CPU_FREQ,
    &SWAP_MEMORY,
    &DISK_PARTITIONS,
    &DISK_USAGE,
    &DISK_IO,
    &NET_IO,
    &NET_CONNECTIONS,
    &NET_IF_ADDRS,
    &NET_IF_STATS,
    &SENSORS_TEMPERATURES,
    &SENSORS_FANS,
    &SENSORS_BATTERY,
    &BOOT_TIME,
    &USERS,
];

static CPU_PERCENT: Group = Group {
    name: "CPUPercent",
    scope: Scope::Node,
    note: "`cpu_percent(percpu=True)`, for each processor N; needs the option `cores` of the source cpu.",
    rows: &[grows(
        "N",
        Difference(
            &Number(100),
            &Quotient(
                &Product(
                    &Number(100),
                    &Sum(&[
                        core("cpu_core_idle_seconds_total"),
                        core("cpu_core_iowait_seconds_total"),
                    ]),
                ),
                &CORE_TIME,
            ),
        ),
    )],
};

static VIRTUAL_MEMORY: Group = Group {
    name: "VirtualMemory",
    scope: Scope::Node,
    note: "`virtual_memory()`",
    rows: &[
        is("total", Metric("memory_total_bytes")),
        is("available", Metric("memory_available_bytes")),
        is(
            "percent",
            Difference(
                &Number(100),
                &Quotient(
                    &Product(&Number(100), &Metric("memory_available_bytes")),
                    &Metric("memory_total_bytes"),
                ),
            ),
        ),
        is("used", Difference(&Metric("memory_total_bytes"), &Metric("memory_available_bytes"))),
        is("free", Metric("memory_free_bytes")),
        is("active", Metric("memory_active_bytes")),
        is("inactive", Metric("memory_inactive_bytes")),
        is("buffers", Metric("memory_buffers_bytes")),
        is(
            "cached",
            Sum(&[Metric("memory_cached_bytes"), Metric("memory_slab_reclaimable_bytes")]),
        ),
        is("shared", Metric("memory_shared_bytes")),
        is("slab", Metric("memory_slab_bytes")),
    ],
};

static CPU_TIMES: Group = Group {
    name: "CPUTimes",
    scope: Scope::Node,
    note: "`cpu_times()`",
    rows: &[
        is("user", Metric("cpu_user_seconds_total")),
        is("nice", Metric("cpu_nice_seconds_total")),
        is("system", Metric("cpu_system_seconds_total")),
        is("idle", Metric("cpu_idle_seconds_total")),
        is("iowait", Metric("cpu_iowait_seconds_total")),
        is("irq", Metric("cpu_irq_seconds_total")),
        is("softirq", Metric("cpu_softirq_seconds_total")),
        is("steal", Metric("cpu_steal_seconds_total")),
        is("guest", Metric("cpu_user_guest_seconds_total")),
        is("guest_nice", Metric("cpu_nice_guest_seconds_total")),
    ],
};

static CPU_TIMES_PERCENT: Group = Group {
    name: "CPUTimesPercent",
    scope: Scope::Node,
    note: "`cpu_times_percent()`",
    rows: &[
        grows(
            "user",
            Quotient(&Product(&Number(100), &Metric("cpu_user_seconds_total")), &CPU_TIME),
        ),
        grows(
            "nice",
            Quotient(&Product(&Number(100), &Metric("cpu_nice_seconds_total")), &CPU_TIME),
        ),
        grows(
            "system",
            Quotient(&Product(&Number(100), &Metric("cpu_system_seconds_total")), &CPU_TIME),
        ),
        grows(
            "idle",
            Quotient(&Product(&Number(100), &Metric("cpu_idle_seconds_total")), &CPU_TIME),
        ),
        grows(
            "iowait",
            Quotient(&Product(&Number(100), &Metric("cpu_iowait_seconds_total")), &CPU_TIME),
        ),
        grows("irq", Quotient(&Product(&Number(100), &Metric("cpu_irq_seconds_total")), &CPU_TIME)),
        grows(
            "softirq",
            Quotient(&Product(&Number(100), &Metric("cpu_softirq_seconds_total")), &CPU_TIME),
        ),
        grows(
            "steal",
            Quotient(&Product(&Number(100), &Metric("cpu_steal_seconds_total")), &CPU_TIME),
        ),
        grows(
            "guest",
            Quotient(&Product(&Number(100), &Metric("cpu_user_guest_seconds_total")), &CPU_TIME),
        ),
        grows(
            "guest_nice",
            Quotient(&Product(&Number(100), &Metric("cpu_nice_guest_seconds_total")), &CPU_TIME),
        ),
    ],
};

static CPU_COUNT: Group = Group {
    name: "CPUCount",
    scope: Scope::Node,
    note: "`cpu_count()`",
    rows: &[is("value", Metric("cpu_online"))],
};

static CPU_STATS: Group = Group {
    name: "CPUStats",
    scope: Scope::Node,
    note: "`cpu_stats()`",
    rows: &[
        is("ctx_switches", Metric("cpu_context_switches_total")),
        is("interrupts", Metric("cpu_interrupts_total")),
        is("soft_interrupts", Metric("cpu_soft_interrupts_total")),
        not("syscalls", "Linux does not report it; psutil always returns 0"),
    ],
};

static CPU_FREQ: Group = Group {
    name: "CPUFreq",
    scope: Scope::Node,
    note: "`cpu_freq()`, in MHz; psutil returns 0 for unknown limits, ours have no value.",
    rows: &[
        is("current", Quotient(&Metric("cpufreq_mean_hertz"), &Number(1_000_000))),
        is("min", Quotient(&Metric("cpufreq_limit_low_hertz"), &Number(1_000_000))),
        is("max", Quotient(&Metric("cpufreq_limit_high_hertz"), &Number(1_000_000))),
    ],
};

static SWAP_MEMORY: Group = Group {
    name: "SwapMemory",
    scope: Scope::Node,
    note: "`swap_memory()`; psutil assumes pages of 4096 bytes.",
    rows: &[
        is("total", Metric("memory_swap_total_bytes")),
        is(
            "used",
            Difference(&Metric("memory_swap_total_bytes"), &Metric("memory_swap_free_bytes")),
        ),
        is("free", Metric("memory_swap_free_bytes")),
        is(
            "percent",
            Difference(
                &Number(100),
                &Quotient(
                    &Product(&Number(100), &Metric("memory_swap_free_bytes")),
                    &Metric("memory_swap_total_bytes"),
                ),
            ),
        ),
        is("sin", Product(&Metric("vmstat_swapped_in_pages_total"), &Number(4096))),
        is("sout", Product(&Metric("vmstat_swapped_out_pages_total"), &Number(4096))),
    ],
};

static DISK_PARTITIONS: Group = Group {
    name: "DiskPartitions",
    scope: Scope::Node,
    note: "`disk_partitions()`",
    rows: &[
        label("device", "mounts_on_disk", "device"),
        label("mountpoint", "mounts_on_disk", "mount"),
        label("fstype", "mounts_on_disk", "type"),
        label("opts", "mounts_on_disk", "options"),
    ],
};

static DISK_USAGE: Group = Group {
    name: "DiskUsage",
    scope: Scope::Node,
    note: "`disk_usage(\"/\")`",
    rows: &[
        is("total", Selected("filesystem_size_bytes", "mount", "/")),
        is("used", ROOT_USED),
        is("free", Selected("filesystem_available_bytes", "mount", "/")),
        is(
            "percent",
            Quotient(
                &Product(&Number(100), &ROOT_USED),
                &Sum(&[ROOT_USED, Selected("filesystem_available_bytes", "mount", "/")]),
            ),
        ),
    ],
};

static DISK_IO: Group = Group {
    name: "DiskIOCounters",
    scope: Scope::Node,
    note: "`disk_io_counters()`, sum over all disks.",
    rows: &[
        is("read_count", Metric("disk_reads_total")),
        is("write_count", Metric("disk_writes_total")),
        is("read_bytes", Metric("disk_read_bytes_total")),
        is("write_bytes", Metric("disk_write_bytes_total")),
        is("read_time", Product(&Metric("disk_read_seconds_total"), &Number(1000))),
        is("write_time", Product(&Metric("disk_write_seconds_total"), &Number(1000))),
        is("read_merged_count", Metric("disk_reads_merged_total")),
        is("write_merged_count", Metric("disk_writes_merged_total")),
        is("busy_time", Product(&Metric("disk_busy_seconds_total"), &Number(1000))),
    ],
};

static NET_IO: Group = Group {
    name: "NetIOCounters",
    scope: Scope::Node,
    note: "`net_io_counters()`, sum over all interfaces; needs `include = \"*\"` of the source network, because its default leaves out interfaces without hardware.",
    rows: &[
        is("bytes_sent", Metric("network_transmitted_bytes_total")),
        is("bytes_recv", Metric("network_received_bytes_total")),
        is("packets_sent", Metric("network_transmitted_packets_total")),
        is("packets_recv", Metric("network_received_packets_total")),
        is("errin", Metric("network_received_errors_total")),
        is("errout", Metric("network_transmitted_errors_total")),
        is("dropin", Metric("network_received_dropped_total")),
        is("dropout", Metric("network_transmitted_dropped_total")),
    ],
};

static NET_CONNECTIONS: Group = Group {
    name: "NetConnections",
    scope: Scope::Node,
    note: "`net_connections()`; ours count the sockets of each state.",
    rows: &[
        not("fd", PERSONAL),
        not("family", "IPv4 and IPv6 are counted together"),
        not("type", "`sockets_tcp`, `sockets_udp` and `sockets_raw` are metrics of their own"),
        not("laddr", PERSONAL),
        not("raddr", PERSONAL),
        label("status", "sockets_tcp_in_state", "state"),
        not("pid", PERSONAL),
    ],
};

static NET_IF_ADDRS: Group = Group {
    name: "NetIFAddrs",
    scope: Scope::Node,
    note: "`net_if_addrs()`, for each interface, the netmask as prefix length; needs `include = \"*\"` of the source interfaces.",
    rows: &[
        not(
            "family",
            "the text of an address shows whether it is IPv4 or IPv6; hardware addresses are the label `address` of `interfaces_hardware`",
        ),
        label("address", "interfaces_address", "address"),
        label("netmask", "interfaces_address", "prefix"),
        not("broadcast", "follows from address and prefix"),
        not("ptp", "the other end of a tunnel is not a measurement of this node"),
    ],
};

static NET_IF_STATS: Group = Group {
    name: "NetIFStats",
    scope: Scope::Node,
    note: "`net_if_stats()`, for each interface; the speed in megabits per second. psutil returns 0 for unknown values, ours have no value.",
    rows: &[
        is("isup", Metric("interfaces_up")),
        is("duplex", Sum(&[Number(1), Metric("interfaces_full_duplex")])),
        is(
            "speed",
            Quotient(
                &Product(&Metric("interfaces_bytes_per_second"), &Number(8)),
                &Number(1_000_000),
            ),
        ),
        is("mtu", Metric("interfaces_mtu_bytes")),
        not("flags", "flags of the kernel; `isup` shows whether it is up"),
    ],
};

static SENSORS_TEMPERATURES: Group = Group {
    name: "SensorsTemperatures",
    scope: Scope::Node,
    note: "`sensors_temperatures()`, for each chip.",
    rows: &[
        label("label", "hwmon_temperature_celsius", "label"),
        is("current", Metric("hwmon_temperature_celsius")),
        not("high", MAKERS_LIMIT),
        not("critical", MAKERS_LIMIT),
    ],
};

static SENSORS_FANS: Group = Group {
    name: "SensorsFans",
    scope: Scope::Node,
    note: "`sensors_fans()`, for each chip; in revolutions per minute.",
    rows: &[
        label("label", "hwmon_fan_hertz", "label"),
        is("current", Product(&Metric("hwmon_fan_hertz"), &Number(60))),
    ],
};

static SENSORS_BATTERY: Group = Group {
    name: "SensorsBattery",
    scope: Scope::Node,
    note: "`sensors_battery()`",
    rows: &[
        is("percent", Product(&Number(100), &Metric("battery_charge_ratio"))),
        is("secsleft", Quotient(&Metric("battery_energy_joules"), &Metric("battery_power_watts"))),
        is("power_plugged", Metric("battery_mains_online")),
    ],
};

static BOOT_TIME: Group = Group {
    name: "BootTime",
    scope: Scope::Node,
    note: "`boot_time()`",
    rows: &[is("value", Metric("uptime_boot_time_seconds"))],
};

static USERS: Group = Group {
    name: "Users",
    scope: Scope::Node,
    note: "`users()`, for each session.",
    rows: &[
        label("name", "users_session_since_seconds", "user"),
        label("terminal", "users_session_since_seconds", "terminal"),
        label("host", "users_session_since_seconds", "host"),
        is("started", Metric("users_session_since_seconds")),
        label("pid", "users_session_since_seconds", "process"),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    /// `tests/node/sensors.rs` reads every field that psutil returns.
    #[test]
    fn there_are_twenty_sensors() {
        assert_eq!(GROUPS.len(), 20);
    }
}
