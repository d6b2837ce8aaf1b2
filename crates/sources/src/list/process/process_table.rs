//! The processes of each job: their counted I/O, and their latest values.

use super::files::ProcessFiles;
use super::metrics::IO;
use crate::task_attribution::comm::Comm;
use crate::task_attribution::saved::{Numbers, put};
use crate::task_attribution::task_tree::{Account, Ended, JobNo, Reading, TaskNo};
use kernel::process::{ProcessIo, ProcessStatus};
use kernel::taskstats::{Counter, TaskStats};
use rustc_hash::FxHashMap;

/// I/O counters in the order of their metrics.
pub(super) type Io = [u64; IO];

/// The counters of `/proc/PID/io`.
pub(super) const fn io_of_process(io: &ProcessIo) -> Io {
    [
        io.read_chars,
        io.write_chars,
        io.read_calls,
        io.write_calls,
        io.read_bytes,
        io.write_bytes,
        io.cancelled_write_bytes,
    ]
}

/// The same counters of an ended task; the kernel rounds them down to multiples of 1024.
fn io_of_task(stats: &TaskStats) -> Io {
    [
        Counter::ReadChar,
        Counter::WriteChar,
        Counter::ReadSyscalls,
        Counter::WriteSyscalls,
        Counter::ReadBytes,
        Counter::WriteBytes,
        Counter::CancelledWriteBytes,
    ]
    .map(|counter| stats.counters.get(counter))
}

fn largest(a: &Io, b: &Io) -> Io {
    let mut largest = *a;
    for (largest, b) in largest.iter_mut().zip(b) {
        *largest = (*largest).max(*b);
    }
    largest
}

/// Values of `stat` and `status` at the last reading of a process; memory in KiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) comm: Comm,
    pub(super) start_ticks: u64,
    pub(super) cpu_ticks: u64,
    /// The part since the previous reading.
    pub(super) new_cpu_ticks: u64,
    pub(super) status: ProcessStatus,
}

/// A process of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Process {
    pub(super) job: JobNo,
    /// Identifies the process among all with this process ID, once it was read.
    no: Option<TaskNo>,
    pub(super) view: Option<View>,
    /// I/O already counted for its job, or before the start of the job's counters.
    counted: Io,
    /// I/O of its ended threads, by their exit records.
    ended: Io,
    /// Whether its I/O before the first reading counts.
    from_start: bool,
    io_read: bool,
    /// The last round with this process in a list.
    round: u32,
    /// The round of its last reading.
    pub(super) read_in: u32,
}

/// State of a job.
#[derive(Clone, Copy, Debug, Default)]
struct Job {
    io: Io,
    /// Whether its processes were listed before.
    begun: bool,
    /// Largest resident memory seen, in KiB.
    hiwater_kib: u64,
}

/// The processes of all jobs, and the I/O of each job.
#[derive(Debug, Default)]
pub(super) struct Book {
    jobs: FxHashMap<JobNo, Job>,
    processes: FxHashMap<u32, Process>,
    /// Processes that ended since the last check, and zombies of that check: lists of a cgroup do not
    /// contain them.
    ended: Vec<(u32, JobNo)>,
    pub(super) round: u32,
}

/// Maximum number of ended processes that may be zombies.
const ENDED_MAX: usize = 1024;

impl Book {
    /// Whether a job is listed for the first time; the I/O of an old job then starts at 0.
    pub(super) fn begin(&mut self, job: JobNo, is_old: bool) -> bool {
        let job = self.jobs.entry(job).or_default();
        let is_first = !std::mem::replace(&mut job.begun, true);
        if is_first && is_old {
            job.io = [0; IO];
        }
        is_first
    }

    /// I/O of a job's processes, including ended ones.
    pub(super) fn io_of(&self, job: JobNo) -> Option<&Io> {
        self.jobs.get(&job).map(|job| &job.io)
    }

