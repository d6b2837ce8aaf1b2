//! Functions that drivers call on the catalogue and that the engine does not have, or not for users: JDBC's metadata.

use datafusion::sql::sqlparser::ast::{
    AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName,
    TableFactor, Value,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

/// Largest number to which a series of the catalogue counts: PostgreSQL's columns of an index.
const SERIES_MAX: u32 = 32;
/// Number of the schemas of `current_schemas`.
const SCHEMAS: u32 = 2;
/// Words of PostgreSQL's SQL that the standard does not have.
const KEYWORDS: [&str; 12] = [
    "analyse",
    "analyze",
    "concurrently",
    "explain",
    "freeze",
    "ilike",
    "isnull",
    "limit",
    "notnull",
    "offset",
    "returning",
    "verbose",
];

/// The last part of a name.
fn last(name: &ObjectName) -> String {
    let part = name.0.last().and_then(|part| part.as_ident());
    part.map(|part| part.value.to_lowercase()).unwrap_or_default()
}

fn parser(text: &str) -> Option<Parser<'_>> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(text).ok()
}

/// The rows of a function in FROM: the numbers of `generate_series(1, N)` where drivers count schemas or columns of
/// keys, the words of `pg_get_keywords()`.
pub(super) fn values_of_function(factor: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, args: Some(args), alias, .. } = factor else { return None };
    let rows: Vec<String> = match &*last(name) {
        "generate_series" => {
            let [FunctionArg::Unnamed(first), FunctionArg::Unnamed(end)] = &*args.args else {
                return None;
            };
            let end = end.to_string().to_lowercase();
            let end = match end.parse() {
                Ok(end) => end,
                Err(_) if end.starts_with("array_upper(current_schemas(") => SCHEMAS,
                Err(_) => return None,
            };
            if first.to_string() != "1" || !(1..=SERIES_MAX).contains(&end) {
                return None;
            }
            (1..=end).map(|number| format!("({number})")).collect()
        }
        "pg_get_keywords" => KEYWORDS.iter().map(|word| format!("('{word}')")).collect(),
        _ => return None,
    };
    let text = format!("(VALUES {}) AS pg_get_keywords(word)", rows.join(", "));
    let mut values = parser(&text)?.parse_table_factor().ok()?;
    if let (TableFactor::Derived { alias: own, .. }, Some(_)) = (&mut values, alias) {
        own.clone_from(alias);
    }
    Some(values)
}

/// Brings expressions of drivers into the engine's form.
pub(super) fn simplify(expr: &mut Expr) {
    match expr {
        Expr::Function(function) => {
            if let Some(simpler) = of_function(function) {
                *expr = simpler;
            }
        }
        // A field of a record, `(record).field`. The engine has it with the name as a text.
        Expr::CompoundFieldAccess { root, access_chain } if matches!(**root, Expr::Nested(_)) => {
            for access in access_chain {
                if let AccessExpr::Dot(field) = access
                    && let Expr::Identifier(name) = field
                {
                    let name = Value::SingleQuotedString(name.value.to_lowercase());
                    *field = Expr::Value(name.with_empty_span());
                }
            }
        }
        _ => {}
    }
}

fn of_function(function: &mut Function) -> Option<Expr> {
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(first)) = list.args.first_mut()? else {
        return None;
    };
    match &*last(&function.name) {
        // No table has an index.
        "_pg_expandarray" => {
            let text = "named_struct('x', CAST(NULL AS BIGINT), 'n', CAST(NULL AS BIGINT))";
            parser(text)?.parse_expr().ok()
        }
        // The name of the first schema has nothing to replace.
        "replace" if first.to_string().contains("current_schemas(") => Some(first.clone()),
        _ => None,
    }
}
