//! Functions on labels, such as `label(labels, 'cpu')` and its equivalent `labels->>'cpu'`.
//! [`Operators`] plans the operators.

use crate::common::schema::json_field;
use crate::functions::values::quotient::{Quotient, guarded};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DFSchema, ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::sqlparser::ast::BinaryOperator;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, lit,
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
    texts_of(labels, |text| value_of(text, key))
}

/// A text for each set of labels.
fn texts_of(labels: &ArrayRef, of: impl Fn(&str) -> Option<String>) -> Result<ArrayRef> {
    let labels = cast(labels, &DataType::Utf8View)?;
    let labels: &StringViewArray = labels.as_string_view();
    // Rows of one series share their labels, so that few texts need parsing.
    let mut known: HashMap<&str, Option<String>> = HashMap::new();
    let mut values = StringViewBuilder::with_capacity(labels.len()).with_deduplicate_strings();
    for text in labels {
        let value = text.and_then(|text| {
            if known.len() > KNOWN_MAX {
                known.clear();
            }
            known.entry(text).or_insert_with(|| of(text)).as_deref()
        });
        values.append_option(value);
    }
    Ok(Arc::new(values.finish()))
}

/// Maximum number of label sets cached within a batch.
const KNOWN_MAX: usize = 4096;

/// The labels in a text. The result of `get_job_metrics` is no canonical one.
fn parsed(text: &str) -> Option<Labels> {
    Labels::from_canonical(text).or_else(|_| Labels::from_json(text)).ok()
}

fn value_of(text: &str, key: &str) -> Option<String> {
    parsed(text)?.get(key)
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

/// A function of labels and a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum KeyFunction {
    /// `labels ? key`: whether the labels have the key.
    Has,
    /// `labels - key`: the labels without the key.
    Without,
}

/// `labels_have(labels, key)` and `labels_without(labels, key)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct OfKey {
    signature: Signature,
    function: KeyFunction,
}

impl OfKey {
    pub(crate) fn has() -> ScalarUDF {
        Self::function(KeyFunction::Has)
    }

    pub(crate) fn without() -> ScalarUDF {
        Self::function(KeyFunction::Without)
    }

    fn function(function: KeyFunction) -> ScalarUDF {
        let text = vec![DataType::Utf8View, DataType::Utf8View];
        ScalarUDF::from(Self { signature: Signature::exact(text, Volatility::Immutable), function })
    }
}

impl ScalarUDFImpl for OfKey {
    fn name(&self) -> &'static str {
        match self.function {
            KeyFunction::Has => "labels_have",
            KeyFunction::Without => "labels_without",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(match self.function {
            KeyFunction::Has => DataType::Boolean,
            KeyFunction::Without => DataType::Utf8View,
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let nullable = args.arg_fields.iter().any(|field| field.is_nullable());
        let kind = self.return_type(&[])?;
        let field = json_field(self.name(), kind, nullable);
        let is_json = self.function == KeyFunction::Without;
        Ok(Arc::new(if is_json { field } else { field.with_metadata(HashMap::new()) }))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [labels, ColumnarValue::Scalar(key)] = args.args.as_slice() else {
            return exec_err!("the key of a label must be one text, the same for every row");
        };
        let Some(key) = key.try_as_str().flatten() else {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_from(&self.return_type(&[])?)?));
        };
        let labels = labels.to_array(args.number_rows)?;
        let array = match self.function {
            KeyFunction::Without => {
                texts_of(&labels, |text| Some(parsed(text)?.without(key).as_str().to_owned()))?
            }
            KeyFunction::Has => {
                let labels = cast(&labels, &DataType::Utf8View)?;
                let has = |text| parsed(text).is_some_and(|labels: Labels| labels.has(key));
                let have: BooleanArray =
                    labels.as_string_view().iter().map(|text| text.map(has)).collect();
                Arc::new(have)
            }
        };
        Ok(ColumnarValue::Array(array))
    }
}

/// Plans the operators `->>`, `@>`, `?` and `-` of labels, `a || b`, `a / b`, EXTRACT, and SUBSTRING with a pattern.
#[derive(Debug)]
pub(crate) struct Operators {
    pub(crate) label: Arc<ScalarUDF>,
    pub(crate) contain: Arc<ScalarUDF>,
    pub(crate) has: Arc<ScalarUDF>,
    pub(crate) without: Arc<ScalarUDF>,
    pub(crate) joined: Arc<ScalarUDF>,
    pub(crate) quotient: Arc<ScalarUDF>,
    pub(crate) date_part: Arc<ScalarUDF>,
    pub(crate) regexp_match: Arc<ScalarUDF>,
}

impl ExprPlanner for Operators {
    fn plan_binary_op(
        &self,
        expr: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_text = |expr: &Expr| expr.get_type(schema).is_ok_and(|kind| kind.is_string());
        let function = match expr.op {
            BinaryOperator::LongArrow => &self.label,
            BinaryOperator::Question => &self.has,
            BinaryOperator::Minus if is_text(&expr.left) && is_text(&expr.right) => &self.without,
            BinaryOperator::AtArrow if matches!(&expr.right, Expr::Literal(right, _) if right.try_as_str().is_some()) => {
                &self.contain
            }
            BinaryOperator::StringConcat => &self.joined,
            BinaryOperator::Divide if Quotient::is_of(&expr.left, &expr.right, schema) => {
                &self.quotient
            }
            BinaryOperator::And => {
                return Ok(match guarded(&expr.left, &expr.right) {
                    Some(guarded) => PlannerResult::Planned(guarded),
                    None => PlannerResult::Original(expr),
                });
            }
            _ => return Ok(PlannerResult::Original(expr)),
        };
        Ok(PlannerResult::Planned(call(function, vec![expr.left, expr.right])))
    }

    fn plan_extract(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(PlannerResult::Planned(call(&self.date_part, args)))
    }

    /// `substring(text FROM pattern)`: what the pattern's first group matches, or the whole pattern.
    fn plan_substring(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        let is_pattern =
            matches!(&*args, [_, Expr::Literal(pattern, _)] if pattern.try_as_str().is_some());
        if !is_pattern {
            return Ok(PlannerResult::Original(args));
        }
        let groups = call(&self.regexp_match, args);
        let element = datafusion::functions_nested::extract::array_element_udf();
        Ok(PlannerResult::Planned(call(&element, vec![groups, lit(1_i64)])))
    }
}

fn call(function: &Arc<ScalarUDF>, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args))
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
