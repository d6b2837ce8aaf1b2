//! Brings what clients write about the catalogue into the engine's SQL: names with a schema, types such as `regclass`,
//! operators with a schema, and collations.

use crate::functions::pg_catalog::{catalog_tables, driver_queries};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, Join, JoinOperator,
    ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, TableFactor, Value, VisitMut,
    VisitorMut,
};
use std::ops::ControlFlow;

/// Name of the database, which may precede that of a schema.
const DATABASE: &str = "jobmeter";
const CATALOG: &str = "pg_catalog";

/// Rewrites a statement of PostgreSQL's protocol.
pub(crate) fn rewrite(statement: &mut Parsed) {
    let Parsed::Statement(statement) = statement else { return };
    let mut rewrite = Rewrite { reads_catalog: false };
    let ControlFlow::Continue(()) = statement.visit(&mut rewrite) else { return };
    if rewrite.reads_catalog {
        // The visitor never breaks.
        statement.visit(&mut Subqueries).is_continue();
    }
}

struct Rewrite {
    reads_catalog: bool,
}

fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| Some(part.as_ident()?.value.to_lowercase())).collect()
}

impl VisitorMut for Rewrite {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        if name.0.len() == 3 && parts(name).first().is_some_and(|first| first == DATABASE) {
            name.0.remove(0);
        }
        let parts = parts(name);
        let is_unqualified = matches!(&*parts, [table] if table.starts_with("pg_"));
        if is_unqualified {
            name.0.insert(0, ObjectNamePart::Identifier(Ident::new(CATALOG)));
        }
        self.reads_catalog |= is_unqualified || parts.first().is_some_and(|first| first == CATALOG);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let Some(values) = driver_queries::values_of_function(factor) {
            *factor = values;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        driver_queries::simplify(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Collate { expr: inner, .. } => *expr = take(inner),
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                if let Some(list) = list_of_text(right) {
                    **right = list;
                }
            }
            Expr::BinaryOp { op, .. } => {
                if let BinaryOperator::PGCustomBinaryOperator(names) = &*op
                    && let Some(known) = names.last().and_then(|name| operator(name))
                {
                    *op = known;
                }
            }
            Expr::Function(function) => {
                if let Some(list) = schemas(function) {
                    *expr = list;
                }
            }
            Expr::Cast {
                kind: CastKind::Cast | CastKind::DoubleColon,
                expr: inner,
                data_type,
                ..
            } => {
                if let Some(cast) = cast(inner, data_type) {
                    *expr = cast;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn take(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Value::Null.with_empty_span()))
}

fn operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        "~" => BinaryOperator::PGRegexMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "~~" => BinaryOperator::PGLikeMatch,
        "!~~" => BinaryOperator::PGNotLikeMatch,
        "=" => BinaryOperator::Eq,
        "<>" | "!=" => BinaryOperator::NotEq,
        "+" => BinaryOperator::Plus,
        _ => return None,
    })
}

/// The array of a literal such as `'{a,b}'`, also in brackets.
fn list_of_text(expr: &Expr) -> Option<Expr> {
    if let Expr::Nested(inner) = expr {
        return list_of_text(inner);
    }
    let Expr::Value(value) = expr else { return None };
    let Value::SingleQuotedString(text) = &value.value else { return None };
    let elements = pg_wire::parameters::elements(text).ok()?;
    let literal = |text: Option<String>| text.map_or_else(null, |text| literal(&text));
    let elem = elements.into_iter().map(literal).collect();
    Some(Expr::Array(Array { elem, named: true }))
}

fn literal(text: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span())
}

fn list(args: Vec<FunctionArg>) -> FunctionArguments {
    let (duplicate_treatment, clauses) = (None, Vec::new());
    FunctionArguments::List(FunctionArgumentList { duplicate_treatment, args, clauses })
}

/// Removes a function's schema, and adds the brackets of `current_user`. Returns the list of `current_schemas`.
fn schemas(function: &mut Function) -> Option<Expr> {
    let parts = parts(&function.name);
    if parts.len() > 1 && parts.first().is_some_and(|first| first == CATALOG) {
        function.name.0.remove(0);
    }
    if function.args == FunctionArguments::None {
        function.args = list(Vec::new());
    }
    let text =
        |text: &str| Expr::Value(Value::SingleQuotedString(text.to_owned()).with_empty_span());
    let elem = || vec![text(CATALOG), text("public")];
    (parts.last()? == "current_schemas").then(|| Expr::Array(Array { elem: elem(), named: true }))
}

