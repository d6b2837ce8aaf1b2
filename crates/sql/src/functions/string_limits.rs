//! Limits on functions that copy and join texts. The engine counts the memory of operators, but not that of values
//! in expressions. Each call of such a function may therefore produce only its share of the memory per batch. The
//! calls also check the deadline.

use crate::functions::guard::Guard;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{ScalarValue, exec_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility, WindowFunctionDefinition,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Limited functions. Functions that return a part of a text share its memory and are not in the list.
const COPYING: [&str; 14] = [
    "concat",
    "concat_ws",
    "upper",
    "lower",
    "reverse",
    "initcap",
    "translate",
    "overlay",
    "split_part",
    "encode",
    "decode",
    "regexp_match",
    "string_to_array",
    "array_to_string",
];
/// Aggregates that keep all their inputs. As window functions they would keep them once per row.
const GATHERING: [&str; 2] = ["string_agg", "array_agg"];
/// Name of the function for `a || b`.
const JOINED: &str = "joined";
/// Divisor for the memory that texts of one statement may take: a fourth of its memory.
const PART: usize = 4;

/// Memory limit for the texts of a statement.
#[derive(Debug)]
pub(crate) struct Texts {
    guard: Arc<Guard>,
    /// Limit for all functions on all threads together.
    bytes_max: usize,
    threads: usize,
    /// Number of limited functions in the statement.
    calls: AtomicUsize,
}

impl Texts {
    pub(crate) fn new(guard: Arc<Guard>, memory_bytes_max: usize, threads: usize) -> Self {
        let (bytes_max, threads) = (memory_bytes_max / PART, threads.max(1));
        Self { guard, bytes_max, threads, calls: AtomicUsize::new(1) }
    }

    /// Counts the limited functions of a plan, and rejects functions that cannot be limited.
    pub(crate) fn look(&self, plan: &LogicalPlan) -> Result<()> {
        let mut calls = 0_usize;
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    match part {
                        Expr::ScalarFunction(call) => {
                            let name = call.func.name();
                            calls += usize::from(name == JOINED || COPYING.contains(&name));
                        }
                        Expr::Cast(_) | Expr::TryCast(_) => calls += 1,
                        Expr::WindowFunction(window) => reject_gathering(&window.fun)?,
                        _ => {}
                    }
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        self.calls.store(calls.max(1), Ordering::Relaxed);
        Ok(())
    }

    /// Checks whether a function may produce this number of bytes per batch.
    fn check(&self, bytes: usize) -> Result<()> {
        self.guard.check()?;
        let calls = self.calls.load(Ordering::Relaxed).saturating_mul(self.threads);
        let share = self.bytes_max / calls.max(1);
        if bytes <= share {
            return Ok(());
        }
        let text = format!("texts of {bytes} bytes, and {share} are left for them");
        Err(DataFusionError::ResourcesExhausted(text))
    }
}

fn reject_gathering(function: &WindowFunctionDefinition) -> Result<()> {
    let name = function.name();
    if GATHERING.contains(&name) {
        return plan_err!("{name} is not supported as a window function; use it with GROUP BY");
    }
    Ok(())
}

/// Wraps a function with a limit, if it needs one.
pub(crate) fn bounded(function: Arc<ScalarUDF>, texts: &Arc<Texts>) -> Arc<ScalarUDF> {
    if !COPYING.contains(&function.name()) {
        return function;
    }
    Arc::new(ScalarUDF::from(Bounded { inner: function, texts: Arc::clone(texts) }))
}

/// A function of the engine with a limit.
#[derive(Debug)]
struct Bounded {
    inner: Arc<ScalarUDF>,
    texts: Arc<Texts>,
}

impl PartialEq for Bounded {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for Bounded {}

impl Hash for Bounded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (values, rows) = (&args.args, args.number_rows);
        let all =
            values.iter().fold(0, |sum: usize, value| sum.saturating_add(bytes_of(value, rows)));
        // A separator is copied once for each of the other values.
        let between = match (self.inner.name(), values.as_slice()) {
            ("concat_ws", [separator, others @ ..]) => {
                rows.saturating_mul(others.len()).saturating_mul(longest(separator))
            }
            ("array_to_string", [list, between @ ..]) => {
                let widest =
                    between.iter().fold(0, |sum: usize, it| sum.saturating_add(longest(it)));
                elements(list, rows).saturating_mul(widest)
            }
            _ => 0,
        };
        self.texts.check(all.saturating_add(between))?;
        self.inner.invoke_with_args(args)
    }
}

