//! The names of an answer's columns: short, as PostgreSQL chooses them, and each once.

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::expr::{Alias, Cast, TryCast};
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::collections::HashSet;
use std::sync::Arc;

/// A column that has no name of its own.
const UNNAMED: &str = "?column?";

/// The names of a plan's columns; `None`: they stay as they are.
pub(crate) fn of(plan: &LogicalPlan) -> Option<Vec<String>> {
    match plan {
        LogicalPlan::Sort(sort) => of(&sort.input),
        LogicalPlan::Limit(limit) => of(&limit.input),
        LogicalPlan::Projection(projection) => {
            let mut seen = HashSet::new();
            Some(projection.expr.iter().map(|expr| once(name(expr), &mut seen)).collect())
        }
        _ => None,
    }
}

/// A name that no other column has: a JSON object has each key once.
fn once(name: String, seen: &mut HashSet<String>) -> String {
    let mut unique = name.clone();
    let mut nth = 1_u32;
    while !seen.insert(unique.clone()) {
        nth += 1;
        unique = format!("{name}_{nth}");
    }
    unique
}

fn name(expr: &Expr) -> String {
    match expr {
        // The planner's own alias of that aggregate.
        Expr::Alias(Alias { name, .. }) if name == "count(*)" => "count".to_owned(),
        Expr::Alias(Alias { name, .. }) => name.clone(),
        // An aggregate of the step below: `max(metrics.value)`.
        Expr::Column(column) if column.relation.is_none() => function(&column.name),
        Expr::Column(column) => column.name.clone(),
        Expr::ScalarFunction(call) if call.func.name() == "joined" => UNNAMED.to_owned(),
        Expr::ScalarFunction(call) => call.func.name().to_owned(),
        Expr::AggregateFunction(call) => call.func.name().to_owned(),
        Expr::WindowFunction(call) => call.fun.name().to_owned(),
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => name(expr),
        Expr::Case(_) => "case".to_owned(),
        _ => UNNAMED.to_owned(),
    }
}

/// The function's name of `name(arguments)…`; any other name as it is.
fn function(text: &str) -> String {
    match text.split_once('(') {
        Some((name, rest))
            if rest.contains(')')
                && !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') =>
        {
            name.to_owned()
        }
        _ => text.to_owned(),
    }
}

/// A schema with these names.
pub(crate) fn named(schema: &SchemaRef, names: Option<&[String]>) -> SchemaRef {
    let Some(names) = names.filter(|names| names.len() == schema.fields().len()) else {
        return Arc::clone(schema);
    };
    let field = |(field, name): (&Arc<Field>, &String)| field.as_ref().clone().with_name(name);
    Arc::new(Schema::new(schema.fields().iter().zip(names).map(field).collect::<Vec<_>>()))
}
