//! The totals of a `jobmeter run` report as metrics: `jobmeter job` shows the totals that `jobmeter run`
//! reported.

use super::tree::{CPU, CPU_SYSTEM, CPU_USER, MEMORY, PROCESSES, READ, THREADS, WRITTEN};
use api::{Reservation, Totals};
use model::{JobKey, Metric, Timestamp, Unit};
use sources::{Every, RunSamples, Sink, SourceError, SourceSpec};

macro_rules! reported {
    ($($name:ident $metric:literal $unit:ident $help:literal;)*) => {
        $(static $name: Metric = Metric::gauge($metric, Unit::$unit, $help);)*

        /// Metrics of the report.
        static REPORT: &[&Metric] = &[$(&$name),*];

        /// The source of `jobmeter run`'s own measurements, declared like any source.
        pub(crate) static SPEC: SourceSpec = SourceSpec {
            name: "run",
            help: "Metrics that `jobmeter run` reports of a command; without a cgroup for the \
                   command, it also samples them meanwhile.",
            reads: &["/proc/PID/stat", "/proc/PID/status", "/proc/PID/io", "wait4(2)"],
            cost: "without a cgroup one file for each process of the node, and two more for each of the command",
            every: Every::Tick,
            metrics: &[
                &CPU, &CPU_USER, &CPU_SYSTEM, &MEMORY, &PROCESSES, &THREADS, &READ, &WRITTEN, $(&$name,)*
                &LOST_CHILDREN, &LEFT_PROCESSES
            ],
            open: |_| Err(SourceError::absent("a command that `jobmeter run` started")),
            run: RunSamples::Always,
            ..SourceSpec::DEFAULT
        };
    };
}

reported! {
    WALL "run_report_wall_seconds" Seconds
        "Wall time of the command, from its start to the end of all it started.";
    CPU_OF "run_report_cpu_seconds" Seconds "Processor time of the command and all it started.";
    USER_OF "run_report_cpu_user_seconds" Seconds "Processor time of the command in user mode.";
    SYSTEM_OF "run_report_cpu_system_seconds" Seconds "Processor time of the command in the kernel.";
    PEAK "run_report_memory_peak_bytes" Bytes
        "Largest memory: of the command's cgroup; without one, of a process or of all at one reading.";
    READ_OF "run_report_io_read_bytes" Bytes "Bytes that the command caused to be read from disks.";
    WRITTEN_OF "run_report_io_write_bytes" Bytes "Bytes that the command caused to be written to disks.";
    MINOR "run_report_minor_faults" Count "Page faults of the command that needed no disk.";
    MAJOR "run_report_major_faults" Count "Page faults of the command that needed the disk.";
    VOLUNTARY "run_report_voluntary_switches" Count "Voluntary context switches of the command's tasks.";
    FORCED "run_report_involuntary_switches" Count "Context switches that were forced on the command's tasks.";
    THROTTLED "run_report_throttled_seconds" Seconds
        "Time in which a processor limit throttled the command's tasks.";
    PRESSURE_CPU "run_report_pressure_cpu_seconds" Seconds "Time that some task of the command waited for a processor.";
    PRESSURE_MEMORY "run_report_pressure_memory_seconds" Seconds "Time that some task of the command waited for memory.";
    PRESSURE_IO "run_report_pressure_io_seconds" Seconds "Time that some task of the command waited for a disk.";
}

static LOST_CHILDREN: Metric = Metric::gauge(
    api::LOST_CHILDREN.metric,
    Unit::Count,
    "1 if children of the command were lost because their parent ignores SIGCHLD: the report has lower bounds.",
);
static LEFT_PROCESSES: Metric = Metric::gauge(
    api::LEFT_PROCESSES.metric,
    Unit::Count,
    "1 if processes of the command moved to another cgroup: the report has lower bounds.",
);
/// Metrics of the reservations.
static RESERVED: [&Metric; 2] = [&LOST_CHILDREN, &LEFT_PROCESSES];

/// Adds a report with its reservations to a sink.
pub(super) fn push(
    (totals, reservations): (&Totals, &[&Reservation]),
    job: &JobKey,
    now: Timestamp,
    sink: &mut Sink,
) {
    sink.begin(now);
    let mut out = sink.of_job(job);
    for number in api::REPORTED {
        let metric = REPORT.iter().find(|metric| metric.name == number.metric);
        if let Some((metric, value)) = metric.zip((number.get)(totals)) {
            out.gauge(metric, &[], value);
        }
    }
    let applies = |metric: &&&Metric| reservations.iter().any(|one| one.metric == metric.name);
    RESERVED.iter().filter(applies).for_each(|metric| out.gauge(metric, &[], 1.0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_a_report_is_a_metric() {
        let names: Vec<&str> = REPORT.iter().map(|metric| &*metric.name).collect();
        let wanted: Vec<&str> = api::REPORTED.iter().map(|number| number.metric).collect();
        assert_eq!(names, wanted);
        let names = RESERVED.map(|metric| &*metric.name);
        assert_eq!(names, api::RESERVATIONS.map(|reservation| reservation.metric));
    }

    #[test]
    fn a_report_is_sent_with_its_reservations() {
        let mut sink = Sink::new(model::DeviceId::new("n1").unwrap());
        let key = JobKey { cluster: model::ClusterId::local(), id: model::JobId::new(1).unwrap() };
        let mut sent = |reservations: &[&Reservation]| {
            push((&Totals::default(), reservations), &key, Timestamp(1), &mut sink);
            let names = sink.samples().map(|(entry, ..)| entry.metric.name.to_string());
            let names: Vec<String> = names.collect();
            sink.sealed();
            names
        };
        assert_eq!(sent(&[]), ["run_report_wall_seconds"]);
        assert_eq!(
            sent(&[&api::LOST_CHILDREN]),
            ["run_report_wall_seconds", "run_report_lost_children"]
        );
    }
}
