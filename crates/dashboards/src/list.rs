//! The dashboards.

use crate::declaration::{
    Choice, Dashboard, Devices, KILOWATT_HOURS, Panel, Part, Query, Samples, Selection, Values,
    Variable, View,
};

/// All dashboards, in the order of their menu.
pub(crate) const DASHBOARDS: [&Dashboard; 3] = [&DEVICES, &JOB, &POWER];

const CHOSEN: Samples = Samples { devices: Devices::Chosen, metrics: Choice::Metric };
const CHOSEN_POWER: Samples = Samples { devices: Devices::Chosen, metrics: Choice::Power };
const OF_JOB: Samples = Samples { devices: Devices::OfJob, metrics: Choice::Metric };
const POWER_OF_JOB: Samples = Samples { devices: Devices::OfJob, metrics: Choice::Power };

/// Description of panels with lines.
const LINES: &str = "Counters are rates per second. A time range beyond 30 minutes shows means of 5 minutes. \
    Shaded times are gaps: the samples are missing, for the cause in the mark.";
/// Description of panels with energy.
const ENERGY: &str = "The integral of the power over the time range. Times without samples for more than 10 minutes do not \
    count; `covered` is the time that counts.";
/// Description of lists of gaps.
const GAPS: &str = "Missing samples in the time range, with the cause.";

const fn gaps(devices: Devices) -> Panel {
    Panel {
        title: "Gaps",
        description: GAPS,
        view: View::Table,
        query: Query::Gaps(devices),
        repeat: None,
        width: 24,
        height: 7,
    }
}

const DEVICES: Dashboard = Dashboard {
    uid: "jobmeter-devices",
    title: "jobmeter: devices",
    description: "Any metric of any device: nodes, meters, BMCs, switches.",
    variables: &[
        Variable {
            choice: Choice::Device,
            label: "Device",
            values: Values::Devices,
            selection: Selection::Several,
        },
        Variable {
            choice: Choice::Metric,
            label: "Metric",
            values: Values::Metrics(Devices::Chosen),
            selection: Selection::Several,
        },
    ],
    gaps: Devices::Chosen,
    panels: &[
        Panel {
            title: "${metric}",
            description: LINES,
            view: View::Lines,
            query: Query::Series(CHOSEN),
            repeat: Some(Choice::Metric),
            width: 12,
            height: 9,
        },
        Panel {
            title: "Latest values",
            description: "The latest value of each series in the last 5 minutes of the time range. Counters are totals.",
            view: View::Table,
            query: Query::Latest(CHOSEN),
            repeat: None,
            width: 24,
            height: 8,
        },
        gaps(Devices::Chosen),
    ],
};

const JOB: Dashboard = Dashboard {
    uid: "jobmeter-job",
    title: "jobmeter: job",
    description: "What a job used, on each of its nodes.",
    variables: &[
        Variable {
            choice: Choice::Job,
            label: "Job",
            values: Values::Jobs,
            selection: Selection::One,
        },
        Variable {
            choice: Choice::Metric,
            label: "Metric",
            values: Values::Metrics(Devices::OfJob),
            selection: Selection::Several,
        },
        Variable {
            choice: Choice::Power,
            label: "Power",
            values: Values::PowerMetrics(Devices::OfJob),
            selection: Selection::All,
        },
    ],
    gaps: Devices::OfJob,
    panels: &[
        Panel {
            title: "Job ${job}",
            description: "From the first node's start to the last node's end, or to now.",
            view: View::Numbers,
            query: Query::JobTimes,
            repeat: None,
            width: 8,
            height: 6,
        },
        Panel {
            title: "Energy by meter",
            description: ENERGY,
            view: View::Bars(KILOWATT_HOURS),
            query: Query::Energy(POWER_OF_JOB, &[Part::Metric]),
            repeat: None,
            width: 16,
            height: 6,
        },
        Panel {
            title: "Figures of the site",
            description: "The site's statements about a job (`jobmetrics_requests`).",
            view: View::Table,
            query: Query::JobFigures,
            repeat: None,
            width: 24,
            height: 4,
        },
        Panel {
            title: "${metric}",
            description: LINES,
            view: View::Lines,
            query: Query::Series(OF_JOB),
            repeat: Some(Choice::Metric),
            width: 12,
            height: 9,
        },
        Panel {
            title: "Energy by node and meter",
            description: ENERGY,
            view: View::Table,
            query: Query::Energy(POWER_OF_JOB, &[Part::Device, Part::Metric]),
            repeat: None,
            width: 12,
            height: 8,
        },
        Panel {
            title: "Nodes",
            description: "The allocations of the job.",
            view: View::Table,
            query: Query::JobNodes,
            repeat: None,
            width: 12,
            height: 8,
        },
        gaps(Devices::OfJob),
    ],
};

const POWER: Dashboard = Dashboard {
    uid: "jobmeter-power",
    title: "jobmeter: power and energy",
    description: "Power of devices by one meter, and its integral. Different meters measure the same energy, so they are not added.",
    variables: &[
        Variable {
            choice: Choice::Power,
            label: "Meter",
            values: Values::PowerMetrics(Devices::All),
            selection: Selection::One,
        },
        Variable {
            choice: Choice::Device,
            label: "Device",
            values: Values::DevicesWithPower,
            selection: Selection::All,
        },
    ],
    gaps: Devices::Chosen,
    panels: &[
        Panel {
            title: "Energy",
            description: ENERGY,
            view: View::Numbers,
            query: Query::Energy(CHOSEN_POWER, &[]),
            repeat: None,
            width: 24,
            height: 5,
        },
        Panel {
            title: "Power of all devices",
            description: "The sum over devices of their means of 5 minutes. In the window of the present moment it has the samples so far.",
            view: View::Lines,
            query: Query::Sum(CHOSEN_POWER),
            repeat: None,
            width: 12,
            height: 9,
        },
        Panel {
            title: "Power by device",
            description: LINES,
            view: View::StackedLines,
            query: Query::Series(CHOSEN_POWER),
            repeat: None,
            width: 12,
            height: 9,
        },
        Panel {
            title: "Energy by device",
            description: ENERGY,
            view: View::Bars(KILOWATT_HOURS),
            query: Query::Energy(CHOSEN_POWER, &[Part::Device]),
            repeat: None,
            width: 12,
            height: 10,
        },
        Panel {
            title: "Energy and mean power by device",
            description: ENERGY,
            view: View::Table,
            query: Query::Energy(CHOSEN_POWER, &[Part::Device]),
            repeat: None,
            width: 12,
            height: 10,
        },
        gaps(Devices::Chosen),
    ],
};
