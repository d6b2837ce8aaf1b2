//! Column names of a result: short, like PostgreSQL's, and unique.

use crate::functions::values::quotient::QUOTIENT;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::expr::{Alias, Cast, TryCast};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{Expr as Term, Ident, SelectItem, SetExpr, Statement};
use std::collections::HashSet;
use std::sync::Arc;

/// Name of a column without its own name.
const UNNAMED: &str = "?column?";
/// Delimiter of the position in an alias of [`distinct`].
const MARK: char = '\u{1}';

/// Adds an alias to each duplicate column of the outer SELECT. PostgreSQL allows `max(a), max(a)`, but the planner
/// does not. [`of`] removes the alias again.
pub(crate) fn distinct(statement: &mut Parsed) {
    let Parsed::Statement(statement) = statement else { return };
    let Statement::Query(query) = &mut **statement else { return };
    distinct_in(&mut query.body);
}

fn distinct_in(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return distinct_in(&mut query.body),
        SetExpr::SetOperation { left, right, .. } => {
            distinct_in(left);
            return distinct_in(right);
        }
        _ => return,
    };
    if select.distinct.is_some() {
        return;
    }
    let is_term = |item: &SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    let has_wildcard = !select.projection.iter().all(is_term);
    let mut seen = HashSet::new();
    for (position, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(term) = item else { continue };
        let is_new = seen.insert(without_cast(term).to_string());
        if has_wildcard || !is_new {
            let alias = format!(
                "{MARK}{position}{MARK}{}",
                name_of_term(term).unwrap_or_else(|| UNNAMED.to_owned())
            );
            let (expr, alias) = (term.clone(), Ident::with_quote('"', alias));
            *item = SelectItem::ExprWithAlias { expr, alias };
        }
    }
}

/// Removes casts and time zones: the planner names such a column like the column itself.
fn without_cast(term: &Term) -> &Term {
    match term {
        Term::Cast { expr, .. } | Term::Nested(expr) => without_cast(expr),
        Term::AtTimeZone { timestamp, .. } => without_cast(timestamp),
        _ => term,
    }
}

/// Name of a column without an alias; `None`: it has none.
pub(crate) fn name_of_term(term: &Term) -> Option<String> {
    let last = |parts: &[Ident]| parts.last().map(|part| part.value.clone());
    match without_cast(term) {
        Term::Identifier(name) => Some(name.value.clone()),
        Term::CompoundIdentifier(parts) => last(parts),
        Term::Function(call) => Some(call.name.to_string().to_ascii_lowercase()),
        Term::Case { .. } => Some("case".to_owned()),
        _ => None,
    }
}

/// Column names of a plan. `None` leaves them unchanged.
pub(crate) fn of(plan: &LogicalPlan) -> Option<Vec<String>> {
    match plan {
        LogicalPlan::Sort(sort) => of(&sort.input),
        LogicalPlan::Limit(limit) => of(&limit.input),
        LogicalPlan::Distinct(Distinct::All(input)) => of(input),
        LogicalPlan::Union(union) => of(union.inputs.first()?),
        LogicalPlan::Projection(projection) => {
            let mut seen = HashSet::new();
            Some(projection.expr.iter().map(|expr| once(name(expr), &mut seen)).collect())
        }
        _ => None,
    }
}

/// Makes a name unique: a JSON object has each key once.
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
        // The planner itself adds this alias to the aggregate.
        Expr::Alias(Alias { name, .. }) if name == "count(*)" => "count".to_owned(),
        Expr::Alias(Alias { name, .. }) => {
            let own = name.strip_prefix(MARK).and_then(|rest| rest.split_once(MARK));
            own.map_or_else(|| name.clone(), |(_, own)| own.to_owned())
        }
        // An aggregate of the plan below, such as `max(metrics.value)`.
        Expr::Column(column) if column.relation.is_none() => function(&column.name),
        Expr::Column(column) => column.name.clone(),
        Expr::ScalarFunction(call) if matches!(call.func.name(), "joined" | QUOTIENT) => {
            UNNAMED.to_owned()
        }
        Expr::ScalarFunction(call) => call.func.name().to_owned(),
        Expr::AggregateFunction(call) => call.func.name().to_owned(),
        Expr::WindowFunction(call) => call.fun.name().to_owned(),
        Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. }) => name(expr),
        Expr::Case(_) => "case".to_owned(),
        _ => UNNAMED.to_owned(),
    }
}

/// Function name of `name(arguments)…`. Any other name stays unchanged.
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

/// Renames the columns of a schema.
pub(crate) fn named(schema: &SchemaRef, names: Option<&[String]>) -> SchemaRef {
    let Some(names) = names.filter(|names| names.len() == schema.fields().len()) else {
        return Arc::clone(schema);
    };
    let field = |(field, name): (&Arc<Field>, &String)| field.as_ref().clone().with_name(name);
    Arc::new(Schema::new(schema.fields().iter().zip(names).map(field).collect::<Vec<_>>()))
}
