//! Kwollect's functions in a FROM clause: `get_metrics(nodes => 'n1')`, with or without the schema `api`.

pub(crate) mod direct;
pub(crate) mod job_metrics;
pub(crate) mod subqueries;

use crate::SqlError;
use crate::common::schema::Table;
use crate::functions::guard::Guard;
use crate::statements::provider::Provider;
use crate::statements::run::Work;
use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as Term, FunctionArg, FunctionArgExpr, Ident, ObjectName, TableFactor,
    Value, VisitMut, VisitorMut,
};
use job_metrics::JobMetrics;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A function whose rows are a table.
#[derive(Debug)]
pub(crate) struct TableFunction {
    pub(crate) table: Table,
    pub(crate) zone: Arc<str>,
    pub(crate) work: Work,
    pub(crate) guard: Arc<Guard>,
}

impl TableFunctionImpl for TableFunction {
    fn call_with_args(&self, args: TableFunctionArgs<'_, '_>) -> Result<Arc<dyn TableProvider>> {
        let (name, parameters) = (self.table.name(), self.table.parameters());
        if args.exprs().len() > parameters.len() {
            return plan_err!("{name} has {} parameters", parameters.len());
        }
        let mut arguments = Vec::new();
        for (parameter, expr) in parameters.iter().zip(args.exprs()) {
            if let Some(text) = argument(name, parameter, expr)? {
                arguments.push(((*parameter).to_owned(), text));
            }
        }
        if self.table == Table::GetJobMetrics {
            let (work, guard) = (self.work.clone(), Arc::clone(&self.guard));
            let schema = self.table.schema(&self.zone);
            let row = JobMetrics { work, guard, arguments, schema: Arc::clone(&schema) };
            return Ok(Arc::new(StreamingTable::try_new(schema, vec![Arc::new(row)])?));
        }
        let provider = Provider::new(self.table, &self.zone, &self.work.link);
        Ok(Arc::new(provider.with_arguments(arguments)))
    }
}

/// The text of a constant argument; none for null, which is as if it were omitted.
fn argument(function: &str, parameter: &str, expr: &Expr) -> Result<Option<String>> {
    let Expr::Literal(value, _) = expr else {
        return plan_err!("{function}: the argument {parameter} must be a constant");
    };
    if value.is_null() {
        return Ok(None);
    }
    match value.cast_to(&DataType::Utf8)? {
        ScalarValue::Utf8(text) => Ok(text),
        _ => plan_err!("{function}: the argument {parameter} has no text"),
    }
}

/// Brings the arguments of our functions into the order of their parameters, with null for those omitted. The
/// planner has no named arguments.
///
/// # Errors
/// A parameter does not exist, or is given twice.
pub(crate) fn order_arguments(statement: &mut Parsed) -> Result<(), SqlError> {
    let Parsed::Statement(statement) = statement else { return Ok(()) };
    match statement.visit(&mut Order) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(why) => Err(SqlError::Statement(why)),
    }
}

struct Order;

impl VisitorMut for Order {
    type Break = String;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<String> {
        let TableFactor::Table { name, args: Some(args), .. } = factor else {
            return ControlFlow::Continue(());
        };
        let Some(table) = function(name) else { return ControlFlow::Continue(()) };
        *name = ObjectName::from(vec![Ident::new(table.name())]);
        match ordered(table, std::mem::take(&mut args.args)) {
            Ok(ordered) => args.args = ordered,
            Err(why) => return ControlFlow::Break(why),
        }
        ControlFlow::Continue(())
    }
}

/// Our function of this name, with or without the schema `api`.
fn function(name: &ObjectName) -> Option<Table> {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| Some(part.as_ident()?.value.to_lowercase())).collect();
    let function = match &*parts {
        [name] => name,
        [schema, name] if schema == "api" => name,
        _ => return None,
    };
    Table::FUNCTIONS.into_iter().find(|table| table.name() == function)
}

/// An argument's name, if it has one, and its value.
fn parts(argument: FunctionArg) -> Option<(Option<Ident>, Term)> {
    match argument {
        // The parser reads `name := value` as a term.
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Term::BinaryOp {
            left,
            op: BinaryOperator::Assignment,
            right,
        })) => match *left {
            Term::Identifier(name) => Some((Some(name), *right)),
            _ => None,
        },
        FunctionArg::Unnamed(FunctionArgExpr::Expr(term)) => Some((None, term)),
        FunctionArg::ExprNamed {
            name: Term::Identifier(name),
            arg: FunctionArgExpr::Expr(term),
            ..
        }
        | FunctionArg::Named { name, arg: FunctionArgExpr::Expr(term), .. } => {
            Some((Some(name), term))
        }
        _ => None,
    }
}

/// The place of a parameter by its name.
fn place_of(table: Table, name: &Ident) -> Result<usize, String> {
    let (function, parameters) = (table.name(), table.parameters());
    let place = parameters.iter().position(|parameter| name.value.eq_ignore_ascii_case(parameter));
    place.ok_or_else(|| {
        let names = parameters.join(", ");
        format!("{function} has no parameter `{}`; the parameters are {names}", name.value)
    })
}

fn ordered(table: Table, given: Vec<FunctionArg>) -> Result<Vec<FunctionArg>, String> {
    let (function, parameters) = (table.name(), table.parameters());
    let mut terms: Vec<Option<Term>> = vec![None; parameters.len()];
    for (nth, argument) in given.into_iter().enumerate() {
        let shown = argument.to_string();
        let (name, term) =
            parts(argument).ok_or_else(|| format!("{function}: `{shown}` is no argument"))?;
        let place = name.map_or(Ok(nth), |name| place_of(table, &name))?;
        match terms.get_mut(place) {
            Some(slot @ None) => *slot = Some(term),
            Some(Some(_)) => {
                let name = parameters.get(place).copied().unwrap_or_default();
                return Err(format!("{function}: the parameter `{name}` is given twice"));
            }
            None => return Err(format!("{function} has {} parameters", parameters.len())),
        }
    }
    let null = || Term::Value(Value::Null.with_empty_span());
    let unnamed =
        |term: Option<Term>| FunctionArg::Unnamed(FunctionArgExpr::Expr(term.unwrap_or_else(null)));
    Ok(terms.into_iter().map(unnamed).collect())
}
