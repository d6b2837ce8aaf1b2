//! What the board's own computer (BMC) tells: temperatures, voltages, currents, fans, power; and the whole node's power.
//!
//! Asks it through `/dev/ipmi0`, see [`kernel::ipmi`], and starts no program:
//!
//! ```text
//! Get SDR              each sensor's name, unit and factors, once, when the source is opened
//! Get Sensor Reading   each sensor that reads numbers
//! Get Power Reading    the node's power (DCMI 1.5 §6.6.1), where the BMC knows it
//! 30h/B3h, 30h/9Ch     the node's power, current and energy, where the BMC is Dell's
//! ```
//!
//! A sensor has the labels `sensor`, its maker's name, and `number`, its own; within a unit of the BMC other than the
//! first, the unit's stands before it: `1:106`. One that is off, absent or not scanned gives no sample. Not told:
//! sensors of states, of other controllers, of units without a metric, of curves that only the BMC knows.
//!
//! BMCs are slow: milliseconds to a tenth of a second a request. So this source is read rarely, sends one request
//! at a time, and does not wait for it: it looks for the answer every 5 ms and goes on. Only at the first reading it
//! waits. Samples carry the instant of their answer.

use crate::reading::parts::{Choice, exclude, include};
use crate::reading::wrapping::Wrapping;
use crate::source::sane::STUCK_SECONDS;
use crate::{Context, Every, Open, Sane, Sink, Source, SourceError, SourceSpec};
use kernel::clock::monotonic_us;
use kernel::ipmi::{
    ANSWER_TIME_MAX, Analog, Bmc, DcmiPower, DellPower, Identity, IpmiError, Measures, Request,
    read_repository,
};
use model::{Metric, Unit};
use std::time::Duration;

/// How often an answer is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// No node takes more power.
const WATTS_MAX: u32 = 100_000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "ipmi",
    help: "Sensors of the board's own computer, and the whole node's power as that tells it.",
    reads: &["/dev/ipmi0"],
    cost: "some tens of microseconds a sensor; the answers take milliseconds each, for which nobody waits",
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
        Sane::of(&TEMPERATURE).within(-60.0, 200.0),
        Sane::of(&VOLTAGE).within(-60.0, 1000.0),
        Sane::of(&CURRENT).within(-1000.0, 1000.0),
        // A supply that stands by takes 0 W for ever.
        Sane::of(&POWER).within(0.0, WATTS_MAX as f64),
        Sane::of(&FAN).within(0.0, 2000.0),
        Sane::of(&LEVEL).within(0.0, 10.0),
        // A node that runs takes some power.
        Sane::of(&DCMI_POWER).within(1.0, 60_000.0).never(&[65_535.0]).stuck(STUCK_SECONDS),
        Sane::of(&DCMI_POWER_MEAN).within(1.0, 60_000.0).never(&[65_535.0]),
        Sane::of(&DELL_POWER).within(1.0, 60_000.0).never(&[65_535.0]).stuck(STUCK_SECONDS),
        Sane::of(&DELL_CURRENT).within(0.0, 1000.0),
    ],
    options: &[
        include("Only these sensors: names, or patterns with `*`; none means all."),
        exclude("", "Sensors to leave out if `include` names none: names, or patterns with `*`."),
    ],
    open,
};

static TEMPERATURE: Metric =
    Metric::gauge("ipmi_temperature_celsius", Unit::Celsius, "Temperature at a sensor.");
static VOLTAGE: Metric = Metric::gauge("ipmi_voltage_volts", Unit::Volts, "Voltage at a sensor.");
static CURRENT: Metric =
    Metric::gauge("ipmi_current_amperes", Unit::Amperes, "Current at a sensor.");
static POWER: Metric = Metric::gauge("ipmi_power_watts", Unit::Watts, "Power at a sensor.");
static FAN: Metric = Metric::gauge("ipmi_fan_hertz", Unit::Hertz, "Turns of a fan in a second.");
static LEVEL: Metric = Metric::gauge(
    "ipmi_level_ratio",
    Unit::Ratio,
    "Share of some whole at a sensor, such as a fan's drive or a part's use.",
)
.steps(100);
static DCMI_POWER: Metric =
    Metric::gauge("ipmi_dcmi_power_watts", Unit::Watts, "Power of the node, as DCMI has it.");
static DCMI_POWER_MEAN: Metric = Metric::gauge(
    "ipmi_dcmi_power_mean_watts",
    Unit::Watts,
    "Power of the node, the mean of the time that the BMC chooses.",
);
static DELL_POWER: Metric =
    Metric::gauge("ipmi_dell_power_watts", Unit::Watts, "Power of the node, by a Dell BMC.");
static DELL_CURRENT: Metric = Metric::gauge(
    "ipmi_dell_current_amperes",
    Unit::Amperes,
    "Current that the node takes, by a Dell BMC.",
)
.steps(10);
static DELL_ENERGY: Metric = Metric::counter(
    "ipmi_dell_energy_joules_total",
    Unit::Joules,
    "Energy of the node since a Dell BMC was first asked, in steps of a watt hour.",
);

/// What is asked in each round.
#[derive(Debug)]
enum Question {
    Sensor { sensor: Analog, number: Box<str> },
    Dcmi,
    Dell,
    DellEnergy,
}

