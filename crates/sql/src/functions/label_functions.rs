//! Functions on labels, such as `label(labels, 'cpu')` and its equivalent `labels->>'cpu'`.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::sqlparser::ast::BinaryOperator;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use model::Labels;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Excluded functions. They make large values from small ones, and the engine does not count the memory of a single
/// value.
pub(crate) const UNCOUNTED: [&str; 15] = [
    // Our version replaces the engine's, which writes a format of any length for each row.
    "to_char",
    "repeat",
    "lpad",
    "rpad",
    "replace",
    "regexp_replace",
    "array_repeat",
    "list_repeat",
    "array_append",
    "array_concat",
    "array_prepend",
    "array_resize",
    "list_resize",
    "range",
    "generate_series",
];

/// `label(labels, key)`: the text of a label's value, or null if it is absent or null. Labels are JSON text as jsonb
/// prints it. For `_device_orig` with the value `["a", "b"]` the result is that text.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    signature: Signature,
}

impl Label {
    pub(crate) fn function() -> ScalarUDF {
        let text = vec![DataType::Utf8View, DataType::Utf8View];
        ScalarUDF::from(Self { signature: Signature::exact(text, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for Label {
    fn name(&self) -> &'static str {
        "label"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let [labels, key] = args.args.as_slice() else {
            return exec_err!("the arguments of label are labels and a key");
        };
        let key = match key {
            ColumnarValue::Scalar(ScalarValue::Utf8View(key)) => key.clone(),
            _ => return exec_err!("the key of label must be one text, the same for every row"),
        };
        let (Some(key), labels) = (key, labels.to_array(rows)?) else {
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(None)));
        };
        Ok(ColumnarValue::Array(values(&labels, &key)?))
    }
}

fn values(labels: &ArrayRef, key: &str) -> Result<ArrayRef> {
    let labels = cast(labels, &DataType::Utf8View)?;
    let labels: &StringViewArray = labels.as_string_view();
    // Rows of one series share their labels, so that few texts need parsing.
    let mut known: HashMap<&str, Option<String>> = HashMap::new();
    let mut values = StringViewBuilder::with_capacity(labels.len());
    for text in labels {
        let value = text.and_then(|text| {
            if known.len() > KNOWN_MAX {
                known.clear();
            }
            known.entry(text).or_insert_with(|| value_of(text, key)).as_deref()
        });
        values.append_option(value);
    }
    Ok(Arc::new(values.finish()))
}

/// Maximum number of label sets cached within a batch.
const KNOWN_MAX: usize = 4096;

fn value_of(text: &str, key: &str) -> Option<String> {
    Labels::from_canonical(text).ok()?.get(key)
}

/// `labels_contain(labels, object)`: whether labels contain each key of a JSON object with its value.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Contain {
    signature: Signature,
}

impl Contain {
    pub(crate) fn function() -> ScalarUDF {
        let text = vec![DataType::Utf8View, DataType::Utf8View];
        ScalarUDF::from(Self { signature: Signature::exact(text, Volatility::Immutable) })
    }
}

impl ScalarUDFImpl for Contain {
    fn name(&self) -> &'static str {
        "labels_contain"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [labels, ColumnarValue::Scalar(object)] = args.args.as_slice() else {
            return exec_err!("the right of @> must be one JSON object, the same for every row");
        };
        let Some(object) = object.try_as_str().flatten() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(None)));
        };
        let Ok(Value::Object(wanted)) = serde_json::from_str(object) else {
            return exec_err!("the right of @> is a JSON object, such as '{{\"cpu\": \"0\"}}'");
        };
        let labels = cast(&labels.to_array(args.number_rows)?, &DataType::Utf8View)?;
        let mut known: HashMap<&str, bool> = HashMap::new();
        let wanted = Value::Object(wanted);
        let has = |text: &str| serde_json::from_str(text).is_ok_and(|own| contains(&own, &wanted));
        let contained: BooleanArray = labels
            .as_string_view()
            .iter()
            .map(|text| {
                let text = text?;
                if known.len() > KNOWN_MAX {
                    known.clear();
                }
                Some(*known.entry(text).or_insert_with(|| has(text)))
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(contained)))
    }
}

