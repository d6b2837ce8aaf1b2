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

/// `label(labels, key)`: the value of a label, or null if it is absent. Labels are JSON text as jsonb prints it.
/// For `_device_orig` with the value `["a", "b"]` the result is that text.
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
    match Labels::from_canonical(text) {
        Ok(labels) => labels.get(key),
        // Only `_device_orig` is not a string but an array. It is the last of the keys that the query adds.
        Err(_) => without_origins(text, key),
    }
}

/// Looks up a label in labels that contain `_device_orig`.
fn without_origins(text: &str, key: &str) -> Option<String> {
    const ORIGINS: &str = "\"_device_orig\": [";
    let (before, rest) = text.split_once(ORIGINS)?;
    let end = end_of_array(rest)?;
    let (array, after) = rest.split_at_checked(end)?;
    if key == "_device_orig" {
        return Some(format!("[{array}"));
    }
    let (before, after) = (before.trim_end_matches(", "), after.trim_start_matches(", "));
    let between = if before == "{" || after == "}" { "" } else { ", " };
    Labels::from_canonical(&format!("{before}{between}{after}")).ok()?.get(key)
}

/// Returns the end of an array of strings, after its bracket.
fn end_of_array(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (place, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some(place + 1),
            _ => {}
        }
    }
    None
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
        let Ok(serde_json::Value::Object(wanted)) = serde_json::from_str(object) else {
            return exec_err!("the right of @> is a JSON object, such as '{{\"cpu\": \"0\"}}'");
        };
        let labels = cast(&labels.to_array(args.number_rows)?, &DataType::Utf8View)?;
        let mut known: HashMap<&str, bool> = HashMap::new();
        let has = |text: &str| {
            wanted.iter().all(|(key, value)| match value {
                serde_json::Value::String(value) => value_of(text, key).as_ref() == Some(value),
                // Every label value is a string.
                _ => false,
            })
        };
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
    }
}