impl Question {
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
    questions: Vec<Question>,
    /// The question whose answer is waited for, and since when; none between two rounds.
    asked: Option<(usize, u64)>,
    /// Samples of this round.
    told: usize,
    /// How the last round failed, until the next tick tells it.
    failed: Option<SourceError>,
    is_begun: bool,
    energy: Option<Wrapping>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let mut bmc = Bmc::open(open.root).map_err(worded)?;
    let choice = Choice::of(open.options);
    let identity = bmc.ask(&Request::new(0x06, 0, 0x01, &[])).map_err(worded)?;
    let identity = Identity::parse(identity)
        .ok_or_else(|| SourceError::broken("the BMC does not tell what it is"))?;
    let mut questions = Vec::new();
    for sensor in read_repository(&mut bmc).map_err(worded)?.sensors {
        if choice.says(&sensor.name).unwrap_or(true) {
            // Each unit of the BMC counts its own.
            let number = match sensor.unit {
                0 => sensor.number.to_string(),
                unit => format!("{unit}:{}", sensor.number),
            };
            let number = number.into();
            questions.push(Question::Sensor { sensor, number });
        }
    }
    // Asked once whether they are known at all: what a BMC refuses it is not asked for again and again.
    if bmc.ask(&Question::Dcmi.request()).map_err(worded)?.first() == Some(&0) {
        questions.push(Question::Dcmi);
    }
    if identity.maker == Identity::DELL {
        if DellPower::parse(bmc.ask(&Question::Dell.request()).map_err(worded)?).is_some() {
            questions.push(Question::Dell);
        }
        let energy = bmc.ask(&Question::DellEnergy.request()).map_err(worded)?;
        if DellPower::watt_hours(energy).is_some() {
            questions.push(Question::DellEnergy);
        }
    }
    if questions.is_empty() {
        return Err(SourceError::absent(open.options.nothing(
            &SPEC,
            &["include", "exclude"],
            [
                "the BMC has no sensor of numbers",
                "the BMC has no sensor of numbers that the options choose",
            ],
        )));
    }
    Ok(Box::new(Ipmi {
        bmc,
        questions,
        asked: None,
        told: 0,
        failed: None,
        is_begun: false,
        energy: None,
    }))
}

fn worded(error: IpmiError) -> SourceError {
    match error {
        IpmiError::Absent(why) => SourceError::absent(why),
        IpmiError::Denied(why) => SourceError::denied(why, "read and write on it"),
        late @ IpmiError::Late(_) => SourceError::broken(format!("timed out: {late}")),
        IpmiError::Failed(why) => SourceError::broken(why),
    }
}

impl Source for Ipmi {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.go_on(Duration::ZERO, cx, out);
        // A round that is still under way when the next is due goes on.
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        if self.asked.is_none() {
            self.told = 0;
            self.ask(0);
            // So that the first tick has numbers; where there is but one, they are the only ones.
            let patience = if self.is_begun { Duration::ZERO } else { ANSWER_TIME_MAX };
            self.is_begun = true;
            self.go_on(patience, cx, out);
        }
        self.failed.take().map_or(Ok(()), Err)
    }

    fn drain(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.go_on(Duration::ZERO, cx, out);
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        self.asked.map(|_| LOOK_EVERY)
    }
}

impl Ipmi {
    /// Asks a question, if there is one of that place; else the round is over.
    fn ask(&mut self, place: usize) {
        let Some(question) = self.questions.get(place) else {
            self.asked = None;
            if self.told == 0 {
                self.failed = Some(SourceError::broken("the BMC has no reading of any sensor"));
            }
            return;
        };
        match self.bmc.begin(&question.request()) {
            Ok(()) => self.asked = Some((place, monotonic_us())),
            Err(error) => self.fail(error),
        }
    }

    /// Takes the answers that are there, each for `patience` at most, and asks on.
    fn go_on(&mut self, patience: Duration, cx: &Context<'_>, out: &mut Sink) {
        while let Some((place, since_us)) = self.asked {
            match self.bmc.poll(patience) {
                Ok(Some(answer)) => {
                    if let Some(question) = self.questions.get(place) {
                        self.told += usize::from(tell(question, answer, &mut self.energy, cx, out));
                    }
                    self.ask(place + 1);
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

    /// Ends the round: a BMC that does not answer one question is not asked the next.
    fn fail(&mut self, error: IpmiError) {
        self.asked = None;
        self.failed = Some(worded(error));
    }
}

/// Tells what an answer says; whether it says anything.
fn tell(
    question: &Question,
    answer: &[u8],
    energy: &mut Option<Wrapping>,
    cx: &Context<'_>,
    out: &mut Sink,
) -> bool {
    let mut of = out.of_device();
    match question {
        Question::Sensor { sensor, number } => {
            let Some(value) = sensor.value(answer) else { return false };
            let (metric, value) = in_base_unit(sensor.measures, value);
            of.gauge(metric, &[("sensor", &sensor.name), ("number", number)], value);
        }
        Question::Dcmi => {
            let Some(power) = DcmiPower::parse(answer) else { return false };
            of.gauge(&DCMI_POWER, &[], f64::from(power.now_watts));
            of.gauge(&DCMI_POWER_MEAN, &[], f64::from(power.mean_watts));
        }
        Question::Dell => {
            let Some(power) = DellPower::parse(answer) else { return false };
            of.gauge(&DELL_POWER, &[], f64::from(power.watts));
            of.gauge(&DELL_CURRENT, &[], f64::from(power.deci_amperes) / 10.0);
        }
        Question::DellEnergy => {
            let Some(watt_hours) = DellPower::watt_hours(answer).map(u64::from) else {
                return false;
            };
            let counted = energy.get_or_insert(Wrapping::new(cx.now, watt_hours));
            // Somebody may set it to zero; it does not go round within a node's life.
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