/// Total size of a value's texts over all rows in bytes.
fn bytes_of(value: &ColumnarValue, rows: usize) -> usize {
    match value {
        ColumnarValue::Array(array) => bytes(array),
        ColumnarValue::Scalar(scalar) => match scalar.try_as_str() {
            Some(text) => text.map_or(0, str::len).saturating_mul(rows),
            None => scalar.to_array().map_or(0, |array| bytes(&array).saturating_mul(rows)),
        },
    }
}

fn bytes(array: &ArrayRef) -> usize {
    match array.data_type() {
        DataType::Utf8View => lengths(array.as_string_view()).sum(),
        DataType::List(_) => bytes(&within(array)),
        _ => array.to_data().get_slice_memory_size().unwrap_or(usize::MAX),
    }
}

fn lengths(texts: &StringViewArray) -> impl Iterator<Item = usize> {
    texts.lengths().map(|length| usize::try_from(length).unwrap_or(usize::MAX))
}

/// Values of all lists in a column.
fn within(array: &ArrayRef) -> ArrayRef {
    let list = array.as_list::<i32>();
    let offsets = list.value_offsets();
    let place = |offset: Option<&i32>| offset.and_then(|at| usize::try_from(*at).ok()).unwrap_or(0);
    let (first, last) = (place(offsets.first()), place(offsets.last()));
    list.values().slice(first, last.saturating_sub(first))
}

/// Number of values in the lists of all rows.
fn elements(list: &ColumnarValue, rows: usize) -> usize {
    let (array, times) = match list {
        ColumnarValue::Array(array) => (Arc::clone(array), 1),
        ColumnarValue::Scalar(scalar) => match scalar.to_array() {
            Ok(array) => (array, rows),
            Err(_) => return 0,
        },
    };
    let is_list = matches!(array.data_type(), DataType::List(_));
    if is_list { within(&array).len().saturating_mul(times) } else { 0 }
}

/// Size of the longest text of a value in bytes.
fn longest(value: &ColumnarValue) -> usize {
    match value {
        ColumnarValue::Scalar(scalar) => scalar.try_as_str().flatten().map_or(0, str::len),
        ColumnarValue::Array(array) => match array.data_type() {
            DataType::Utf8View => lengths(array.as_string_view()).max().unwrap_or(0),
            _ => bytes(array),
        },
    }
}

/// `a || b` of texts and values that convert to text. Null if one of them is null.
#[derive(Debug)]
pub(crate) struct Joined {
    signature: Signature,
    texts: Arc<Texts>,
}

impl Joined {
    pub(crate) fn function(texts: &Arc<Texts>) -> ScalarUDF {
        let signature = Signature::user_defined(Volatility::Immutable);
        ScalarUDF::from(Self { signature, texts: Arc::clone(texts) })
    }
}

impl PartialEq for Joined {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Joined {}

impl Hash for Joined {
    fn hash<H: Hasher>(&self, state: &mut H) {
        JOINED.hash(state);
    }
}

impl ScalarUDFImpl for Joined {
    fn name(&self) -> &'static str {
        JOINED
    }

    /// Names the column as written in the statement.
    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        let names: Vec<String> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(names.join(" || "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.iter().any(DataType::is_nested) {
            return plan_err!("|| concatenates strings only, not lists");
        }
        Ok(vec![DataType::Utf8View; types.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [left, right] = args.args.as_slice() else {
            return exec_err!("|| joins two texts");
        };
        let rows = args.number_rows;
        if let (ColumnarValue::Scalar(left), ColumnarValue::Scalar(right)) = (left, right) {
            let both = left.try_as_str().flatten().zip(right.try_as_str().flatten());
            self.texts
                .check(both.map_or(0, |(left, right)| left.len().saturating_add(right.len())))?;
            let joined = both.map(|(left, right)| format!("{left}{right}"));
            return Ok(ColumnarValue::Scalar(ScalarValue::Utf8View(joined)));
        }
        self.texts.check(bytes_of(left, rows).saturating_add(bytes_of(right, rows)))?;
        let (left, right) = (left.to_array(rows)?, right.to_array(rows)?);
        let (Some(left), Some(right)) = (left.as_string_view_opt(), right.as_string_view_opt())
        else {
            return exec_err!("|| joins texts");
        };
        let (mut texts, mut text) = (StringViewBuilder::with_capacity(rows), String::new());
        for (left, right) in left.iter().zip(right) {
            texts.append_option(left.zip(right).map(|(left, right)| {
                text.clear();
                text.push_str(left);
                text.push_str(right);
                text.as_str()
            }));
        }
        Ok(ColumnarValue::Array(Arc::new(texts.finish())))
    }
}
