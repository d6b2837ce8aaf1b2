//! Memory management: paging, faults, swap, reclaim, refaults, NUMA, huge pages, out-of-memory kills.
//!
//! Reads `/proc/vmstat` (any Linux; proc_vmstat(5), include/linux/vm_event_item.h), see [`kernel::vmstat`]:
//!
//! ```text
//! pgpgin 4867981
//! pswpin 0
//! pgfault 12482830
//! oom_kill 0
//! ```
//!
//! The kernel writes some 200 lines; the table below lists the metrics. Left out are pages by their present
//! use (`nr_…`, which `/proc/meminfo` has in bytes), and details of the allocator, of reclaim and of huge
//! pages that only kernel developers need. Where the kernel counts by memory zone (`allocstall_dma32`,
//! `allocstall_normal`, …), the metric is the sum. `pgpgin` and `pgpgout` have units of 1024 bytes; counts of
//! pages refer to the machine's smallest page size. A line that the kernel does not write gives no sample.

use crate::reading::file::{TickFile, broken};
use crate::reading::table::{Row, Table, metrics};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::vmstat::vmstat;
use model::{Metric, Unit};

const PATH: &str = "proc/vmstat";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "vmstat",
    help: "Paging, faults, swap, reclaim, refaults, NUMA, huge pages and out-of-memory kills.",
    reads: &["/proc/vmstat"],
    cost: "about 17 µs on 2 virtual cores, Linux 6.18, mostly for the kernel to write 200 lines",
    every: Every::Tick,
    metrics: &METRICS,
    open,
    ..SourceSpec::DEFAULT
};

static METRICS: [&Metric; ROWS.len()] = metrics(&ROWS);

const fn count(names: &'static [&'static str], metric: &'static str, help: &'static str) -> Row {
    Row { names, metric: Metric::counter(metric, Unit::Count, help) }
}

/// Only for `pgpgin` and `pgpgout`, which the kernel counts in units of 1024 bytes.
const fn bytes(names: &'static [&'static str], metric: &'static str, help: &'static str) -> Row {
    Row { names, metric: Metric::counter(metric, Unit::Bytes, help) }
}