    /// The largest resident memory seen in a job so far, in KiB, including the current one.
    pub(super) fn hiwater_kib(&mut self, job: JobNo, now: u64) -> u64 {
        let job = self.jobs.entry(job).or_default();
        job.hiwater_kib = job.hiwater_kib.max(now);
        job.hiwater_kib
    }

    /// Whether the ended processes should be checked for zombies soon.
    pub(super) const fn is_crowded(&self) -> bool {
        self.ended.len() >= ENDED_MAX / 2
    }

    /// Keeps only the zombies among the ended processes.
    pub(super) fn keep_zombies(&mut self, mut is_zombie: impl FnMut(u32) -> bool) {
        self.ended.retain(|(pid, _)| is_zombie(*pid));
    }

    /// The zombies of a job.
    pub(super) fn zombies(&self, no: JobNo) -> usize {
        self.ended.iter().filter(|(_, job)| *job == no).count()
    }

    /// All processes.
    pub(super) fn processes(&self) -> impl Iterator<Item = (u32, &Process)> {
        self.processes.iter().map(|(pid, process)| (*pid, process))
    }

    /// The process with this ID.
    pub(super) fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// Records that a list of this job contains the process.
    pub(super) fn listed(&mut self, pid: u32, job: JobNo) {
        let round = self.round;
        let new = || Process::new(job, true, round);
        let process = self.processes.entry(pid).or_insert_with(new);
        (process.job, process.round) = (job, round);
    }

    /// Ends a round of lists: processes that are missing in a complete list of their job have ended.
    pub(super) fn end_round(&mut self, listed: impl Fn(JobNo) -> bool) {
        let Self { jobs, processes, round, .. } = self;
        processes.retain(|_, process| {
            let remains = process.round == *round || !listed(process.job);
            if !remains {
                process.settle(&mut jobs.entry(process.job).or_default().io);
            }
            remains
        });
    }

    /// Records the values of a process.
    pub(super) fn read(&mut self, pid: u32, reading: Reading, files: &ProcessFiles) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if process.no.is_some_and(|no| no != reading.no) {
            // The process ID was reused since the last round.
            process.settle(&mut self.jobs.entry(process.job).or_default().io);
            *process = Process::new(process.job, true, process.round);
        }
        if process.no.is_none() {
            process.from_start &= reading.from_start;
        }
        process.no = Some(reading.no);
        process.read_in = self.round;
        let before = process.view.map_or(0, |view| view.cpu_ticks);
        process.view = Some(View {
            comm: files.comm,
            start_ticks: files.start_ticks,
            cpu_ticks: files.cpu_ticks,
            new_cpu_ticks: files.cpu_ticks.saturating_sub(before),
            status: files.status,
        });
        let Some(io) = files.io else { return };
        let now = largest(&io, &process.ended);
        // The I/O of a moved process belongs to the job that it left.
        let job = self.jobs.entry(reading.job).or_default();
        if process.io_read || process.from_start {
            process.count(&now, &mut job.io);
        } else {
            process.counted = now;
        }
        process.io_read = true;
    }

    /// Records that a listed process has ended or is ending: its exit record has the remaining I/O.
    pub(super) fn gone(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            (process.read_in, process.view) = (self.round, None);
        }
    }
}

impl Process {
    const fn new(job: JobNo, from_start: bool, round: u32) -> Self {
        Self {
            job,
            no: None,
            view: None,
            counted: [0; IO],
            ended: [0; IO],
            from_start,
            io_read: false,
            round,
            read_in: 0,
        }
    }

    /// Counts the new I/O for the job.
    fn count(&mut self, now: &Io, job: &mut Io) {
        for ((job, counted), now) in job.iter_mut().zip(&mut self.counted).zip(now) {
            *job = job.saturating_add(now.saturating_sub(*counted));
            *counted = (*counted).max(*now);
        }
    }

    /// Counts the I/O of an ended process that its exit records report beyond the last reading.
    fn settle(&mut self, job: &mut Io) {
        if self.io_read || self.from_start {
            let ended = self.ended;
            self.count(&ended, job);
        }
    }
}

