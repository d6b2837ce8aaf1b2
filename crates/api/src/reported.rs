//! What `jobmeter run` reported of a command, as metrics: one table for the program that sends them and the server
//! that answers with them, so that `jobmeter job` shows the numbers of the report.

use crate::Totals;

/// A number of a report.
#[derive(Clone, Copy, Debug)]
pub struct Reported {
    /// Its name in [`Totals`].
    pub total: &'static str,
    /// Its metric, a gauge.
    pub metric: &'static str,
    /// Its value in a report.
    pub get: fn(&Totals) -> Option<f64>,
    /// Sets it in a report.
    pub set: fn(&mut Totals, f64),
}

/// Notes on peak memory: what was charged to the job's cgroup, which its limit holds for.
pub const PEAK_CHARGED: &str = "charged to the cgroup";
/// The same, as the kernel stated it when it killed a task at the limit.
pub const PEAK_AT_LIMIT: &str = "charged to the cgroup, at its limit";
/// A part of the job's memory, which an OOM kill proves.
pub const PEAK_AT_LEAST: &str = "at least, by an OOM kill";
/// The cgroup's was not read.
pub const PEAK_OF_TASK: &str = "largest task";
/// There was no cgroup.
pub const PEAK_OF_PROCESSES: &str =
    "largest process, or all at one reading; shared pages count once per process";
/// Begins the note on a lower bound.
pub const AT_LEAST: &str = "at least";

const WALL: &str = "run_report_wall_seconds";

macro_rules! reported {
    ($($metric:literal $field:ident;)*) => {
        /// Every number of a report that is stored; cores follow from processor and wall time.
        pub const REPORTED: &[Reported] = &[
            Reported {
                total: "wall_seconds",
                metric: WALL,
                get: |totals| Some(totals.wall_seconds),
                set: |totals, value| totals.wall_seconds = value,
            },
            $(Reported {
                total: stringify!($field),
                metric: $metric,
                get: |totals| totals.$field,
                set: |totals, value| totals.$field = Some(value),
            },)*
        ];
    };
}

reported! {
    "run_report_cpu_seconds" cpu_seconds;
    "run_report_cpu_user_seconds" cpu_user_seconds;
    "run_report_cpu_system_seconds" cpu_system_seconds;
    "run_report_memory_peak_bytes" memory_peak_bytes;
    "run_report_io_read_bytes" io_read_bytes;
    "run_report_io_write_bytes" io_write_bytes;
    "run_report_minor_faults" minor_faults;
    "run_report_major_faults" major_faults;
    "run_report_voluntary_switches" voluntary_switches;
    "run_report_involuntary_switches" involuntary_switches;
    "run_report_throttled_seconds" throttled_seconds;
    "run_report_pressure_cpu_seconds" pressure_cpu_seconds;
    "run_report_pressure_memory_seconds" pressure_memory_seconds;
    "run_report_pressure_io_seconds" pressure_io_seconds;
}

/// A reservation about a report: some of its numbers are lower bounds.
#[derive(Debug)]
pub struct Reservation {
    /// Its metric, a gauge: 1 if it applies, absent otherwise.
    pub metric: &'static str,
    /// The reason, in the report of `jobmeter run`.
    pub reason: &'static str,
    /// The note on each of its totals, in the report of the job.
    pub note: &'static str,
    /// Its totals.
    pub totals: &'static [&'static str],
}

/// Children of a process that ignores SIGCHLD, for a command without a cgroup.
pub static LOST_CHILDREN: Reservation = Reservation {
    metric: "run_report_lost_children",
    reason: "children of a process that ignores SIGCHLD: the kernel does not count them at their end; processor time \
             includes them up to their last reading, and processor time, peak memory, bytes read and written, page \
             faults and switches are lower bounds",
    note: "at least: without children of a process that ignores SIGCHLD",
    totals: &[
        "cpu_seconds",
        "cpu_user_seconds",
        "cpu_system_seconds",
        "memory_peak_bytes",
        "io_read_bytes",
        "io_write_bytes",
        "minor_faults",
        "major_faults",
        "voluntary_switches",
        "involuntary_switches",
    ],
};
/// Processes that left the command's cgroup.
pub static LEFT_PROCESSES: Reservation = Reservation {
    metric: "run_report_left_processes",
    reason: "processes that moved to another cgroup, such as the command of a `jobmeter run` within this one: this \
             report does not include them; the report of that run does",
    note: "at least: without processes that moved to another cgroup",
    totals: LOST_CHILDREN.totals,
};
/// Every reservation.
pub static RESERVATIONS: [&Reservation; 2] = [&LOST_CHILDREN, &LEFT_PROCESSES];

impl Totals {
    /// Puts what `jobmeter run` reported, by metric, over what samples tell. The totals that it stated; none of a job
    /// that has no report.
    pub fn take_reported(&mut self, value: impl Fn(&str) -> Option<f64>) -> Vec<&'static str> {
        if value(WALL).is_none() {
            return Vec::new();
        }
        let mut stated = Vec::new();
        for number in REPORTED {
            if let Some(value) = value(number.metric) {
                (number.set)(self, value);
                stated.push(number.total);
            }
        }
        // The command's own last reading is in its report.
        self.unread_seconds = None;
        let wall = self.wall_seconds;
        self.cores_used = self.cpu_seconds.filter(|_| wall > 0.0).map(|cpu| cpu / wall);
        stated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_comes_back_as_it_was_sent() {
        let sent = Totals {
            wall_seconds: 0.5,
            cpu_seconds: Some(0.25),
            cores_used: Some(0.5),
            memory_peak_bytes: Some(4096.0),
            ..Totals::default()
        };
        let mut known = Totals {
            wall_seconds: 0.7,
            memory_peak_bytes: Some(1.0),
            major_faults: Some(3.0),
            ..Totals::default()
        };
        let stated = known.take_reported(|metric| {
            let number = REPORTED.iter().find(|number| number.metric == metric)?;
            (number.get)(&sent)
        });
        assert_eq!(known, Totals { major_faults: Some(3.0), ..sent.clone() });
        assert_eq!(stated, ["wall_seconds", "cpu_seconds", "memory_peak_bytes"]);
        // Of a command that was killed there is no report.
        let cut = |metric: &str| (metric == "run_report_cpu_seconds").then_some(9.0);
        assert!(known.take_reported(cut).is_empty());
        assert_eq!(known.cpu_seconds, sent.cpu_seconds);
    }
}
