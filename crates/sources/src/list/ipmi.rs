//! Sensors of the baseboard management controller (BMC): temperatures, voltages, currents, fans, power; and
//! the power of the whole node.
//!
//! The source sends requests through `/dev/ipmi0`, see [`kernel::ipmi`], and starts no program:
//!
//! ```text
//! Get SDR              each sensor's name, unit and factors, once, when the source opens
//! Get Sensor Reading   each sensor with numeric readings
//! Get Power Reading    the node's power (DCMI 1.5 §6.6.1), if the BMC supports it
//! 30h/B3h, 30h/9Ch     the node's power, current and energy, on a BMC of Dell
//! ```
//!
//! A sensor has two labels: `sensor`, the maker's name, and `number`, its sensor number. For a logical unit
//! of the BMC other than the first, the unit precedes the number: `1:106`. A sensor that is off, absent or
//! not scanned gives no sample. The source leaves out discrete sensors, sensors of other controllers, of
//! units without a metric, and with non-linear curves.
//!
//! A BMC needs from 1 ms to 100 ms per request. The source is therefore read rarely, sends one request
//! at a time, and does not block: it polls for the answer every 5 ms. Only the first reading
//! waits. Samples have the time of their answer.

use crate::reading::parts::{Choice, exclude, include};
use crate::reading::wrapping::Wrapping;
use crate::source::value_bounds::STUCK_SECONDS;
use crate::{Context, Every, Open, Sink, Source, SourceError, SourceSpec, ValueBounds};
use kernel::clock::monotonic_us;
use kernel::ipmi::{
    ANSWER_TIME_MAX, Analog, Bmc, DcmiPower, DellPower, Identity, IpmiError, Measures, Request,
    read_repository,
};
use model::{Metric, Unit};
use std::time::Duration;

/// Polling interval for an answer.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Upper bound of a node's power.
const WATTS_MAX: u32 = 100_000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "ipmi",
    help: "Sensors of the baseboard management controller (BMC), and the power of the whole node.",
    reads: &["/dev/ipmi0"],
    cost: "some tens of microseconds a sensor; each answer takes milliseconds, without blocking the agent",
    every: Every::AtLeast(Duration::from_secs(30)),
    metrics: &[
        &TEMPERATURE,
        &VOLTAGE,
        &CURRENT,
        &POWER,
        &FAN,
        &LEVEL,
        &DCMI_POWER,
        &DCMI_POWER_MEAN,
        &DELL_POWER,
        &DELL_CURRENT,
        &DELL_ENERGY,
    ],
    sane: &[
        ValueBounds::of(&TEMPERATURE).within(-60.0, 200.0),
        ValueBounds::of(&VOLTAGE).within(-60.0, 1000.0),
        ValueBounds::of(&CURRENT).within(-1000.0, 1000.0),
        // An unused standby supply reports a constant 0 W, so `stuck` does not apply.
        ValueBounds::of(&POWER).within(0.0, WATTS_MAX as f64),
        ValueBounds::of(&FAN).within(0.0, 2000.0),
        ValueBounds::of(&LEVEL).within(0.0, 10.0),
        // A running node uses some power.
        ValueBounds::of(&DCMI_POWER).within(1.0, 60_000.0).never(&[65_535.0]).stuck(STUCK_SECONDS),
        ValueBounds::of(&DCMI_POWER_MEAN).within(1.0, 60_000.0).never(&[65_535.0]),
        ValueBounds::of(&DELL_POWER).within(1.0, 60_000.0).never(&[65_535.0]).stuck(STUCK_SECONDS),
        ValueBounds::of(&DELL_CURRENT).within(0.0, 1000.0),
    ],
    options: &[
        include("Only these sensors: names, or patterns with `*`; empty means all."),
        exclude("", "Sensors to leave out if `include` is empty: names, or patterns with `*`."),
    ],
    open,
    may_burst: false,
    ..SourceSpec::DEFAULT
};

static TEMPERATURE: Metric =
    Metric::gauge("ipmi_temperature_celsius", Unit::Celsius, "Temperature at a sensor.");
static VOLTAGE: Metric = Metric::gauge("ipmi_voltage_volts", Unit::Volts, "Voltage at a sensor.");
static CURRENT: Metric =
    Metric::gauge("ipmi_current_amperes", Unit::Amperes, "Current at a sensor.");
static POWER: Metric = Metric::gauge("ipmi_power_watts", Unit::Watts, "Power at a sensor.");
static FAN: Metric =
    Metric::gauge("ipmi_fan_hertz", Unit::Hertz, "Revolutions of a fan per second.");
