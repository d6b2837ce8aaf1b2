//! Brings what clients write about the catalogue into the engine's SQL: names with a schema, types such as `regclass`,
//! operators with a schema, and collations.

use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query, SelectItem,
    SetExpr, Value, VisitMut, VisitorMut,
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
        statement.visit(&mut SingleRows).is_continue();
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

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Collate { expr: inner, .. } => *expr = take(inner),
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
        ("name" | "char" | "text" | "regproc" | "regrole" | "bpchar" | "json" | "varchar", _) => {
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

/// Makes the single row of scalar subqueries on the catalogue visible to the planner: it accepts a correlated one only
/// with an aggregate.
struct SingleRows;

impl VisitorMut for SingleRows {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Subquery(query) = expr {
            single(query);
        }
        ControlFlow::Continue(())
    }
}

const AGGREGATES: [&str; 8] =
    ["max", "min", "count", "sum", "avg", "array_agg", "string_agg", "bool_or"];

fn single(query: &mut Query) {
    let SetExpr::Select(select) = &mut *query.body else { return };
    let [SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. }] =
        &mut *select.projection
    else {
        return;
    };
    let is_aggregate = match &*item {
        Expr::Function(function) => {
            let name = parts(&function.name).pop().unwrap_or_default();
            AGGREGATES.contains(&&*name)
        }
        _ => false,
    };
    if !is_aggregate {
        let inner = take(item);
        *item = call("max", inner);
    }
}
