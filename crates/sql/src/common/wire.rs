//! Statements of PostgreSQL's protocol: their parameters, and the types of their columns.

use crate::common::schema::is_json;
use datafusion::arrow::datatypes::{DataType, Field};
use pg_wire::oid;

/// A statement of PostgreSQL's protocol, besides its text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WireStatement {
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Whether result columns are binary: none, one for all, or one for each.
    pub binary: Vec<bool>,
    /// Whether only the columns and the types of the parameters are requested.
    pub describes: bool,
    /// Name of the user, for `current_user`.
    pub user: String,
    /// ID of the session, for `pg_backend_pid`.
    pub session: u32,
    /// Parameters of the session, for `current_setting`.
    pub settings: Vec<(String, String)>,
}

/// A parameter of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameter {
    /// ID of its type; 0: unknown.
    pub oid: u32,
    /// The text of its value; none: null, or unknown while the statement is described.
    pub value: Option<String>,
}

impl WireStatement {
    /// Whether a result column is binary.
    pub fn is_binary(&self, place: usize) -> bool {
        let only = self.binary.first().filter(|_| self.binary.len() == 1);
        self.binary.get(place).or(only).copied().unwrap_or(false)
    }
}

/// ID of the type of a column.
pub fn type_of(field: &Field) -> u32 {
    if is_json(field) { oid::JSONB } else { type_of_data(field.data_type()) }
}

/// ID of a type.
pub(crate) fn type_of_data(kind: &DataType) -> u32 {
    match kind {
        DataType::Boolean => oid::BOOL,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => oid::INT2,
        DataType::UInt16 | DataType::Int32 => oid::INT4,
        DataType::UInt32 | DataType::Int64 => oid::INT8,
        // An integer without a sign may exceed `bigint`.
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => oid::NUMERIC,
        DataType::Float16 | DataType::Float32 => oid::FLOAT4,
        DataType::Float64 => oid::FLOAT8,
        DataType::Timestamp(_, Some(_)) => oid::TIMESTAMPTZ,
        DataType::Timestamp(_, None) => oid::TIMESTAMP,
        DataType::Date32 | DataType::Date64 => oid::DATE,
        DataType::Time32(_) | DataType::Time64(_) => oid::TIME,
        DataType::Interval(_) | DataType::Duration(_) => oid::INTERVAL,
        DataType::Dictionary(_, values) => type_of_data(values),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            match type_of_data(item.data_type()) {
                oid::BOOL => oid::BOOL_ARRAY,
                oid::INT2 => oid::INT2_ARRAY,
                oid::INT4 => oid::INT4_ARRAY,
                oid::INT8 => oid::INT8_ARRAY,
                oid::FLOAT8 => oid::FLOAT8_ARRAY,
                oid::TIMESTAMPTZ => oid::TIMESTAMPTZ_ARRAY,
                _ => oid::TEXT_ARRAY,
            }
        }
        _ => oid::TEXT,
    }
}
