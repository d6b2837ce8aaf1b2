//! `to_timestamp(seconds)` as in PostgreSQL: an instant, whatever the time zone of the statement. The engine's function
//! takes the seconds as a local time. For texts it is used as it is.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::array::TimestampMicrosecondArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type, Int64Type, TimeUnit};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Name of the function that this one replaces.
pub(crate) const TO_TIMESTAMP: &str = "to_timestamp";
/// Seconds beyond which a time has no microseconds in 64 bits.
const SECONDS_MAX: f64 = 9.0e12;

/// `to_timestamp(seconds)`.
#[derive(Debug)]
pub(crate) struct ToTimestamp {
    inner: Arc<ScalarUDF>,
    zone: Arc<str>,
}

impl ToTimestamp {
    /// Wraps the engine's function.
    pub(crate) fn function(inner: Arc<ScalarUDF>, zone: &str) -> ScalarUDF {
        ScalarUDF::from(Self { inner, zone: Arc::from(zone) })
    }

    fn data_type(&self) -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::clone(&self.zone)))
    }
}

impl PartialEq for ToTimestamp {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner && self.zone == other.zone
    }
}

impl Eq for ToTimestamp {}

impl Hash for ToTimestamp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for ToTimestamp {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        internal_err!("the type of to_timestamp follows from its arguments")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields {
            [seconds] if seconds.data_type().is_numeric() => {
                Ok(Arc::new(Field::new(self.name(), self.data_type(), true)))
            }
            _ => self.inner.return_field_from_args(args),
        }
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [seconds] = args.args.as_slice() else { return self.inner.invoke_with_args(args) };
        if !seconds.data_type().is_numeric() {
            return self.inner.invoke_with_args(args);
        }
        let seconds = seconds.to_array(args.number_rows)?;
        let times: TimestampMicrosecondArray = match seconds.data_type().is_integer() {
            true => cast(&seconds, &DataType::Int64)?
                .as_primitive::<Int64Type>()
                .iter()
                .map(|seconds| seconds?.checked_mul(1_000_000))
                .collect(),
            false => cast(&seconds, &DataType::Float64)?
                .as_primitive::<Float64Type>()
                .iter()
                .map(|seconds| micros(seconds?))
                .collect(),
        };
        Ok(ColumnarValue::Array(Arc::new(times.with_timezone(Arc::clone(&self.zone)))))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "bounded before")]
fn micros(seconds: f64) -> Option<i64> {
    (seconds.abs() <= SECONDS_MAX).then(|| (seconds * 1e6).round() as i64)
}
