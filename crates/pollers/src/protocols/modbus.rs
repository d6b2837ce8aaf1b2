//! Modbus TCP: URLs of registers.

use super::{LATE, MEANING, NO_ANSWER, Parsed, Protocol, ProtocolSpec, Request, one_of};
use crate::url::UrlParts;
use model::Cause;

pub(super) const SPEC: ProtocolSpec = ProtocolSpec {
    protocol: Protocol::Modbus,
    name: "modbus",
    schemes: &["modbus"],
    help: "Numbers in registers, over Modbus TCP.",
    urls: &[(
        "modbus://HOST[:PORT]/UNIT/REGISTER/FORMAT[?table=holding|input]",
        "A number in one to four registers.",
    )],
    parts: &[
        ("PORT", "502", "TCP port."),
        ("UNIT", "", "Unit behind the address, 0 to 255."),
        ("REGISTER", "", "Address of the first register, 0 to 65535."),
        (
            "FORMAT",
            "",
            "Byte order, word order (`be` or `le`) and type (i16, u16, i32, u32, i64, u64, f32 or f64), as `be_le_u32`.",
        ),
        ("table", "holding", "Table of the registers: holding (function 3) or input (function 4)."),
    ],
    values: MEANING,
    failures: &[
        NO_ANSWER,
        (
            Cause::SourceBroken,
            "The host cannot be reached; the device reports an exception, by its name; the response has too few registers.",
        ),
        LATE,
    ],
    examples: &[
        "- name: pdu_voltage_volt\n  device_id: meter-1\n  url: modbus://meter-1/1/4096/be_be_f32?table=input\n",
    ],
    parse,
};

const PORT: u16 = 502;

/// A number in registers of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModbusRequest {
    /// Unit behind the address.
    pub unit: u8,
    /// Address of the first register, from 0.
    pub register: u16,
    /// The number's encoding.
    pub format: ModbusFormat,
    /// The table that holds the registers.
    pub table: RegisterTable,
}

/// The encoding of a number: `be_le_u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModbusFormat {
    /// Order of the two bytes of a register.
    pub bytes: ByteOrder,
    /// Order of the registers.
    pub words: ByteOrder,
    /// Type of the number.
    pub number: NumberType,
}

/// Which part comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The most significant part.
    Big,
    /// The least significant part.
    Little,
}

/// Type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say all")]
pub enum NumberType {
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl NumberType {
    /// All types.
    pub const ALL: [Self; 8] =
        [Self::I16, Self::U16, Self::I32, Self::U32, Self::I64, Self::U64, Self::F32, Self::F64];

    /// Number of registers.
    pub const fn registers(self) -> u16 {
        match self {
            Self::I16 | Self::U16 => 1,
            Self::I32 | Self::U32 | Self::F32 => 2,
            Self::I64 | Self::U64 | Self::F64 => 4,
        }
    }
}

/// A table of registers (Modbus Application Protocol 1.1b3, sections 6.3 and 6.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegisterTable {
    /// Function 3.
    Holding,
    /// Function 4.
    Input,
}

fn parse(parts: &UrlParts) -> Result<Parsed, String> {
    parts.no_fragment()?;
    parts.only_parameters(&["table"])?;
    if parts.user.is_some() || parts.password.is_some() {
        return Err("Modbus knows no users; remove the text before `@`".into());
    }
    let fields: Vec<&str> = parts.path.split('/').collect();
    let [unit, register, format] = fields[..] else {
        return Err("the path has three parts".into());
    };
    let number = |what: &str, text: &str, most: u16| {
        let number = text.parse::<u16>().ok().filter(|number| *number <= most);
        number.ok_or_else(|| format!("{what} `{}` is not 0 to {most}", text.escape_debug()))
    };
    let unit = u8::try_from(number("unit", unit, u8::MAX.into())?).unwrap_or(u8::MAX);
    let register = number("register", register, u16::MAX)?;
    let format = self::format(format)?;
    if register.checked_add(format.number.registers() - 1).is_none() {
        return Err("the number ends after register 65535".into());
    }
    let tables = [("holding", RegisterTable::Holding), ("input", RegisterTable::Input)];
    let table = parts.parameter("table").unwrap_or("holding");
    let table = one_of("table", table, &tables)?;
    Ok(Parsed {
        protocol: Protocol::Modbus,
        is_tls: false,
        port: PORT,
        user: None,
        request: Request::Modbus(ModbusRequest { unit, register, format, table }),
    })
}

fn format(text: &str) -> Result<ModbusFormat, String> {
    let fields: Vec<&str> = text.split('_').collect();
    let [bytes, words, number] = fields[..] else {
        return Err("FORMAT is byte order, word order and type, as `le_le_f32`".into());
    };
    let orders = [("be", ByteOrder::Big), ("le", ByteOrder::Little)];
    let types = [
        ("i16", NumberType::I16),
        ("u16", NumberType::U16),
        ("i32", NumberType::I32),
        ("u32", NumberType::U32),
        ("i64", NumberType::I64),
        ("u64", NumberType::U64),
        ("f32", NumberType::F32),
        ("f64", NumberType::F64),
    ];
    Ok(ModbusFormat {
        bytes: one_of("byte order", bytes, &orders)?,
        words: one_of("word order", words, &orders)?,
        number: one_of("type", number, &types)?,
    })
}