/// Whether a value contains another one, by the rules of jsonb (PostgreSQL 15, section 8.14.3).
fn contains(own: &Value, wanted: &Value) -> bool {
    match (own, wanted) {
        (Value::Object(own), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, wanted)| own.get(key).is_some_and(|value| contains(value, wanted))),
        (Value::Array(own), Value::Array(wanted)) => {
            wanted.iter().all(|wanted| own.iter().any(|value| contains(value, wanted)))
        }
        (Value::Number(own), Value::Number(wanted)) => {
            own == wanted || (own.is_f64() || wanted.is_f64()) && own.as_f64() == wanted.as_f64()
        }
        _ => own == wanted,
    }
}

/// Plans `labels->>'key'`, `labels @> '{…}'` and `a || b`.
#[derive(Debug)]
pub(crate) struct Operators {
    pub(crate) label: Arc<ScalarUDF>,
    pub(crate) contain: Arc<ScalarUDF>,
    pub(crate) joined: Arc<ScalarUDF>,
}

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let function = match expr.op {
            BinaryOperator::LongArrow => &self.label,
            BinaryOperator::AtArrow if matches!(&expr.right, Expr::Literal(right, _) if right.try_as_str().is_some()) => {
                &self.contain
            }
            BinaryOperator::StringConcat => &self.joined,
            _ => return Ok(PlannerResult::Original(expr)),
        };
        let args = vec![expr.left, expr.right];
        let call = ScalarFunction::new_udf(Arc::clone(function), args);
        Ok(PlannerResult::Planned(Expr::ScalarFunction(call)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_labels() {
        let labels = r#"{"cpu": "0", "_job_id": "5"}"#;
        assert_eq!(value_of(labels, "cpu").as_deref(), Some("0"));
        assert_eq!(value_of(labels, "x"), None);
        assert_eq!(value_of("no labels", "x"), None);
        let origins = r#"{"a": "1", "_device_orig": ["p]1", "p\"2"], "z_device_orig_": "2"}"#;
        assert_eq!(value_of(origins, "a").as_deref(), Some("1"));
        assert_eq!(value_of(origins, "z_device_orig_").as_deref(), Some("2"));
        assert_eq!(value_of(origins, "_device_orig").as_deref(), Some(r#"["p]1", "p\"2"]"#));
        let alone = r#"{"_device_orig": ["p1"]}"#;
        assert_eq!(value_of(alone, "_device_orig").as_deref(), Some(r#"["p1"]"#));
        assert_eq!(value_of(alone, "a"), None);
        for cut in 0..origins.len() {
            assert_eq!(value_of(origins.split_at(cut).0, "a"), None, "{cut}");
        }
        let values = r#"{"a": 0, "b": null, "c": {"d": [1.50]}}"#;
        assert_eq!(value_of(values, "a").as_deref(), Some("0"));
        assert_eq!(value_of(values, "b"), None);
        assert_eq!(value_of(values, "c").as_deref(), Some(r#"{"d": [1.50]}"#));
    }

    #[test]
    fn containment_is_that_of_jsonb() {
        let own = r#"{"a": 1.0, "b": "1", "c": [1, {"x": 1, "y": 2}, [3]], "d": null}"#;
        let own: Value = serde_json::from_str(own).unwrap();
        for (wanted, expected) in [
            ("{}", true),
            (r#"{"a": 1}"#, true),
            (r#"{"a": "1"}"#, false),
            (r#"{"b": "1", "d": null}"#, true),
            (r#"{"c": [{"y": 2}, 1, 1]}"#, true),
            (r#"{"c": [3]}"#, false),
            (r#"{"c": [[]]}"#, true),
            (r#"{"c": 1}"#, false),
            (r#"{"e": null}"#, false),
        ] {
            assert_eq!(
                contains(&own, &serde_json::from_str(wanted).unwrap()),
                expected,
                "{wanted}"
            );
        }
    }
}