impl Account for Book {
    fn ended(&mut self, job: JobNo, task: &Ended<'_>) {
        let stats = task.stats;
        let pid = task.tgid.unwrap_or(stats.tid);
        // Before Linux 5.19 the kernel does not mark the last thread; it is mostly the first.
        let is_over = stats.last_of_group || (stats.tgid.is_none() && pid == stats.tid);
        let round = self.round;
        let new = || Process::new(job, task.from_start, round);
        let process = self.processes.entry(pid).or_insert_with(new);
        for (ended, io) in process.ended.iter_mut().zip(io_of_task(stats)) {
            *ended = ended.saturating_add(io);
        }
        if process.no.is_none() {
            process.from_start &= task.from_start;
        }
        if is_over {
            process.settle(&mut self.jobs.entry(process.job).or_default().io);
            let job = process.job;
            self.processes.remove(&pid);
            if self.ended.len() < ENDED_MAX {
                self.ended.push((pid, job));
            }
        }
    }

    fn forgotten(&mut self, _: TaskNo) {
        // A process that left its job is missing in the job's list.
    }

    fn unproven(&mut self, task: TaskNo) {
        if let Some(process) = self.processes.values_mut().find(|it| it.no == Some(task)) {
            (process.from_start, process.io_read) = (false, false);
        }
    }

    fn keep(&mut self, is_there: impl Fn(JobNo) -> bool) {
        self.jobs.retain(|job, _| is_there(*job));
        self.processes.retain(|_, process| is_there(process.job));
        self.ended.retain(|(_, job)| is_there(*job));
    }

    fn save_job(&self, job: JobNo, out: &mut Vec<u8>) {
        let job = self.jobs.get(&job).copied().unwrap_or_default();
        job.io.iter().chain([&job.hiwater_kib]).for_each(|number| put(out, *number));
    }

    fn save_task(&self, pid: u32, task: TaskNo, out: &mut Vec<u8>) -> bool {
        let Some(process) = self.processes.get(&pid).filter(|it| it.no == Some(task)) else {
            return false;
        };
        put(out, u64::from(process.from_start) | u64::from(process.io_read) << 1);
        process.counted.iter().chain(&process.ended).for_each(|number| put(out, *number));
        true
    }

    fn restore_job(&mut self, job: JobNo, from: &mut Numbers<'_>) -> Option<()> {
        let mut saved = Job { begun: true, ..Job::default() };
        from.fill(&mut saved.io)?;
        saved.hiwater_kib = from.take()?;
        self.jobs.insert(job, saved);
        Some(())
    }

    fn restore_task(
        &mut self,
        job: JobNo,
        pid: u32,
        task: TaskNo,
        from: &mut Numbers<'_>,
    ) -> Option<()> {
        let flags = from.take()?;
        let mut process = Process::new(job, flags & 1 != 0, self.round);
        process.io_read = flags & 2 != 0;
        process.no = Some(task);
        from.fill(&mut process.counted)?;
        from.fill(&mut process.ended)?;
        self.processes.insert(pid, process);
        Some(())
    }

