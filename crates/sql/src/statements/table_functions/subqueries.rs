//! Subqueries in the arguments of Kwollect's functions. The planner needs constants, so each such argument is a query
//! of its own, which runs first. It cannot use names of the statement around it.

use super::{function, order_arguments};
use crate::SqlError;
use crate::common::dialect;
use crate::functions::string_limits::Texts;
use crate::statements::run::Work;
use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::execution::SessionState;
use datafusion::physical_plan::collect;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr as Term, FunctionArg, FunctionArgExpr, TableFactor, Value, VisitMut,
    VisitorMut, visit_expressions,
};
use std::convert::Infallible;
use std::ops::ControlFlow;

/// Replaces the arguments that have a subquery by their values. Of a statement whose columns alone are wanted, they are NULL:
/// nothing is read, as such a caller may not read.
///
/// # Errors
/// A query fails, or exceeds a limit.
pub(crate) async fn evaluate(
    work: &Work,
    state: &SessionState,
    texts: &Texts,
    statement: &mut Parsed,
) -> Result<(), SqlError> {
    if work.begin.wire.as_ref().is_some_and(|wire| wire.describes) {
        each(statement, |term| *term = Term::Value(Value::Null.with_empty_span()));
        return Ok(());
    }
    let mut terms = Vec::new();
    each(statement, |term| terms.push(term.to_string()));
    let mut values = Vec::with_capacity(terms.len());
    for term in terms {
        values.push(value(work, state, texts, &term).await?);
    }
    let mut values = values.into_iter();
    each(statement, |term| {
        let value = values.next().flatten().map_or(Value::Null, Value::SingleQuotedString);
        *term = Term::Value(value.with_empty_span());
    });
    Ok(())
}

async fn value(
    work: &Work,
    state: &SessionState,
    texts: &Texts,
    term: &str,
) -> Result<Option<String>, SqlError> {
    let failed = |error| work.failed(error);
    let select = format!("SELECT {term}");
    let mut statement = dialect::parse(&select).map_err(failed)?;
    order_arguments(&mut statement)?;
    let (plan, _) = work.plan(state, statement, texts).await?;
    let plan = state.create_physical_plan(&plan).await.map_err(failed)?;
    let rows = collect(plan, state.task_ctx()).await.map_err(failed)?;
    let Some(row) = rows.iter().find(|batch| batch.num_rows() > 0) else { return Ok(None) };
    let Some(column) = row.columns().first() else { return Ok(None) };
    let column = cast(column, &DataType::Utf8).map_err(|error| failed(error.into()))?;
    let first = column.as_string::<i32>().iter().next().flatten();
    Ok(first.map(str::to_owned))
}

/// Calls a function for each argument with a subquery, in the order of the statement.
fn each(statement: &mut Parsed, take: impl FnMut(&mut Term)) {
    if let Parsed::Statement(statement) = statement {
        let ControlFlow::Continue(()) = statement.visit(&mut Each(take));
    }
}

struct Each<F>(F);

impl<F: FnMut(&mut Term)> VisitorMut for Each<F> {
    type Break = Infallible;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Infallible> {
        let TableFactor::Table { name, args: Some(args), .. } = factor else {
            return ControlFlow::Continue(());
        };
        if function(name).is_some() {
            for term in args.args.iter_mut().filter_map(term).filter(|term| has_subquery(term)) {
                (self.0)(term);
            }
        }
        ControlFlow::Continue(())
    }
}

/// The value of an argument.
fn term(argument: &mut FunctionArg) -> Option<&mut Term> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Term::BinaryOp {
            op: BinaryOperator::Assignment,
            right,
            ..
        })) => Some(right),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(term))
        | FunctionArg::Named { arg: FunctionArgExpr::Expr(term), .. }
        | FunctionArg::ExprNamed { arg: FunctionArgExpr::Expr(term), .. } => Some(term),
        _ => None,
    }
}

fn has_subquery(term: &Term) -> bool {
    let is_subquery = |term: &Term| {
        matches!(term, Term::Subquery(_) | Term::InSubquery { .. } | Term::Exists { .. })
    };
    let found = visit_expressions(term, |term| match is_subquery(term) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    });
    found.is_break()
}