static ROWS: [Row; 49] = [
    bytes(
        &["pgpgin"],
        "vmstat_paged_in_bytes_total",
        "Bytes read from block devices, by files and swap.",
    ),
    bytes(
        &["pgpgout"],
        "vmstat_paged_out_bytes_total",
        "Bytes written to block devices, by files and swap.",
    ),
    count(&["pswpin"], "vmstat_swapped_in_pages_total", "Pages read back from swap."),
    count(&["pswpout"], "vmstat_swapped_out_pages_total", "Pages written to swap."),
    count(
        &["zswpin"],
        "vmstat_zswapped_in_pages_total",
        "Pages read back from compressed swap in memory.",
    ),
    count(
        &["zswpout"],
        "vmstat_zswapped_out_pages_total",
        "Pages written to compressed swap in memory.",
    ),
    count(
        &["pgfault"],
        "vmstat_page_faults_total",
        "Page faults, including those that waited for a disk.",
    ),
    count(
        &["pgmajfault"],
        "vmstat_major_page_faults_total",
        "The part of vmstat_page_faults_total that waited for a disk.",
    ),
    count(
        &["oom_kill"],
        "vmstat_oom_kills_total",
        "Processes killed by the OOM killer, for lack of memory of the node or at a limit of their cgroup.",
    ),
    count(
        &["workingset_refault_anon"],
        "vmstat_anon_refaults_total",
        "Pages of no file that were reclaimed and needed again soon: a sign of too little memory.",
    ),
    count(
        &["workingset_refault_file", "workingset_refault"],
        "vmstat_file_refaults_total",
        "Cached pages of files that were reclaimed and needed again soon: a sign of too little memory.",
    ),
    count(&["nr_dirtied"], "vmstat_dirtied_pages_total", "Cached pages that were changed."),
    count(&["nr_written"], "vmstat_written_pages_total", "Cached pages that were written to disk."),
    count(
        &[
            "allocstall",
            "allocstall_dma",
            "allocstall_dma32",
            "allocstall_normal",
            "allocstall_high",
            "allocstall_movable",
            "allocstall_device",
        ],
        "vmstat_allocation_stalls_total",
        "Times that a task had to reclaim memory before an allocation.",
    ),
    count(&["pageoutrun"], "vmstat_kswapd_runs_total", "Runs of the kernel's reclaim thread."),
    count(
        &["pgscan_kswapd"],
        "vmstat_kswapd_scanned_pages_total",
        "Pages scanned by the kernel's reclaim thread.",
    ),
    count(
        &["pgscan_direct"],
        "vmstat_direct_scanned_pages_total",
        "Pages scanned by tasks that waited for memory.",
    ),
    count(
        &["pgscan_khugepaged"],
        "vmstat_khugepaged_scanned_pages_total",
        "Pages scanned to reclaim them for a huge page.",
    ),
    count(
        &["pgscan_proactive"],
        "vmstat_proactive_scanned_pages_total",
        "Pages scanned because of a write to memory.reclaim of a cgroup.",
    ),
    count(
        &["pgsteal_kswapd"],
        "vmstat_kswapd_reclaimed_pages_total",
        "Pages that the kernel's reclaim thread reclaimed.",
    ),
    count(
        &["pgsteal_direct"],
        "vmstat_direct_reclaimed_pages_total",
        "Pages that tasks waiting for memory reclaimed.",
    ),
    count(
        &["pgsteal_khugepaged"],
        "vmstat_khugepaged_reclaimed_pages_total",
        "Pages reclaimed for a huge page.",
    ),
    count(
        &["pgsteal_proactive"],
        "vmstat_proactive_reclaimed_pages_total",
        "Pages reclaimed because of a write to memory.reclaim of a cgroup.",
    ),
    count(
        &["slabs_scanned"],
        "vmstat_slab_scanned_objects_total",
        "Cached objects of the kernel scanned to reclaim them.",
    ),
    count(
        &["drop_pagecache"],
        "vmstat_page_cache_drops_total",
        "Times that an administrator dropped the page cache.",
    ),
    count(
        &["drop_slab"],
        "vmstat_slab_drops_total",
        "Times that an administrator dropped the kernel's cached objects.",
    ),
    count(
        &["pgactivate"],
        "vmstat_activated_pages_total",
        "Pages moved to the list of recently used pages.",
    ),
    count(
        &["pgdeactivate"],
        "vmstat_deactivated_pages_total",
        "Pages removed from the list of recently used pages.",
    ),
    count(&["numa_hit"], "vmstat_numa_hit_pages_total", "Pages allocated on the wanted NUMA node."),
    count(
        &["numa_miss"],
        "vmstat_numa_miss_pages_total",
        "Pages allocated on another NUMA node than wanted, counted there; over the node equal to vmstat_numa_foreign_pages_total.",
    ),
    count(
        &["numa_foreign"],
        "vmstat_numa_foreign_pages_total",
        "Pages allocated on another NUMA node than wanted, counted at the wanted one.",
    ),
    count(
        &["numa_interleave"],
        "vmstat_numa_interleaved_pages_total",
        "Pages allocated on the NUMA node chosen by an interleaving policy.",
    ),
    count(
        &["numa_local"],
        "vmstat_numa_local_pages_total",
        "Pages allocated on the NUMA node of the requesting processor.",
    ),
    count(
        &["numa_other"],
        "vmstat_numa_other_pages_total",
        "Pages allocated on another NUMA node than that of the requesting processor.",
    ),
    count(
        &["numa_pte_updates"],
        "vmstat_numa_marked_pages_total",
        "Pages marked to see which NUMA node uses them.",
    ),
    count(
        &["numa_hint_faults"],
        "vmstat_numa_hint_faults_total",
        "Faults on pages marked to see which NUMA node uses them.",
    ),
    count(
        &["numa_hint_faults_local"],
        "vmstat_numa_local_hint_faults_total",
        "The part of vmstat_numa_hint_faults_total that came from the page's own NUMA node.",
    ),
    count(
        &["numa_pages_migrated"],
        "vmstat_numa_migrated_pages_total",
        "Pages moved to the NUMA node that uses them.",
    ),
    count(&["pgmigrate_success"], "vmstat_migrated_pages_total", "Pages moved, for any reason."),
    count(&["pgmigrate_fail"], "vmstat_unmigrated_pages_total", "Pages that could not be moved."),
    count(
        &["pgpromote_success"],
        "vmstat_promoted_pages_total",
        "Pages moved from slow memory to fast.",
    ),
    count(
        &["pgdemote_kswapd", "pgdemote_direct", "pgdemote_khugepaged", "pgdemote_proactive"],
        "vmstat_demoted_pages_total",
        "Pages moved from fast memory to slow.",
    ),
    count(
        &["compact_stall"],
        "vmstat_compaction_stalls_total",
        "Times that a task had to compact memory before a large allocation.",
    ),
    count(
        &["compact_success"],
        "vmstat_compaction_successes_total",
        "The stalls of vmstat_compaction_stalls_total that freed enough contiguous memory.",
    ),
    count(
        &["compact_fail"],
        "vmstat_compaction_failures_total",
        "The stalls of vmstat_compaction_stalls_total that did not free enough contiguous memory.",
    ),
    count(
        &["thp_fault_alloc"],
        "vmstat_thp_faults_total",
        "Page faults that got a transparent huge page.",
    ),
    count(
        &["thp_fault_fallback"],
        "vmstat_thp_fault_fallbacks_total",
        "Page faults that got small pages instead of a transparent huge page.",
    ),
    count(
        &["thp_collapse_alloc"],
        "vmstat_thp_collapses_total",
        "Transparent huge pages allocated to merge small pages.",
    ),
    count(
        &["thp_split_page"],
        "vmstat_thp_splits_total",
        "Transparent huge pages split into small ones.",
    ),
];

struct Vmstat {
    file: TickFile,
    table: Table,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let file = TickFile::open(open.root, PATH)?;
    Ok(Box::new(Vmstat { file, table: Table::new(&ROWS) }))
}

impl Source for Vmstat {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.table.begin();
        for line in vmstat(self.file.read()?).map_err(|e| broken(PATH, e))? {
            let (name, number) = line.map_err(|e| broken(PATH, e))?;
            let Some(row) = self.table.row(name) else { continue };
            row.add(if row.unit() == Unit::Bytes { number.saturating_mul(1024) } else { number });
        }
        self.table.push(cx.boot, out);
        Ok(())
    }
}
