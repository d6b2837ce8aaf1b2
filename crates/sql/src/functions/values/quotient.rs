//! Division of numbers with a fraction. The engine gives Infinity where PostgreSQL fails: at a divisor of 0.

use datafusion::arrow::array::{AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature, Volatility,
};
use std::sync::Arc;

/// Name of the function for `a / b`.
pub(crate) const QUOTIENT: &str = "quotient";

/// `a / b`. Null if one of them is null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Quotient {
    signature: Signature,
}

impl Quotient {
    pub(crate) fn function() -> ScalarUDF {
        let numbers = vec![DataType::Float64, DataType::Float64];
        ScalarUDF::from(Self { signature: Signature::exact(numbers, Volatility::Immutable) })
    }

    /// Whether the function computes `a / b`: one of them has a fraction.
    pub(crate) fn is_of(left: &Expr, right: &Expr, schema: &DFSchema) -> bool {
        let kinds = [left, right].map(|side| side.get_type(schema).unwrap_or(DataType::Null));
        kinds.iter().all(DataType::is_numeric) && kinds.iter().any(DataType::is_floating)
    }
}

impl ScalarUDFImpl for Quotient {
    fn name(&self) -> &'static str {
        QUOTIENT
    }

    /// Names the column as written in the statement.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(names.join(" / "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return exec_err!("a division has two numbers");
        };
        let rows = args.number_rows;
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let (left, right) =
            (left.as_primitive::<Float64Type>(), right.as_primitive::<Float64Type>());
        let divided = |(left, right): (Option<f64>, Option<f64>)| match (left, right) {
            (Some(_), Some(0.0)) => Err(ArrowError::DivideByZero),
            (left, right) => Ok(left.zip(right).map(|(left, right)| left / right)),
        };
        let values = left.iter().zip(right).map(divided).collect::<Result<Float64Array, _>>()?;
        Ok(ColumnarValue::Array(Arc::new(values)))
    }
}

/// `left AND right`, where `right` divides: only for rows that satisfy `left`, which may exclude a divisor of 0. `None`:
/// `right` does not divide.
pub(crate) fn guarded(left: &Expr, right: &Expr) -> Option<Expr> {
    let has_query = |expr: &Expr| {
        let is_query = |part: &Expr| {
            matches!(part, Expr::InSubquery(_) | Expr::Exists(_) | Expr::ScalarSubquery(_))
        };
        expr.exists(|part| Ok(is_query(part))).unwrap_or(true)
    };
    if has_query(left) || has_query(right) {
        return None;
    }
    // A dividend of null has no quotient and no error. The engine would simplify a CASE of conditions.
    let dividend = |dividend: Expr| {
        let branch = (Box::new(left.clone()), Box::new(dividend));
        Expr::Case(Case { expr: None, when_then_expr: vec![branch], else_expr: None })
    };
    let divided = right.clone().transform_up(|part| {
        Ok(match part {
            Expr::ScalarFunction(mut call) if call.func.name() == QUOTIENT => {
                call.args = call
                    .args
                    .into_iter()
                    .enumerate()
                    .map(|(nth, arg)| if nth == 0 { dividend(arg) } else { arg })
                    .collect();
                Transformed::yes(Expr::ScalarFunction(call))
            }
            Expr::BinaryExpr(mut binary) if binary.op == Operator::Divide => {
                binary.left = Box::new(dividend(*binary.left));
                Transformed::yes(Expr::BinaryExpr(binary))
            }
            other => Transformed::no(other),
        })
    });
    let divided = divided.ok().filter(|divided| divided.transformed)?;
    Some(left.clone().and(divided.data))
}