static LEVEL: Metric = Metric::gauge(
    "ipmi_level_ratio",
    Unit::Ratio,
    "Value of a percent sensor, such as a fan's drive or a component's use.",
)
.steps(100);
static DCMI_POWER: Metric =
    Metric::gauge("ipmi_dcmi_power_watts", Unit::Watts, "Power of the node, by DCMI.");
static DCMI_POWER_MEAN: Metric = Metric::gauge(
    "ipmi_dcmi_power_mean_watts",
    Unit::Watts,
    "Power of the node by DCMI, mean over an interval that the BMC chooses.",
);
static DELL_POWER: Metric =
    Metric::gauge("ipmi_dell_power_watts", Unit::Watts, "Power of the node, by a Dell BMC.");
static DELL_CURRENT: Metric = Metric::gauge(
    "ipmi_dell_current_amperes",
    Unit::Amperes,
    "Input current of the node, by a Dell BMC.",
)
.steps(10);
static DELL_ENERGY: Metric = Metric::counter(
    "ipmi_dell_energy_joules_total",
    Unit::Joules,
    "Energy of the node since the first reading, by a Dell BMC, in steps of 1 Wh.",
);

/// A request of each round.
#[derive(Debug)]
enum Query {
    Sensor { sensor: Analog, number: Box<str> },
    Dcmi,
    Dell,
    DellEnergy,
}

impl Query {
    fn request(&self) -> Request {
        match self {
            Self::Sensor { sensor, .. } => Request::new(0x04, sensor.unit, 0x2d, &[sensor.number]),
            Self::Dcmi => Request::new(0x2c, 0, 0x02, &[0xdc, 0x01, 0, 0]),
            Self::Dell => Request::new(0x30, 0, 0xb3, &[0x0a, 0]),
            Self::DellEnergy => Request::new(0x30, 0, 0x9c, &[0x07, 0x01]),
        }
    }
}

struct Ipmi {
    bmc: Bmc,
    queries: Vec<Query>,
    /// Index of the pending query, and the time of its request; `None` between two rounds.
    pending: Option<(usize, u64)>,
    /// Number of values in this round.
    values: usize,
    /// Error of the last round, until the next tick returns it.
    failed: Option<SourceError>,
    is_begun: bool,
    energy: Option<Wrapping>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let mut bmc = Bmc::open(open.root).map_err(worded)?;
    let choice = Choice::of(open.options);
    let identity = bmc.send_request(&Request::new(0x06, 0, 0x01, &[])).map_err(worded)?;
    let identity = Identity::parse(identity)
        .ok_or_else(|| SourceError::broken("the BMC does not identify itself"))?;
    let mut queries = Vec::new();
    for sensor in read_repository(&mut bmc).map_err(worded)?.sensors {
        if choice.includes(&sensor.name).unwrap_or(true) {
            // Sensor numbers are unique only within a unit of the BMC.
            let number = match sensor.unit {
                0 => sensor.number.to_string(),
                unit => format!("{unit}:{}", sensor.number),
            };
            let number = number.into();
            queries.push(Query::Sensor { sensor, number });
        }
    }
    // Probe each command once: the BMC gets no further requests that it does not support.
    if bmc.send_request(&Query::Dcmi.request()).map_err(worded)?.first() == Some(&0) {
        queries.push(Query::Dcmi);
    }
    if identity.maker == Identity::DELL {
        if DellPower::parse(bmc.send_request(&Query::Dell.request()).map_err(worded)?).is_some() {
            queries.push(Query::Dell);
        }
        let energy = bmc.send_request(&Query::DellEnergy.request()).map_err(worded)?;
        if DellPower::watt_hours(energy).is_some() {
            queries.push(Query::DellEnergy);
        }
    }
    if queries.is_empty() {
        return Err(SourceError::absent(open.options.nothing(
            &SPEC,
            &["include", "exclude"],
            [
                "the BMC has no numeric sensor",
                "the BMC has no numeric sensor that the options choose",
            ],
        )));
    }
    Ok(Box::new(Ipmi {
        bmc,
        queries,
        pending: None,
        values: 0,
        failed: None,
        is_begun: false,
        energy: None,
    }))
}

fn worded(error: IpmiError) -> SourceError {
    match error {
        IpmiError::Absent(why) => SourceError::absent(why),
        IpmiError::Denied(why) => SourceError::denied(why, "read and write access to it"),
        late @ IpmiError::Late(_) => SourceError::broken(format!("timed out: {late}")),
        IpmiError::Failed(why) => SourceError::broken(why),
    }
}

