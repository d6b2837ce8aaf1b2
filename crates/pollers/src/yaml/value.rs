//! A node of a YAML document.

/// A value with its place in the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Line, from 1.
    pub line: usize,
    /// The value.
    pub value: Value,
}

/// A value by PyYAML's safe loader.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true`, `yes`, `on` and their opposites.
    Bool(bool),
    /// An integer; YAML itself has no limit.
    Int(i128),
    /// A number with a point, infinity or NaN.
    Float(f64),
    /// A text.
    Text(String),
    /// A date or an instant, as written.
    Time(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values. Each key occurs once; of equal keys the last value counts, as in Python.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// Type of the value, for messages.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Text(_) => "a text",
            Self::Time(_) => "a date",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// The identity of a key: Python considers `1`, `1.0` and `true` the same key.
    pub(crate) fn identity(&self) -> KeyIdentity {
        match self {
            Self::Bool(value) => KeyIdentity::Integer(i128::from(*value)),
            Self::Int(value) => KeyIdentity::Integer(*value),
            Self::Float(value) => match as_integer(*value) {
                Some(integer) => KeyIdentity::Integer(integer),
                None => KeyIdentity::Float(value.to_bits()),
            },
            Self::Text(text) => KeyIdentity::Text(text.clone()),
            Self::Time(text) => KeyIdentity::Time(text.clone()),
            Self::Null | Self::List(_) | Self::Map(_) => KeyIdentity::Null,
        }
    }
}

/// What makes two keys of a map the same. Lists and maps are never keys.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) enum KeyIdentity {
    Null,
    Integer(i128),
    Float(u64),
    Text(String),
    Time(String),
}

/// The integer that equals a float.
#[expect(
    clippy::cast_possible_truncation,
    clippy::as_conversions,
    reason = "the limits of the conversion are checked"
)]
fn as_integer(value: f64) -> Option<i128> {
    let fits = value.abs() < 2f64.powi(126) && value.fract() == 0.0;
    fits.then_some(value as i128)
}
