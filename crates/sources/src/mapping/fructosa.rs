//! FrUCToSA: its 20 sensors, which call psutil, by the fields of psutil 7.2.

use super::{Group, grows, is, label, not};

/// In the order of FrUCToSA's manual.
pub(super) const GROUPS: &[&Group] = &[
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
    note: "`cpu_percent(percpu=True)`, for each processor N; needs the option `cores` of the source cpu.",
    rows: &[grows(
        "N",
        "100 - 100 * (cpu_core_idle_seconds_total{cpu=\"N\"} + cpu_core_iowait_seconds_total{cpu=\"N\"}) / (cpu_core_user_seconds_total{cpu=\"N\"} + cpu_core_nice_seconds_total{cpu=\"N\"} + cpu_core_system_seconds_total{cpu=\"N\"} + cpu_core_idle_seconds_total{cpu=\"N\"} + cpu_core_iowait_seconds_total{cpu=\"N\"} + cpu_core_irq_seconds_total{cpu=\"N\"} + cpu_core_softirq_seconds_total{cpu=\"N\"} + cpu_core_steal_seconds_total{cpu=\"N\"})",
    )],
};

static VIRTUAL_MEMORY: Group = Group {
    name: "VirtualMemory",
    note: "`virtual_memory()`",
    rows: &[
        is("total", "memory_total_bytes"),
        is("available", "memory_available_bytes"),
        is("percent", "100 - 100 * memory_available_bytes / memory_total_bytes"),
        is("used", "memory_total_bytes - memory_available_bytes"),
        is("free", "memory_free_bytes"),
        is("active", "memory_active_bytes"),
        is("inactive", "memory_inactive_bytes"),
        is("buffers", "memory_buffers_bytes"),
        is("cached", "memory_cached_bytes + memory_slab_reclaimable_bytes"),
        is("shared", "memory_shared_bytes"),
        is("slab", "memory_slab_bytes"),
    ],
};

static CPU_TIMES: Group = Group {
    name: "CPUTimes",
    note: "`cpu_times()`",
    rows: &[
        is("user", "cpu_user_seconds_total"),
        is("nice", "cpu_nice_seconds_total"),
        is("system", "cpu_system_seconds_total"),
        is("idle", "cpu_idle_seconds_total"),
        is("iowait", "cpu_iowait_seconds_total"),
        is("irq", "cpu_irq_seconds_total"),
        is("softirq", "cpu_softirq_seconds_total"),
        is("steal", "cpu_steal_seconds_total"),
        is("guest", "cpu_user_guest_seconds_total"),
        is("guest_nice", "cpu_nice_guest_seconds_total"),
    ],
};

