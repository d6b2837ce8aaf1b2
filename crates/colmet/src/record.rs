//! One record of any format: the values of one backend, of one job or of the node, at one instant.

use crate::backends::{Backend, Column, ColumnType, INVOLVED_JOBS_BYTES};
use model::{DeviceId, NameError, Timestamp};

/// The number of the job in records of nodes: no job.
pub const NO_JOB: u64 = 0;

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The backend; its columns are those of `values`.
    pub backend: &'static Backend,
    /// The host's name as sent, possibly with a domain.
    pub host: String,
    /// The job's number; [`NO_JOB`] in records of nodes.
    pub job: u64,
    /// The instant. Python nodes send whole seconds, Rust nodes milliseconds.
    pub at: Timestamp,
    /// The value of each column. `None`: the sender has none (-1), or its version lacks the column.
    pub values: Vec<Option<Value>>,
}

/// A value of a record, in Colmet's unit.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`ColumnType::Unsigned`] and [`ColumnType::UnsignedShort`].
    Unsigned(u64),
    /// Of [`ColumnType::Signed`]; never -1, which is no value.
    Signed(i64),
    /// Of [`ColumnType::Float`]; never -1, which is no value.
    Float(f32),
    /// Of [`ColumnType::Text`].
    Text(Box<str>),
}

impl Record {
    /// A record without values.
    pub fn new(backend: &'static Backend, host: &str, job: u64, at: Timestamp) -> Self {
        let values = vec![None; backend.columns.len()];
        Self { backend, host: host.to_owned(), job, at, values }
    }

    /// The device: the host's name up to the first dot, as agents name theirs.
    ///
    /// # Errors
    /// The name is not that of a device.
    pub fn device(&self) -> Result<DeviceId, NameError> {
        DeviceId::new(self.host.split('.').next().unwrap_or_default())
    }

    /// The columns with their values.
    pub fn columns(&self) -> impl Iterator<Item = (&'static Column, Option<&Value>)> {
        let values = self.values.iter().map(Option::as_ref);
        self.backend.columns.iter().zip(values.chain(std::iter::repeat(None)))
    }

    /// The value of the column with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(self.backend.position(name)?)?.as_ref()
    }

    /// Changes the value of the column with this name, if the backend has one.
    pub fn set(&mut self, name: &str, value: Value) {
        let slot = self.backend.position(name).and_then(|place| self.values.get_mut(place));
        if let Some(slot) = slot {
            *slot = Some(value);
        }
    }
}

impl Value {
    /// A number of ours in a column of this type, in Colmet's unit. Whole numbers are restored by rounding. `None` if the
    /// type cannot hold it, and for -1, which means no value.
    pub fn of(kind: ColumnType, number: f64) -> Option<Self> {
        /// 2^63 and 2^64, the first numbers that the types cannot hold.
        const ENDS: [f64; 2] = [9_223_372_036_854_775_808.0, 18_446_744_073_709_551_616.0];
        let whole = number.round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and in the type's range, checked beside each; a float column has less precision by its type"
        )]
        match kind {
            ColumnType::Unsigned if (0.0..ENDS[1]).contains(&whole) => {
                Some(Self::Unsigned(whole as u64))
            }
            ColumnType::UnsignedShort if (0.0..=f64::from(u32::MAX)).contains(&whole) => {
                Some(Self::Unsigned(whole as u64))
            }
            ColumnType::Signed if (-ENDS[0]..ENDS[0]).contains(&whole) && whole != -1.0 => {
                Some(Self::Signed(whole as i64))
            }
            ColumnType::Float if number.is_finite() && number as f32 != -1.0 => {
                Some(Self::Float(number as f32))
            }
            _ => None,
        }
    }

    /// What a column of this type contains instead of a value: -1, where the type has it.
    pub fn missing(kind: ColumnType) -> Self {
        match kind {
            ColumnType::Unsigned | ColumnType::UnsignedShort => Self::Unsigned(0),
            ColumnType::Signed => Self::Signed(-1),
            ColumnType::Float => Self::Float(-1.0),
            ColumnType::Text => Self::Text("".into()),
        }
    }

    /// Whether this is [`Self::missing`] of a type that has -1.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Signed(-1)) || *self == Self::Float(-1.0)
    }

    /// The number; `None` for texts, infinities and NaN. Above 2^53 the last digits are lost.
    pub fn number(&self) -> Option<f64> {
        let number = match self {
            Self::Unsigned(number) => *number as f64,
            Self::Signed(number) => *number as f64,
            Self::Float(number) => f64::from(*number),
            Self::Text(_) => return None,
        };
        number.is_finite().then_some(number)
    }
}

