//! Answers of a BMC as structs: its identity, its sensors' records and readings, its power.

/// Longest record of a sensor: its header and a body with a length of one byte.
pub const RECORD_BYTES_MAX: usize = 5 + 255;
/// The BMC's own address on its bus, in records.
const BMC: u8 = 0x20;
/// Type of a full sensor record (§43.1). Compact ones (02h, §43.2) have no factors, so no numbers.
const FULL: u8 = 0x01;
/// Event and reading type of sensors with thresholds, the only ones that read numbers (§42.1).
const THRESHOLD: u8 = 0x01;

/// The maker of the BMC (Get Device ID, §20.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Enterprise number of its maker.
    pub maker: u32,
}

impl Identity {
    /// Enterprise number of Dell.
    pub const DELL: u32 = 674;

    /// Reads an answer from its completion code on.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let data = good(answer)?;
        let maker = [*data.get(6)?, *data.get(7)?, *data.get(8)?, 0];
        Some(Self { maker: u32::from_le_bytes(maker) & 0x000f_ffff })
    }
}

/// What a numeric sensor measures (table 43-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measures {
    /// Temperature, in degrees Celsius.
    Celsius,
    /// The same, in degrees Fahrenheit.
    Fahrenheit,
    /// The same, in kelvins.
    Kelvin,
    /// Voltage.
    Volts,
    /// Current.
    Amperes,
    /// Power.
    Watts,
    /// Revolutions of a fan per minute.
    TurnsPerMinute,
    /// A percentage.
    Percent,
}

/// A record of the repository.
#[derive(Clone, Debug, PartialEq)]
pub enum SensorRecord {
    /// A numeric sensor of the BMC itself.
    Analog(Analog),
    /// A numeric sensor that is not readable here: of another controller, of a unit without a metric, or with a
    /// curve that only the BMC knows.
    Other,
    /// Anything else: states, locations, names.
    NoNumber,
}

/// A numeric sensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Analog {
    /// The ID of its record.
    pub id: u16,
    /// Its number within its unit of the BMC.
    pub number: u8,
    /// Its unit of the BMC.
    pub unit: u8,
    /// What it measures.
    pub measures: Measures,
    /// Its name, as given by its maker.
    pub name: Box<str>,
    format: Format,
    m: i16,
    b: i16,
    b_exponent: i8,
    exponent: i8,
    curve: Curve,
}

/// The encoding of a reading's byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Unsigned,
    OnesComplement,
    TwosComplement,
}

/// The final conversion of a number (§36.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Curve {
    Linear,
    Ln,
    Log10,
    Log2,
    Exp,
    Exp10,
    Exp2,
    Inverse,
    Square,
    Cube,
    SquareRoot,
    CubeRoot,
}

const CURVES: [Curve; 12] = [
    Curve::Linear,
    Curve::Ln,
    Curve::Log10,
    Curve::Log2,
    Curve::Exp,
    Curve::Exp10,
    Curve::Exp2,
    Curve::Inverse,
    Curve::Square,
    Curve::Cube,
    Curve::SquareRoot,
    Curve::CubeRoot,
];

impl SensorRecord {
    /// Parses a whole record; `None` if truncated.
    pub fn parse(record: &[u8]) -> Option<Self> {
        let at = |place: usize| record.get(place).copied();
        let length = usize::from(at(4)?);
        let record = record.get(..5 + length)?;
        if at(3)? != FULL {
            return Some(Self::NoNumber);
        }
        let at = |place: usize| record.get(place).copied();
        let (owner, place, number, kind) = (at(5)?, at(6)?, at(7)?, at(13)?);
        let (units, base, modifier) = (at(20)?, at(21)?, at(22)?);
        let format = match units >> 6 {
            0 => Format::Unsigned,
            1 => Format::OnesComplement,
            2 => Format::TwosComplement,
            _ => return Some(Self::NoNumber),
        };
        if kind != THRESHOLD {
            return Some(Self::NoNumber);
        }
        let curve = CURVES.get(usize::from(at(23)? & 0x7f)).copied();
        // Rates and composed units are not supported.
        let is_plain = units & 0x3e == 0 && modifier == 0;
        let (Some(measures), Some(curve), BMC, 0, true) =
            (measures(units, base), curve, owner, place >> 4, is_plain)
        else {
            return Some(Self::Other);
        };
        let (m, b) = (ten_bits(at(24)?, at(25)?), ten_bits(at(26)?, at(27)?));
        let exponents = at(29)?;
        let name = name(at(47)?, record.get(48..)?);
        let (b_exponent, exponent) = (four_bits(exponents), four_bits(exponents >> 4));
        let unit = place & 3;
        let id = u16_at(record, 0)?;
        Some(Self::Analog(Analog {
            id,
            number,
            unit,
            measures,
            name,
            format,
            m,
            b,
            b_exponent,
            exponent,
            curve,
        }))
    }
}

fn measures(units: u8, base: u8) -> Option<Measures> {
    Some(match (units & 1, base) {
        (1, _) => Measures::Percent,
        (_, 1) => Measures::Celsius,
        (_, 2) => Measures::Fahrenheit,
        (_, 3) => Measures::Kelvin,
        (_, 4) => Measures::Volts,
        (_, 5) => Measures::Amperes,
        (_, 6) => Measures::Watts,
        (_, 18) => Measures::TurnsPerMinute,
        _ => return None,
    })
}