    fn lost(&mut self, pid: u32, _: TaskNo) {
        self.processes.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::process::State;
    use kernel::taskstats::Counters;

    const JOB: JobNo = JobNo::new(1);

    const STATUS: ProcessStatus = ProcessStatus {
        state: State::Running,
        tgid: 7,
        ppid: 1,
        threads: 1,
        vm_size: None,
        vm_hwm: None,
        vm_rss: None,
        rss_anon: None,
        rss_file: None,
        rss_shmem: None,
        vm_swap: None,
    };

    fn end(book: &mut Book, tid: u32, tgid: Option<u32>, bytes: u64, last_of_group: bool) {
        end_as(book, tid, tgid, bytes, last_of_group, true);
    }

    fn end_as(book: &mut Book, tid: u32, tgid: Option<u32>, bytes: u64, last: bool, whole: bool) {
        let mut counters = Counters::ZERO;
        counters.0[Counter::WriteChar.place()] = bytes;
        let stats = TaskStats {
            tid,
            tgid,
            ppid: 1,
            begin_s: 0,
            elapsed_us: 0,
            last_of_group: last,
            hiwater_rss_kib: 0,
            hiwater_vm_kib: 0,
            comm: [0; 16],
            counters,
        };
        let no = TaskNo::new(99);
        book.ended(JOB, &Ended { no, stats: &stats, tgid, from_start: whole });
    }

    fn written(book: &Book) -> u64 {
        book.io_of(JOB).map_or(0, |io| io[1])
    }

    fn read(book: &mut Book, no: u64, from_start: bool, written: u64) {
        let no = TaskNo::new(no);
        let reading = Reading { no, job: JOB, from_start, may_be_ending: false };
        let io = Some([0, written, 0, 0, 0, 0, 0]);
        let comm = Comm::of(b"cat");
        let (start_ticks, cpu_ticks, is_ending) = (100, 6, false);
        let files = ProcessFiles { comm, start_ticks, cpu_ticks, is_ending, status: STATUS, io };
        book.read(7, reading, &files);
    }

    #[test]
    fn io_of_the_exit_record_beyond_the_last_reading_counts() {
        let mut book = Book { round: 1, ..Book::default() };
        book.listed(7, JOB);
        read(&mut book, 100, true, 5000);
        assert_eq!(written(&book), 5000);
        // The exit record has less because of the rounding: the counter does not fall.
        end(&mut book, 7, Some(7), 4096, true);
        assert_eq!(written(&book), 5000);
        book.listed(7, JOB);
        read(&mut book, 200, true, 1000);
        end(&mut book, 7, Some(7), 9216, true);
        assert_eq!(written(&book), 5000 + 9216);
        // A process that was never listed.
        end(&mut book, 8, Some(8), 1024, true);
        assert_eq!((written(&book), book.processes.len()), (15_240, 0));
    }

    #[test]
    fn io_of_ended_threads_is_contained_in_the_process() {
        let mut book = Book { round: 1, ..Book::default() };
        book.listed(7, JOB);
        end(&mut book, 71, Some(7), 2048, false);
        assert_eq!(written(&book), 0);
        // The I/O of the process includes its ended threads.
        read(&mut book, 100, true, 3000);
        end(&mut book, 72, Some(7), 2048, false);
        end(&mut book, 7, Some(7), 1024, true);
        assert_eq!(written(&book), 5120);
        // Ended threads of a process that was never listed; they count once the process is missing
        // in a list.
        end(&mut book, 91, Some(9), 1024, false);
        assert_eq!(written(&book), 5120);
        book.round = 2;
        book.end_round(|_| true);
        assert_eq!((written(&book), book.processes.len()), (6144, 0));
    }

    #[test]
    fn io_before_the_start_does_not_count() {
        let mut book = Book { round: 1, ..Book::default() };
        book.listed(7, JOB);
        read(&mut book, 100, false, 5000);
        assert_eq!(written(&book), 0);
        read(&mut book, 100, false, 5700);
        end(&mut book, 7, Some(7), 7168, true);
        assert_eq!(written(&book), 2168);
        // It ended before its first reading.
        end_as(&mut book, 8, Some(8), 4096, true, false);
        assert_eq!(written(&book), 2168);
    }

    #[test]
    fn a_reused_process_id() {
        let mut book = Book { round: 1, ..Book::default() };
        book.listed(7, JOB);
        read(&mut book, 100, true, 5000);
        read(&mut book, 300, true, 200);
        assert_eq!(written(&book), 5200);
        let process = book.get(7).unwrap();
        assert_eq!(process.view.unwrap().new_cpu_ticks, 6);
    }

    #[test]
    fn before_linux_5_19_the_first_thread_ends_the_process() {
        let mut book = Book { round: 1, ..Book::default() };
        end(&mut book, 7, None, 2048, false);
        assert_eq!((written(&book), book.processes.len()), (2048, 0));
    }
}