/// The text `involved_jobs` of jobs, such as `[1234, 5678]`. It ends after the last number with which the list has at most
/// [`INVOLVED_JOBS_BYTES`].
pub fn involved_jobs(jobs: impl IntoIterator<Item = u64>) -> String {
    let mut text = String::from("[");
    for job in jobs {
        let separator = if text.len() > 1 { ", " } else { "" };
        let next = format!("{separator}{job}");
        if text.len() + next.len() >= INVOLVED_JOBS_BYTES {
            break;
        }
        text.push_str(&next);
    }
    text.push(']');
    text
}

/// The jobs of a text `involved_jobs`; `None` if it is no list of whole numbers.
pub fn jobs_of(text: &str) -> Option<Vec<u64>> {
    let list = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    if list.trim().is_empty() {
        return Some(Vec::new());
    }
    list.split(',').map(|job| job.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::{INFINIBAND, PROCSTATS};
    use proptest::prelude::*;

    #[test]
    fn values_are_found_by_name() {
        let mut record = Record::new(&INFINIBAND, "node-1.cluster", NO_JOB, Timestamp(0));
        record.set("portRcvPkts", Value::Signed(7));
        record.set("nothing", Value::Signed(8));
        assert_eq!(record.get("portRcvPkts"), Some(&Value::Signed(7)));
        assert_eq!(record.values, [None, None, None, Some(Value::Signed(7)), None]);
        assert_eq!(record.columns().filter(|(_, value)| value.is_some()).count(), 1);
        assert_eq!(record.device().unwrap().as_str(), "node-1");
        assert!(Record::new(&PROCSTATS, ".cluster", NO_JOB, Timestamp(0)).device().is_err());
    }

    #[test]
    fn numbers_that_a_column_cannot_hold_are_missing() {
        use ColumnType::{Float, Signed, Text, Unsigned, UnsignedShort};
        for (kind, number, value) in [
            (Unsigned, 41.6, Some(Value::Unsigned(42))),
            (Unsigned, -0.4, Some(Value::Unsigned(0))),
            (Unsigned, -1.0, None),
            (Unsigned, 2f64.powi(64), None),
            (UnsignedShort, 4_294_967_295.0, Some(Value::Unsigned(4_294_967_295))),
            (UnsignedShort, 4_294_967_296.0, None),
            (Signed, -2.0, Some(Value::Signed(-2))),
            (Signed, -2f64.powi(63), Some(Value::Signed(i64::MIN))),
            (Signed, -1.2, None),
            (Signed, 2f64.powi(63), None),
            (Signed, f64::NAN, None),
            (Float, 0.25, Some(Value::Float(0.25))),
            (Float, f64::INFINITY, None),
            (Float, -1.0, None),
            (Text, 1.0, None),
        ] {
            assert_eq!(Value::of(kind, number), value, "{kind:?} {number}");
        }
        for kind in [Unsigned, Signed, Float, Text] {
            let missing = Value::missing(kind);
            assert_eq!(missing.is_missing(), matches!(kind, Signed | Float), "{kind:?}");
        }
    }

    #[test]
    fn a_list_of_jobs_ends_after_the_last_number_that_fits() {
        assert_eq!(involved_jobs([]), "[]");
        assert_eq!(involved_jobs([1234, 5678]), "[1234, 5678]");
        let text = involved_jobs(100_000..200_000);
        // 8 bytes for each job, and no separator before the first.
        assert_eq!(jobs_of(&text).unwrap(), (100_000..101_024).collect::<Vec<_>>());
        assert_eq!(text.len(), INVOLVED_JOBS_BYTES);
        for text in ["", "[", "]", "[1,]", "[a]", "{}", "[-1]", "[1] 2"] {
            assert_eq!(jobs_of(text), None, "{text}");
        }
        assert_eq!(jobs_of(" [ 1,2 ,3 ] ").unwrap(), [1, 2, 3]);
    }

    proptest! {
        #[test]
        fn lists_of_jobs_are_read_as_written(jobs in prop::collection::vec(any::<u64>(), 0..600)) {
            let text = involved_jobs(jobs.iter().copied());
            let read = jobs_of(&text).unwrap();
            prop_assert!(text.len() <= INVOLVED_JOBS_BYTES && jobs.starts_with(&read));
            prop_assert!(read.len() == jobs.len() || text.len() + 22 > INVOLVED_JOBS_BYTES);
        }
    }
}
