//! Memory: how the node's memory is used.
//!
//! Reads `/proc/meminfo` (any Linux; proc_meminfo(5)), see [`kernel::meminfo`]:
//!
//! ```text
//! MemTotal:       24684084 kB
//! MemAvailable:   24290628 kB
//! HugePages_Total:       0
//! ```
//!
//! Every line of fs/proc/meminfo.c in Linux 6.18, and of x86, PowerPC and s390, has a metric, in bytes except
//! the counts of huge pages. A line that the kernel does not write gives no sample. Lines overlap by the
//! kernel's own definitions; the help texts state which is a part of which. Do not add them up: memory in use
//! is `memory_total_bytes − memory_available_bytes`.

use crate::reading::file::{TickFile, broken};
use crate::reading::table::{Row, Table, metrics};
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec};
use kernel::meminfo::{Amount, meminfo};
use model::{Metric, Unit};

const PATH: &str = "proc/meminfo";

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "memory",
    help: "How the node's memory is used.",
    reads: &["/proc/meminfo"],
    cost: "about 6 µs on 2 virtual cores, Linux 6.18",
    every: Every::Tick,
    metrics: &METRICS,
    open,
    ..SourceSpec::DEFAULT
};

static METRICS: [&Metric; ROWS.len()] = metrics(&ROWS);