impl Source for Ipmi {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.poll(Duration::ZERO, cx, out);
        // A round that is still in progress when the next one is due continues.
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.pending.is_none() {
            self.values = 0;
            self.request(0);
            // Wait once, so that the first tick has values; `--once` has no other tick.
            let patience = if self.is_begun { Duration::ZERO } else { ANSWER_TIME_MAX };
            self.is_begun = true;
            self.poll(patience, cx, out);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn drain(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.poll(Duration::ZERO, cx, out);
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        self.pending.map(|_| LOOK_EVERY)
    }
}

impl Ipmi {
    /// Sends the query with this index; after the last one, ends the round.
    fn request(&mut self, index: usize) {
        let Some(query) = self.queries.get(index) else {
            self.pending = None;
            if self.values == 0 {
                self.failed = Some(SourceError::broken("no sensor of the BMC has a reading"));
            }
            return;
        };
        match self.bmc.begin(&query.request()) {
            Ok(()) => self.pending = Some((index, monotonic_us())),
            Err(error) => self.fail(error),
        }
    }

    /// Handles available answers, waiting at most `patience` for each, and sends the following queries.
    fn poll(&mut self, patience: Duration, cx: &Context<'_>, out: &mut Sink) {
        while let Some((index, since_us)) = self.pending {
            match self.bmc.poll(patience) {
                Ok(Some(answer)) => {
                    if let Some(query) = self.queries.get(index) {
                        let is_value = push(query, answer, &mut self.energy, cx, out);
                        self.values += usize::from(is_value);
                    }
                    self.request(index + 1);
                }
                Ok(None) => {
                    let waited = Duration::from_micros(monotonic_us().saturating_sub(since_us));
                    if waited >= ANSWER_TIME_MAX {
                        self.fail(IpmiError::Late(ANSWER_TIME_MAX));
                    }
                    return;
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// Ends the round: a BMC that does not answer gets no further query in it.
    fn fail(&mut self, error: IpmiError) {
        self.pending = None;
        self.failed = Some(worded(error));
    }
}

/// Pushes the values of an answer; returns whether it has any.
fn push(
    query: &Query,
    answer: &[u8],
    energy: &mut Option<Wrapping>,
    cx: &Context<'_>,
    out: &mut Sink,
) -> bool {
    let mut of = out.of_device();
    match query {
        Query::Sensor { sensor, number } => {
            let Some(value) = sensor.value(answer) else { return false };
            let (metric, value) = in_base_unit(sensor.measures, value);
            of.gauge(metric, &[("sensor", &sensor.name), ("number", number)], value);
        }
        Query::Dcmi => {
            let Some(power) = DcmiPower::parse(answer) else { return false };
            of.gauge(&DCMI_POWER, &[], f64::from(power.now_watts));
            of.gauge(&DCMI_POWER_MEAN, &[], f64::from(power.mean_watts));
        }
        Query::Dell => {
            let Some(power) = DellPower::parse(answer) else { return false };
            of.gauge(&DELL_POWER, &[], f64::from(power.watts));
            of.gauge(&DELL_CURRENT, &[], f64::from(power.deci_amperes) / 10.0);
        }
        Query::DellEnergy => {
            let Some(watt_hours) = DellPower::watt_hours(answer).map(u64::from) else {
                return false;
            };
            let counted = energy.get_or_insert(Wrapping::new(cx.now, watt_hours));
            // An administrator may reset it; it does not wrap within a node's life.
            let a_second = u64::from(WATTS_MAX / 3600);
            let (total, start) = counted.add(cx.now, watt_hours, u64::MAX, a_second);
            if let Some(from) = counted.lost() {
                of.lost(&DELL_ENERGY, &[], from);
            }
            of.counter(&DELL_ENERGY, &[], (total * 3600) as f64, start);
        }
    }
    true
}

fn in_base_unit(measures: Measures, value: f64) -> (&'static Metric, f64) {
    match measures {
        Measures::Celsius => (&TEMPERATURE, value),
        Measures::Fahrenheit => (&TEMPERATURE, (value - 32.0) / 1.8),
        Measures::Kelvin => (&TEMPERATURE, value - 273.15),
        Measures::Volts => (&VOLTAGE, value),
        Measures::Amperes => (&CURRENT, value),
        Measures::Watts => (&POWER, value),
        Measures::TurnsPerMinute => (&FAN, value / 60.0),
        Measures::Percent => (&LEVEL, value / 100.0),
    }
}
