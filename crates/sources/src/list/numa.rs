//! NUMA nodes: memory of each node, and allocations on other nodes than wanted.
//!
//! Reads `/sys/devices/system/node/nodeN/{meminfo,numastat}` (Linux 2.6.7; Documentation/admin-guide/numastat.rst,
//! Documentation/ABI/stable/sysfs-devices-node), see [`kernel::meminfo`] and [`kernel::vmstat`]:
//!
//! ```text
//! Node 0 MemTotal:       98304000 kB
//! Node 0 MemFree:        91226112 kB
//! numa_hit 1283455
//! numa_miss 12
//! ```
//!
//! A node has the label `node`. Source `vmstat` has the sums of these events, source `memory` the total memory.

use crate::reading::table::{Row, Table, metrics};
use crate::reading::values::{Value, Values, Walk};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::meminfo::{Amount, node_meminfo};
use kernel::vmstat::vmstat;
use model::{Metric, Unit};

const DIR: &str = "sys/devices/system/node";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "numa",
    help: "Memory of each NUMA node, and allocations on other nodes than wanted.",
    reads: &["/sys/devices/system/node/node*/{meminfo,numastat}"],
    cost: "about 7 µs a node on 2 virtual cores, Linux 6.18",
    every: Every::Tick,
    metrics: &metrics(&ROWS),
    open,
    ..SourceSpec::DEFAULT
};

static ROWS: [Row; 17] = [
    bytes(&["MemTotal"], "numa_total_bytes", "Memory of the node."),
    bytes(&["MemFree"], "numa_free_bytes", "The part of numa_total_bytes that is unused."),
    bytes(
        &["FilePages"],
        "numa_cached_bytes",
        "The part of numa_total_bytes that caches files, including shared memory.",
    ),
    bytes(
        &["AnonPages"],
        "numa_anon_bytes",
        "The part of numa_total_bytes that is anonymous memory of processes.",
    ),
    bytes(&["Mapped"], "numa_mapped_bytes", "The part of numa_cached_bytes that processes map."),
    bytes(
        &["Shmem"],
        "numa_shared_bytes",
        "The part of numa_cached_bytes that is shared memory or tmpfs.",
    ),
    bytes(
        &["Dirty"],
        "numa_dirty_bytes",
        "The part of numa_cached_bytes waiting to be written to a disk.",
    ),
    bytes(
        &["Slab"],
        "numa_slab_bytes",
        "The part of numa_total_bytes with the kernel's own structures.",
    ),
    bytes(
        &["AnonHugePages"],
        "numa_anon_huge_bytes",
        "The part of numa_anon_bytes in transparent huge pages.",
    ),
    pages(&["HugePages_Total"], "numa_huge_pages", "Huge pages of the pool on the node."),
    pages(
        &["HugePages_Free"],
        "numa_huge_pages_free",
        "The part of numa_huge_pages that is not allocated.",
    ),
    events(&["numa_hit"], "numa_hits_total", "Pages allocated on the node as wanted."),
    events(
        &["numa_miss"],
        "numa_misses_total",
        "Pages allocated on the node because the wanted node had none.",
    ),
    events(
        &["numa_foreign"],
        "numa_foreign_total",
        "Pages wanted on the node but allocated on another: each is a miss there.",
    ),
    events(
        &["interleave_hit"],
        "numa_interleave_hits_total",
        "The part of numa_hits_total that was interleaved over nodes.",
    ),
    events(
        &["local_node"],
        "numa_local_total",
        "Pages allocated on the node by a process running on it.",
    ),
    events(
        &["other_node"],
        "numa_remote_total",
        "Pages allocated on the node by a process running on another.",
    ),
];

const fn bytes(names: &'static [&'static str], metric: &'static str, help: &'static str) -> Row {
    Row { names, metric: Metric::gauge(metric, Unit::Bytes, help) }
}

const fn pages(names: &'static [&'static str], metric: &'static str, help: &'static str) -> Row {
    Row { names, metric: Metric::gauge(metric, Unit::Count, help) }
}

const fn events(names: &'static [&'static str], metric: &'static str, help: &'static str) -> Row {
    Row { names, metric: Metric::counter(metric, Unit::Count, help) }
}

/// Which file of a node.
#[derive(Clone, Copy, Debug)]
enum File {
    Meminfo,
    Numastat,
}

struct Numa {
    files: Values<File>,
    table: Table,
}

fn open(_: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    Ok(Box::new(Numa { files: Values::default(), table: Table::new(&ROWS) }))
}

impl Source for Numa {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let absent = "/sys/devices/system/node: no node; needs a kernel with CONFIG_NUMA";
        self.files.look(cx.root, cx.now, absent, walk)?;
        let table = &mut self.table;
        let mut of = out.of_device();
        let read = self.files.each_text(|file, text| {
            table.begin();
            match file.kept {
                File::Meminfo => meminfo(table, file, text)?,
                File::Numastat => numastat(table, file, text)?,
            }
            file.labelled(|labels| table.push_of(&mut of, labels, cx.boot));
            Ok(())
        });
        read.state("nodes", out)
    }
}

fn meminfo(table: &mut Table, file: &Value<File>, text: &[u8]) -> Result<(), SourceError> {
    for line in node_meminfo(text).map_err(|e| file.broken(e))? {
        let line = line.map_err(|e| file.broken(e))?;
        let Some(row) = table.row(line.name) else { continue };
        match (line.amount, row.unit()) {
            (Amount::KibiBytes(kib), Unit::Bytes) => row.add(kib.saturating_mul(1024)),
            (Amount::Count(count), Unit::Count) => row.add(count),
            _ => {
                return Err(
                    file.broken(format_args!("`{}` has another unit", line.name.escape_ascii()))
                );
            }
        }
    }
    Ok(())
}

fn numastat(table: &mut Table, file: &Value<File>, text: &[u8]) -> Result<(), SourceError> {
    for line in vmstat(text).map_err(|e| file.broken(e))? {
        let (name, number) = line.map_err(|e| file.broken(e))?;
        if let Some(row) = table.row(name) {
            row.add(number);
        }
    }
    Ok(())
}

fn walk(walk: &mut Walk<'_, File>) {
    for entry in walk.names(DIR) {
        let Some(node) = entry.strip_prefix("node") else { continue };
        if node.is_empty() || !node.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let labels = [("node", node)];
        for (name, kept) in [("meminfo", File::Meminfo), ("numastat", File::Numastat)] {
            walk.table(&format!("{DIR}/{entry}/{name}"), &labels, kept);
        }
    }
}