/// A signed number of ten bits; the second byte begins with its upper two.
fn ten_bits(low: u8, high: u8) -> i16 {
    let bits = i16::from(high >> 6) << 8 | i16::from(low);
    if bits >= 512 { bits - 1024 } else { bits }
}

fn four_bits(bits: u8) -> i8 {
    let bits = i8::try_from(bits & 0x0f).unwrap_or(0);
    if bits >= 8 { bits - 16 } else { bits }
}

/// A name by its type and length (§43.15): Latin-1, six bits a character, decimal digits, or else hexadecimal.
fn name(kind: u8, bytes: &[u8]) -> Box<str> {
    let bytes = bytes.get(..usize::from(kind & 0x1f)).unwrap_or(bytes);
    let text: String = match kind >> 6 {
        3 => bytes.iter().map(|byte| char::from(*byte)).collect(),
        2 => sixes(bytes).map(|six| char::from(six + 0x20)).collect(),
        1 => {
            let nibbles = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0f]);
            let digit = |nibble: u8| b"0123456789 -.:,_".get(usize::from(nibble)).copied();
            nibbles.filter_map(digit).map(char::from).collect()
        }
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let is_shown = |c: &char| !c.is_control();
    text.trim_end_matches('\0').chars().filter(is_shown).collect::<String>().trim().into()
}

/// Groups of six bits, the lowest first.
fn sixes(bytes: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let bit = move |at: usize| bytes.get(at / 8).map_or(0, |byte| byte >> (at % 8) & 1);
    (0..bytes.len() * 8 / 6)
        .map(move |place| (0..6).fold(0, |six, step| six | bit(place * 6 + step) << step))
}

impl Analog {
    /// The value in an answer to Get Sensor Reading (§35.14), from its completion code on. `None` while the sensor
    /// has none: it is missing, its part is off, or it is not scanned.
    pub fn value(&self, answer: &[u8]) -> Option<f64> {
        let [raw, flags, ..] = good(answer)? else { return None };
        let (is_unavailable, is_scanned) = (flags & 0x20 != 0, flags & 0x40 != 0);
        (is_scanned && !is_unavailable).then(|| self.number_of(*raw)).filter(|n| n.is_finite())
    }

    /// The value of a reading's byte (§36.3).
    fn number_of(&self, raw: u8) -> f64 {
        let x = match self.format {
            Format::Unsigned => f64::from(raw),
            Format::TwosComplement => f64::from(raw.cast_signed()),
            // The second of the two zeroes.
            Format::OnesComplement if raw == 0xff => 0.0,
            Format::OnesComplement if raw & 0x80 != 0 => -f64::from(!raw),
            Format::OnesComplement => f64::from(raw),
        };
        let ten = |exponent: i8| 10_f64.powi(i32::from(exponent));
        let offset = f64::from(self.b) * ten(self.b_exponent);
        let sum = f64::from(self.m) * x + offset;
        // Division is more exact than multiplication by a fraction, which no double represents exactly.
        let y = match self.exponent {
            exponent if exponent < 0 => sum / ten(-exponent),
            exponent => sum * ten(exponent),
        };
        match self.curve {
            Curve::Linear => y,
            Curve::Ln => y.ln(),
            Curve::Log10 => y.log10(),
            Curve::Log2 => y.log2(),
            Curve::Exp => y.exp(),
            Curve::Exp10 => 10_f64.powf(y),
            Curve::Exp2 => y.exp2(),
            Curve::Inverse => y.recip(),
            Curve::Square => y.powi(2),
            Curve::Cube => y.powi(3),
            Curve::SquareRoot => y.sqrt(),
            Curve::CubeRoot => y.cbrt(),
        }
    }
}

/// The whole node's power (Get Power Reading, DCMI 1.5 §6.6.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcmiPower {
    /// Current watts.
    pub now_watts: u16,
    /// Mean watts over the BMC's own sampling time.
    pub mean_watts: u16,
}

impl DcmiPower {
    /// Parses an answer from its completion code on; `None` if rejected, truncated, or power is not measured.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let data = good(answer).filter(|data| data.first() == Some(&0xdc))?;
        let is_measured = data.get(17)? & 0x40 != 0;
        is_measured.then_some(Self { now_watts: u16_at(data, 1)?, mean_watts: u16_at(data, 7)? })
    }
}

/// The whole node's power as reported by Dell's own BMC commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DellPower {
    /// Current watts.
    pub watts: u16,
    /// Current tenths of an ampere.
    pub deci_amperes: u16,
}

impl DellPower {
    /// Reads an answer to 30h/B3h with the data 0Ah 00h, from its completion code on.
    pub fn parse(answer: &[u8]) -> Option<Self> {
        let data = good(answer)?;
        Some(Self { watts: u16_at(data, 0)?, deci_amperes: u16_at(data, 2)? })
    }

    /// The counted watt hours, from an answer to 30h/9Ch with the data 07h 01h, from its completion code on.
    pub fn watt_hours(answer: &[u8]) -> Option<u32> {
        let data = good(answer)?;
        let counted = data.get(4..8)?.try_into().ok()?;
        Some(u32::from_le_bytes(counted))
    }
}

/// The data of an answer with a good completion code.
pub(super) fn good(answer: &[u8]) -> Option<&[u8]> {
    match answer {
        [0, data @ ..] => Some(data),
        _ => None,
    }
}

pub(super) fn u16_at(data: &[u8], place: usize) -> Option<u16> {
    Some(u16::from_le_bytes([*data.get(place)?, *data.get(place + 1)?]))
}

#[cfg(test)]
mod tests;