static CPU_TIMES_PERCENT: Group = Group {
    name: "CPUTimesPercent",
    note: "`cpu_times_percent()`",
    rows: &[
        grows(
            "user",
            "100 * cpu_user_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "nice",
            "100 * cpu_nice_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "system",
            "100 * cpu_system_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "idle",
            "100 * cpu_idle_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "iowait",
            "100 * cpu_iowait_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "irq",
            "100 * cpu_irq_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "softirq",
            "100 * cpu_softirq_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "steal",
            "100 * cpu_steal_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "guest",
            "100 * cpu_user_guest_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
        grows(
            "guest_nice",
            "100 * cpu_nice_guest_seconds_total / (cpu_user_seconds_total + cpu_nice_seconds_total + cpu_system_seconds_total + cpu_idle_seconds_total + cpu_iowait_seconds_total + cpu_irq_seconds_total + cpu_softirq_seconds_total + cpu_steal_seconds_total)",
        ),
    ],
};

static CPU_COUNT: Group =
    Group { name: "CPUCount", note: "`cpu_count()`", rows: &[is("value", "cpu_online")] };

static CPU_STATS: Group = Group {
    name: "CPUStats",
    note: "`cpu_stats()`",
    rows: &[
        is("ctx_switches", "cpu_context_switches_total"),
        is("interrupts", "cpu_interrupts_total"),
        is("soft_interrupts", "cpu_soft_interrupts_total"),
        not("syscalls", "Linux does not report it; psutil always returns 0"),
    ],
};

static CPU_FREQ: Group = Group {
    name: "CPUFreq",
    note: "`cpu_freq()`, in MHz; psutil returns 0 for unknown limits, ours have no value.",
    rows: &[
        is("current", "cpufreq_mean_hertz / 1000000"),
        is("min", "cpufreq_limit_low_hertz / 1000000"),
        is("max", "cpufreq_limit_high_hertz / 1000000"),
    ],
};

static SWAP_MEMORY: Group = Group {
    name: "SwapMemory",
    note: "`swap_memory()`; psutil assumes pages of 4096 bytes.",
    rows: &[
        is("total", "memory_swap_total_bytes"),
        is("used", "memory_swap_total_bytes - memory_swap_free_bytes"),
        is("free", "memory_swap_free_bytes"),
        is("percent", "100 - 100 * memory_swap_free_bytes / memory_swap_total_bytes"),
        is("sin", "vmstat_swapped_in_pages_total * 4096"),
        is("sout", "vmstat_swapped_out_pages_total * 4096"),
    ],
};

static DISK_PARTITIONS: Group = Group {
    name: "DiskPartitions",
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
    note: "`disk_usage(\"/\")`",
    rows: &[
        is("total", "filesystem_size_bytes{mount=\"/\"}"),
        is("used", "(filesystem_size_bytes{mount=\"/\"} - filesystem_free_bytes{mount=\"/\"})"),
        is("free", "filesystem_available_bytes{mount=\"/\"}"),
        is(
            "percent",
            "100 * (filesystem_size_bytes{mount=\"/\"} - filesystem_free_bytes{mount=\"/\"}) / ((filesystem_size_bytes{mount=\"/\"} - filesystem_free_bytes{mount=\"/\"}) + filesystem_available_bytes{mount=\"/\"})",
        ),
    ],
};

static DISK_IO: Group = Group {
    name: "DiskIOCounters",
    note: "`disk_io_counters()`, sum over all disks.",
    rows: &[
        is("read_count", "disk_reads_total"),
        is("write_count", "disk_writes_total"),
        is("read_bytes", "disk_read_bytes_total"),
        is("write_bytes", "disk_write_bytes_total"),
        is("read_time", "disk_read_seconds_total * 1000"),
        is("write_time", "disk_write_seconds_total * 1000"),
        is("read_merged_count", "disk_reads_merged_total"),
        is("write_merged_count", "disk_writes_merged_total"),
        is("busy_time", "disk_busy_seconds_total * 1000"),
    ],
};

static NET_IO: Group = Group {
    name: "NetIOCounters",
    note: "`net_io_counters()`, sum over all interfaces; needs `include = \"*\"` of the source network, because its default leaves out interfaces without hardware.",
    rows: &[
        is("bytes_sent", "network_transmitted_bytes_total"),
        is("bytes_recv", "network_received_bytes_total"),
        is("packets_sent", "network_transmitted_packets_total"),
        is("packets_recv", "network_received_packets_total"),
        is("errin", "network_received_errors_total"),
        is("errout", "network_transmitted_errors_total"),
        is("dropin", "network_received_dropped_total"),
        is("dropout", "network_transmitted_dropped_total"),
    ],
};

static NET_CONNECTIONS: Group = Group {
    name: "NetConnections",
    note: "`net_connections()`; ours count the sockets of each state.",
    rows: &[
        not("fd", "a list of connections is personal data, not a measurement"),
        not("family", "IPv4 and IPv6 are counted together"),
        not("type", "`sockets_tcp`, `sockets_udp` and `sockets_raw` are metrics of their own"),
        not("laddr", "a list of connections is personal data, not a measurement"),
        not("raddr", "a list of connections is personal data, not a measurement"),
        label("status", "sockets_tcp_in_state", "state"),
        not("pid", "a list of connections is personal data, not a measurement"),
    ],
};

static NET_IF_ADDRS: Group = Group {
    name: "NetIFAddrs",
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
    note: "`net_if_stats()`, for each interface; the speed in megabits per second. psutil returns 0 for unknown values, ours have no value.",
    rows: &[
        is("isup", "interfaces_up"),
        is("duplex", "1 + interfaces_full_duplex"),
        is("speed", "interfaces_bytes_per_second * 8 / 1000000"),
        is("mtu", "interfaces_mtu_bytes"),
        not("flags", "flags of the kernel; `isup` shows whether it is up"),
    ],
};

static SENSORS_TEMPERATURES: Group = Group {
    name: "SensorsTemperatures",
    note: "`sensors_temperatures()`, for each chip.",
    rows: &[
        label("label", "hwmon_temperature_celsius", "label"),
        is("current", "hwmon_temperature_celsius"),
        not("high", "a limit of the chip's maker, not a measurement"),
        not("critical", "a limit of the chip's maker, not a measurement"),
    ],
};

static SENSORS_FANS: Group = Group {
    name: "SensorsFans",
    note: "`sensors_fans()`, for each chip; in revolutions per minute.",
    rows: &[label("label", "hwmon_fan_hertz", "label"), is("current", "hwmon_fan_hertz * 60")],
};

static SENSORS_BATTERY: Group = Group {
    name: "SensorsBattery",
    note: "`sensors_battery()`",
    rows: &[
        is("percent", "100 * battery_charge_ratio"),
        is("secsleft", "battery_energy_joules / battery_power_watts"),
        is("power_plugged", "battery_mains_online"),
    ],
};

static BOOT_TIME: Group = Group {
    name: "BootTime",
    note: "`boot_time()`",
    rows: &[is("value", "uptime_boot_time_seconds")],
};

static USERS: Group = Group {
    name: "Users",
    note: "`users()`, for each session.",
    rows: &[
        label("name", "users_session_since_seconds", "user"),
        label("terminal", "users_session_since_seconds", "terminal"),
        label("host", "users_session_since_seconds", "host"),
        is("started", "users_session_since_seconds"),
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
