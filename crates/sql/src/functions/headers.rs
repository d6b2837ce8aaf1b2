//! Column names of a result: short, like PostgreSQL's, and unique.

use crate::functions::values::quotient::QUOTIENT;
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::logical_expr::expr::{Alias, Cast, TryCast};
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Expr as Term, Ident, OrderBy, OrderByExpr, OrderByKind, SelectItem, SetExpr, Statement, Value,
};
use std::collections::HashSet;
use std::sync::Arc;

/// Name of a column without its own name.
const UNNAMED: &str = "?column?";
/// Delimiter of the position in an alias of [`distinct`].
const MARK: char = '\u{1}';

/// Adds an alias to each duplicate column of the outer SELECT. PostgreSQL allows `max(a), max(a)`, but the planner
/// does not. [`of`] removes the alias again. So does each column with a cast, if the rows have an order: the planner names
/// it like the column itself, by which the rows may be ordered.
pub(crate) fn distinct(statement: &mut Parsed) {
    let Parsed::Statement(statement) = statement else { return };
    let Statement::Query(query) = &mut **statement else { return };
    let renamed = distinct_in(&mut query.body, query.order_by.is_some());
    let Some(OrderBy { kind: OrderByKind::Expressions(terms), .. }) = &mut query.order_by else {
        return;
    };
    // A name alone is that of a result column first.
    for OrderByExpr { expr, .. } in terms {
        let Term::Identifier(name) = &*expr else { continue };
        let name = normal(name);
        let place = renamed.iter().find(|(_, known)| *known == name).map(|(place, _)| place + 1);
        if let Some(place) = place {
            *expr = Term::Value(Value::Number(place.to_string(), false).with_empty_span());
        }
    }
}

/// The name as the planner reads it.
fn normal(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// Returns the places of the columns with a new alias, and their names, if these are the columns of the result.
fn distinct_in(body: &mut SetExpr, is_ordered: bool) -> Vec<(usize, String)> {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => {
            distinct_in(&mut query.body, false);
            return Vec::new();
        }
        SetExpr::SetOperation { left, right, .. } => {
            distinct_in(left, false);
            distinct_in(right, false);
            return Vec::new();
        }
        _ => return Vec::new(),
    };
    if select.distinct.is_some() {
        return Vec::new();
    }
    let is_term = |item: &SelectItem| {
        matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. })
    };
    let has_wildcard = !select.projection.iter().all(is_term);
    let (mut seen, mut names, mut renamed) = (HashSet::new(), HashSet::new(), Vec::new());
    for (position, item) in select.projection.iter_mut().enumerate() {
        let (term, name, is_duplicate) = match &*item {
            SelectItem::UnnamedExpr(term) => {
                let is_new = seen.insert(without_cast(term).to_string());
                let name = name_of_term(term).unwrap_or_else(|| UNNAMED.to_owned());
                let is_cast = is_ordered && matches!(term, Term::Cast { .. });
                (term, name, has_wildcard || !is_new || is_cast)
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                let name = normal(alias);
                let is_new = names.insert(name.clone());
                (expr, name, !is_new)
            }
            _ => continue,
        };
        if is_duplicate {
            let alias = Ident::with_quote('"', format!("{MARK}{position}{MARK}{name}"));
            *item = SelectItem::ExprWithAlias { expr: term.clone(), alias };
            renamed.push((position, name));
        }
    }
    // The place of a column after a wildcard is unknown.
    if has_wildcard { Vec::new() } else { renamed }
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
