//! Types of the declaration: dashboards, variables, panels and queries, without a datasource.

use model::Unit;

/// A dashboard.
pub(crate) struct Dashboard {
    /// Its ID in links, also the name of its file.
    pub(crate) uid: &'static str,
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    /// Choices at the top of the dashboard. Each may use those before it.
    pub(crate) variables: &'static [Variable],
    /// The devices whose gaps are marked in every plot.
    pub(crate) gaps: Devices,
    pub(crate) panels: &'static [Panel],
}

/// A choice of the person who reads the dashboard.
pub(crate) struct Variable {
    pub(crate) choice: Choice,
    pub(crate) label: &'static str,
    pub(crate) values: Values,
    pub(crate) selection: Selection,
}

/// The variables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    Device,
    Job,
    Metric,
    /// Metrics that measure power or energy.
    Power,
}

impl Choice {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Job => "job",
            Self::Metric => "metric",
            Self::Power => "power",
        }
    }
}

/// How many values of a variable are selected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    One,
    Several,
    /// Several; all of them at first.
    All,
}

/// The values of a variable.
#[derive(Clone, Copy)]
pub(crate) enum Values {
    /// Devices with samples at the end of the time range.
    Devices,
    /// Devices with samples of the chosen power metric.
    DevicesWithPower,
    /// Jobs that ran in the time range.
    Jobs,
    /// Metrics of devices.
    Metrics(Devices),
    /// Metrics of devices in watts, and counters in joules.
    PowerMetrics(Devices),
}

/// A set of devices.
#[derive(Clone, Copy)]
pub(crate) enum Devices {
    /// Every device.
    All,
    /// The chosen devices.
    Chosen,
    /// The nodes of the chosen job.
    OfJob,
}

/// Samples that a query reads.
#[derive(Clone, Copy)]
pub(crate) struct Samples {
    pub(crate) devices: Devices,
    /// The variable with their metrics.
    pub(crate) metrics: Choice,
}

/// What a panel reads. Counters are rates: joules become watts.
#[derive(Clone, Copy)]
pub(crate) enum Query {
    /// A line for each device and each set of labels: samples of a time range up to half an hour, beyond it windows of
    /// five minutes.
    Series(Samples),
    /// The sum over devices and labels of the means of five minutes.
    Sum(Samples),
    /// The latest value of each series.
    Latest(Samples),
    /// The integral of watts over the time range, by these parts.
    Energy(Samples, &'static [Part]),
    /// Missing samples, with the cause.
    Gaps(Devices),
    /// Start, duration and number of nodes of the job.
    JobTimes,
    /// The nodes of the job, with times.
    JobNodes,
    /// The site's own figures of the job: one JSON object.
    JobFigures,
}

/// What separates rows of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Device,
    Metric,
}

/// The meaning of a column's values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Quantity {
    Text,
    Time,
    /// Values in a unit of the catalogue.
    Of(Unit),
    KilowattHours,
}

/// The name of the column with kilowatt hours.
pub(crate) const KILOWATT_HOURS: &str = "energy (kWh)";

impl Query {
    /// Its columns with their quantities, in their order. A query of series has its own form.
    pub(crate) fn columns(self) -> Vec<(&'static str, Quantity)> {
        use Quantity::{KilowattHours, Of, Text, Time};
        match self {
            Self::Series(_) | Self::JobFigures => Vec::new(),
            Self::Sum(_) => vec![("time", Time), ("sum", Of(Unit::Watts))],
            Self::Latest(_) => vec![
                ("device", Text),
                ("metric", Text),
                ("labels", Text),
                ("value", Of(Unit::Count)),
                ("unit", Text),
                ("time", Time),
            ],
            Self::Energy(_, parts) => {
                let name = |part: &Part| match part {
                    Part::Device => ("device", Text),
                    Part::Metric => ("metric", Text),
                };
                let sums = [
                    (KILOWATT_HOURS, KilowattHours),
                    ("energy (J)", Of(Unit::Joules)),
                    ("mean power", Of(Unit::Watts)),
                    ("covered", Of(Unit::Seconds)),
                ];
                parts.iter().map(name).chain(sums).collect()
            }
            Self::Gaps(_) => vec![
                ("device", Text),
                ("source", Text),
                ("from", Time),
                ("to", Time),
                ("length", Of(Unit::Seconds)),
                ("cause", Text),
                ("detail", Text),
            ],
            Self::JobTimes => {
                vec![("start", Time), ("duration", Of(Unit::Seconds)), ("nodes", Of(Unit::Count))]
            }
            Self::JobNodes => vec![
                ("node", Text),
                ("start", Time),
                ("stop", Time),
                ("duration", Of(Unit::Seconds)),
            ],
        }
    }
}

/// A panel.
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) description: &'static str,
    pub(crate) view: View,
    pub(crate) query: Query,
    /// Repeats the panel for each value of a variable.
    pub(crate) repeat: Option<Choice>,
    /// Columns of the 24 of a row.
    pub(crate) width: u32,
    /// Height, in Grafana's units of 30 pixels.
    pub(crate) height: u32,
}

/// How a panel shows its query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// Lines over time.
    Lines,
    /// Lines over time, one above the other.
    StackedLines,
    /// Each number in large digits.
    Numbers,
    /// A bar for each row, of this column.
    Bars(&'static str),
    Table,
}