/// In the order of fs/proc/meminfo.c, then the lines of architectures.
static ROWS: [Row; 69] = [
    bytes(
        &["MemTotal"],
        "memory_total_bytes",
        "Memory that the kernel manages, excluding its own code and memory reserved by the firmware.",
    ),
    bytes(&["MemFree"], "memory_free_bytes", "Unused memory."),
    bytes(
        &["MemAvailable"],
        "memory_available_bytes",
        "The kernel's estimate of the memory available to new programs without swapping.",
    ),
    bytes(
        &["Buffers"],
        "memory_buffers_bytes",
        "Cache of raw block devices, mostly file system metadata.",
    ),
    bytes(
        &["Cached"],
        "memory_cached_bytes",
        "Cache of files, including shared memory and tmpfs, excluding buffers and swap cache.",
    ),
    bytes(
        &["SwapCached"],
        "memory_swap_cached_bytes",
        "Memory that was swapped in and still has its copy in swap.",
    ),
    bytes(&["Active"], "memory_active_bytes", "Pages used recently, of processes and of files."),
    bytes(
        &["Inactive"],
        "memory_inactive_bytes",
        "Pages not used recently, of processes and of files: the first to be reclaimed.",
    ),
    bytes(
        &["Active(anon)"],
        "memory_active_anon_bytes",
        "The part of memory_active_bytes that belongs to no file.",
    ),
    bytes(
        &["Inactive(anon)"],
        "memory_inactive_anon_bytes",
        "The part of memory_inactive_bytes that belongs to no file.",
    ),
    bytes(
        &["Active(file)"],
        "memory_active_file_bytes",
        "The part of memory_active_bytes that caches files.",
    ),
    bytes(
        &["Inactive(file)"],
        "memory_inactive_file_bytes",
        "The part of memory_inactive_bytes that caches files.",
    ),
    bytes(
        &["Unevictable"],
        "memory_unevictable_bytes",
        "Pages that cannot be reclaimed: locked, or of ramfs.",
    ),
    bytes(
        &["Mlocked"],
        "memory_mlocked_bytes",
        "The part of memory_unevictable_bytes that processes locked.",
    ),
    bytes(
        &["HighTotal"],
        "memory_high_total_bytes",
        "Memory that the kernel does not map at all times, on 32-bit machines.",
    ),
    bytes(
        &["HighFree"],
        "memory_high_free_bytes",
        "The part of memory_high_total_bytes that is free.",
    ),
    bytes(
        &["LowTotal"],
        "memory_low_total_bytes",
        "Memory that the kernel maps at all times, on 32-bit machines.",
    ),
    bytes(
        &["LowFree"],
        "memory_low_free_bytes",
        "The part of memory_low_total_bytes that is free.",
    ),
    bytes(
        &["MmapCopy"],
        "memory_mmap_copy_bytes",
        "Private copies of mapped files on machines without memory management.",
    ),
    bytes(&["SwapTotal"], "memory_swap_total_bytes", "Swap space."),
    bytes(
        &["SwapFree"],
        "memory_swap_free_bytes",
        "The part of memory_swap_total_bytes that is free.",
    ),
    bytes(&["Zswap"], "memory_zswap_bytes", "Memory that holds compressed swap."),
    bytes(
        &["Zswapped"],
        "memory_zswapped_bytes",
        "Size of the swapped data in memory_zswap_bytes before compression.",
    ),
    bytes(&["Dirty"], "memory_dirty_bytes", "Cached data waiting to be written to disk."),
    bytes(&["Writeback"], "memory_writeback_bytes", "Cached data being written to disk."),
    bytes(
        &["AnonPages"],
        "memory_anon_bytes",
        "Mapped pages of processes that belong to no file, including huge pages.",
    ),
    bytes(
        &["Mapped"],
        "memory_mapped_bytes",
        "The part of the cached files that processes have mapped.",
    ),
    bytes(
        &["Shmem"],
        "memory_shared_bytes",
        "Shared memory and tmpfs; a part of memory_cached_bytes.",
    ),
    bytes(
        &["KReclaimable"],
        "memory_kernel_reclaimable_bytes",
        "Kernel memory that can be reclaimed under pressure; memory_slab_reclaimable_bytes is a part of it.",
    ),
    bytes(&["Slab"], "memory_slab_bytes", "Data structures of the kernel."),
    bytes(
        &["SReclaimable"],
        "memory_slab_reclaimable_bytes",
        "The part of memory_slab_bytes that can be reclaimed, such as cached directory entries.",
    ),
    bytes(
        &["SUnreclaim"],
        "memory_slab_unreclaimable_bytes",
        "The part of memory_slab_bytes that cannot be reclaimed.",
    ),
    bytes(
        &["KernelStack"],
        "memory_kernel_stack_bytes",
        "Stacks of the kernel, one for each task.",
    ),
    bytes(
        &["ShadowCallStack"],
        "memory_shadow_call_stack_bytes",
        "Second stacks of the kernel that guard the return addresses, on arm64.",
    ),
    bytes(&["PageTables"], "memory_page_tables_bytes", "Page tables of processes."),
    bytes(
        &["SecPageTables"],
        "memory_secondary_page_tables_bytes",
        "Page tables of virtual machines and of IO memory management.",
    ),
    bytes(
        &["NFS_Unstable"],
        "memory_nfs_unstable_bytes",
        "Pages sent to an NFS server and not yet on its disk; always 0 since Linux 5.8.",
    ),
    bytes(
        &["Bounce"],
        "memory_bounce_bytes",
        "Copies of pages for devices that cannot reach all memory; always 0 in new kernels.",
    ),
    bytes(
        &["WritebackTmp"],
        "memory_writeback_temporary_bytes",
        "Copies of pages that FUSE is writing back.",
    ),
    bytes(
        &["CommitLimit"],
        "memory_commit_limit_bytes",
        "Limit of memory_committed_bytes if overcommitting is forbidden.",
    ),
    bytes(
        &["Committed_AS"],
        "memory_committed_bytes",
        "Memory promised to processes, used or not.",
    ),
    bytes(
        &["VmallocTotal"],
        "memory_vmalloc_total_bytes",
        "Address space for the kernel's own mappings; not memory.",
    ),
    bytes(
        &["VmallocUsed"],
        "memory_vmalloc_used_bytes",
        "Memory that the kernel mapped into memory_vmalloc_total_bytes.",
    ),
    bytes(
        &["VmallocChunk"],
        "memory_vmalloc_chunk_bytes",
        "Largest free piece of memory_vmalloc_total_bytes; always 0 since Linux 4.4.",
    ),
    bytes(
        &["Percpu"],
        "memory_percpu_bytes",
        "Memory that the kernel allocates once per processor.",
    ),
    bytes(
        &["EarlyMemtestBad"],
        "memory_memtest_bad_bytes",
        "Memory that the test at boot found defective.",
    ),
    bytes(
        &["HardwareCorrupted"],
        "memory_hardware_corrupted_bytes",
        "Memory withdrawn from use because of hardware errors.",
    ),
    bytes(
        &["AnonHugePages"],
        "memory_anon_huge_bytes",
        "The part of memory_anon_bytes in transparent huge pages.",
    ),
    bytes(
        &["ShmemHugePages"],
        "memory_shared_huge_bytes",
        "The part of memory_shared_bytes in transparent huge pages.",
    ),
    bytes(
        &["ShmemPmdMapped"],
        "memory_shared_huge_mapped_bytes",
        "The part of memory_shared_huge_bytes that is mapped as huge pages.",
    ),
    bytes(&["FileHugePages"], "memory_file_huge_bytes", "Cached files in transparent huge pages."),
    bytes(
        &["FilePmdMapped"],
        "memory_file_huge_mapped_bytes",
        "The part of memory_file_huge_bytes that is mapped as huge pages.",
    ),
    bytes(
        &["CmaTotal"],
        "memory_cma_total_bytes",
        "Memory reserved for devices that need contiguous memory.",
    ),
    bytes(
        &["CmaFree"],
        "memory_cma_free_bytes",
        "The part of memory_cma_total_bytes that no device uses.",
    ),
    bytes(
        &["Unaccepted"],
        "memory_unaccepted_bytes",
        "Memory of a confidential virtual machine that it has not accepted yet.",
    ),
    bytes(
        &["Balloon"],
        "memory_balloon_bytes",
        "Memory that this virtual machine returned to its host.",
    ),
    count(
        &["HugePages_Total"],
        "memory_huge_pages",
        "Huge pages in the pool that the administrator configured.",
    ),
    count(
        &["HugePages_Free"],
        "memory_huge_pages_free",
        "Huge pages of the pool that are not allocated.",
    ),
    count(
        &["HugePages_Rsvd"],
        "memory_huge_pages_reserved",
        "Huge pages of the pool that are reserved but not allocated yet; a part of memory_huge_pages_free.",
    ),
    count(
        &["HugePages_Surp"],
        "memory_huge_pages_surplus",
        "Huge pages in the pool beyond the number that the administrator set; a part of memory_huge_pages.",
    ),
    bytes(
        &["Hugepagesize"],
        "memory_huge_page_bytes",
        "Size of one huge page of the default pool.",
    ),
    bytes(
        &["Hugetlb"],
        "memory_huge_pages_bytes",
        "Memory of all pools of huge pages, of every page size.",
    ),
    bytes(
        &["DirectMap4k"],
        "memory_direct_map_4k_bytes",
        "Memory that the kernel maps in pages of 4 KiB.",
    ),
    bytes(
        &["DirectMap64k"],
        "memory_direct_map_64k_bytes",
        "Memory that the kernel maps in pages of 64 KiB.",
    ),
    bytes(
        &["DirectMap1M"],
        "memory_direct_map_1m_bytes",
        "Memory that the kernel maps in pages of 1 MiB.",
    ),
    bytes(
        &["DirectMap2M"],
        "memory_direct_map_2m_bytes",
        "Memory that the kernel maps in pages of 2 MiB.",
    ),
    bytes(
        &["DirectMap4M"],
        "memory_direct_map_4m_bytes",
        "Memory that the kernel maps in pages of 4 MiB.",
    ),
    bytes(
        &["DirectMap1G"],
        "memory_direct_map_1g_bytes",
        "Memory that the kernel maps in pages of 1 GiB.",
    ),
    bytes(
        &["DirectMap2G"],
        "memory_direct_map_2g_bytes",
        "Memory that the kernel maps in pages of 2 GiB.",
    ),
];

const fn bytes(names: &'static [&'static str], metric: &'static str, help: &'static str) -> Row {
    Row { names, metric: Metric::gauge(metric, Unit::Bytes, help) }
}
const fn count(names: &'static [&'static str], metric: &'static str, help: &'static str) -> Row {
    Row { names, metric: Metric::gauge(metric, Unit::Count, help) }
}

struct Memory {
    file: TickFile,
    table: Table,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let file = TickFile::open(open.root, PATH)?;
    Ok(Box::new(Memory { file, table: Table::new(&ROWS) }))
}

impl Source for Memory {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.table.begin();
        for line in meminfo(self.file.read_single()?).map_err(|e| broken(PATH, e))? {
            let line = line.map_err(|e| broken(PATH, e))?;
            let Some(row) = self.table.row(line.name) else { continue };
            match (line.amount, row.unit()) {
                (Amount::KibiBytes(kib), Unit::Bytes) => row.add(kib.saturating_mul(1024)),
                (Amount::Count(count), Unit::Count) => row.add(count),
                _ => {
                    let name = line.name.escape_ascii();
                    return Err(broken(PATH, format_args!("`{name}` has another unit than kB")));
                }
            }
        }
        self.table.push(cx.boot, out);
        Ok(())
    }
}