/// A cast to a type that the engine has not.
fn cast(inner: &mut Expr, data_type: &mut DataType) -> Option<Expr> {
    let name = match &*data_type {
        DataType::Custom(name, _) => parts(name).pop()?,
        DataType::Regclass => "regclass".to_owned(),
        DataType::JSONB | DataType::JSON => "json".to_owned(),
        // The engine would make a list of one text.
        DataType::Array(_) => {
            if let Some(list) = list_of_text(inner) {
                *inner = list;
            }
            return None;
        }
        _ => return None,
    };
    let is_literal = matches!(
        &*inner, Expr::Value(value) if matches!(value.value, Value::SingleQuotedString(_))
    );
    let function = match (&*name, is_literal) {
        ("regclass", true) => "regclass_id",
        ("regclass", false) => "regclass_name",
        ("regtype", true) => "regtype_id",
        ("regtype", false) => "regtype_name",
        ("regnamespace", true) => "regnamespace_id",
        ("regnamespace", false) => "regnamespace_name",
        ("oid" | "xid" | "int8", _) => {
            *data_type = DataType::BigInt(None);
            return None;
        }
        ("int4", _) => {
            *data_type = DataType::Integer(None);
            return None;
        }
        (
            "name" | "char" | "text" | "regproc" | "regprocedure" | "regrole" | "bpchar" | "json"
            | "varchar",
            _,
        ) => {
            *data_type = DataType::Text;
            return None;
        }
        _ => return None,
    };
    Some(call(function, take(inner)))
}

fn call(name: &str, argument: Expr) -> Expr {
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: list(vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))]),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Brings subqueries on the catalogue into a form that the planner accepts. A scalar subquery that refers to the
/// statement around it must have an aggregate. One on a table without rows is null.
struct Subqueries;

impl VisitorMut for Subqueries {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        without_queries(&mut query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Subquery(query) => {
                let SetExpr::Select(select) = &mut *query.body else {
                    return ControlFlow::Continue(());
                };
                match (is_aggregated(select), has_no_rows(select)) {
                    (true, _) => {}
                    (false, true) => *expr = null(),
                    (false, false) => aggregate(select, "max"),
                }
            }
            Expr::Function(function) => {
                if let Some(list) = array_of_query(function) {
                    *expr = list;
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // The engine joins texts only; a list that is joined with null is null.
        if let Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } = expr
            && [left, right].into_iter().any(|side| **side == null_list())
        {
            *expr = null_list();
        }
        ControlFlow::Continue(())
    }
}

/// Replaces columns with subqueries of rows that do not exist.
fn without_queries(body: &mut SetExpr) {
    match body {
        SetExpr::SetOperation { left, right, .. } => {
            without_queries(left);
            without_queries(right);
        }
        SetExpr::Select(select) if has_no_rows(select) => {
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                    && expr.visit(&mut HasQuery).is_break()
                {
                    *expr = null_of(DataType::Text);
                }
            }
        }
        _ => {}
    }
}

/// Breaks at a subquery.
struct HasQuery;

impl VisitorMut for HasQuery {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

fn null() -> Expr {
    Expr::Value(Value::Null.with_empty_span())
}

fn null_list() -> Expr {
    null_of(DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None)))
}

fn null_of(data_type: DataType) -> Expr {
    let (kind, expr) = (CastKind::Cast, Box::new(null()));
    Expr::Cast { kind, expr, data_type, array: false, format: None }
}

/// Whether a table that every row needs has none.
fn has_no_rows(select: &Select) -> bool {
    let is_column = |arg: &FunctionArg| {
        matches!(
            arg,
            FunctionArg::Unnamed(FunctionArgExpr::Expr(
                Expr::Identifier(_) | Expr::CompoundIdentifier(_)
            ))
        )
    };
    let is_empty = |factor: &TableFactor| match factor {
        TableFactor::Table { name, args: None, .. } => {
            parts(name).last().is_some_and(|name| catalog_tables::is_empty(name))
        }
        // Lists in columns of the catalogue are null.
        TableFactor::Table { name, args: Some(args), .. } => {
            parts(name).last().is_some_and(|name| name == "unnest")
                && args.args.iter().all(is_column)
        }
        _ => false,
    };
    let is_inner = |join: &Join| {
        matches!(
            join.join_operator,
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
        )
    };
    select.from.iter().any(|table| {
        let mut inner = table.joins.iter().filter(|join| is_inner(join));
        is_empty(&table.relation) || inner.any(|join| is_empty(&join.relation))
    })
}

const AGGREGATES: [&str; 8] =
    ["max", "min", "count", "sum", "avg", "array_agg", "string_agg", "bool_or"];

fn only(select: &mut Select) -> Option<&mut Expr> {
    match &mut *select.projection {
        [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] => {
            Some(item)
        }
        _ => None,
    }
}

fn is_aggregated(select: &mut Select) -> bool {
    let Some(Expr::Function(function)) = only(select) else { return false };
    let name = parts(&function.name).pop().unwrap_or_default();
    AGGREGATES.contains(&&*name)
}

fn aggregate(select: &mut Select, name: &str) {
    if let Some(item) = only(select) {
        *item = call(name, take(item));
    }
}

/// `ARRAY(SELECT …)`.
fn array_of_query(function: &mut Function) -> Option<Expr> {
    let FunctionArguments::Subquery(query) = &mut function.args else { return None };
    let SetExpr::Select(select) = &mut *query.body else { return None };
    if has_no_rows(select) {
        return Some(null_list());
    }
    aggregate(select, "array_agg");
    query.order_by = None;
    Some(Expr::Subquery(query.clone()))
}
