//! Parameters of a statement, such as `$1`, as literals.

use crate::SqlError;
use crate::common::wire::Parameter;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{Expr, Value, VisitMut, VisitorMut};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use pg_wire::oid;
use pg_wire::parameters::elements;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Treatment of parameters of an unknown type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// They remain, so that the planner infers their types.
    Remain,
    /// They become texts without a type.
    Text,
}

/// Replaces the parameters of a statement by literals of their types.
///
/// # Errors
/// A parameter is missing, or its value is none of its type.
pub(crate) fn substitute(
    statement: &mut Parsed,
    parameters: &[Parameter],
    unknown: Unknown,
) -> Result<(), SqlError> {
    let Parsed::Statement(statement) = statement else { return Ok(()) };
    match statement.visit(&mut Literals { parameters, unknown }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Largest number of a parameter in a statement.
pub(crate) fn count(statement: &mut Parsed) -> usize {
    struct Largest(usize);
    impl VisitorMut for Largest {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.0 = self.0.max(number(expr).unwrap_or(0));
            ControlFlow::Continue(())
        }
    }
    let mut largest = Largest(0);
    if let Parsed::Statement(statement) = statement
        && let ControlFlow::Break(()) = statement.visit(&mut largest)
    {
        return 0;
    }
    largest.0
}

/// Numbers of the parameters that are lists: those of `= ANY ($1)`.
pub(crate) fn lists(statement: &mut Parsed) -> BTreeSet<usize> {
    struct Lists(BTreeSet<usize>);
    impl VisitorMut for Lists {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = expr {
                let inner = if let Expr::Nested(inner) = &**right { inner } else { right };
                self.0.extend(number(inner));
            }
            ControlFlow::Continue(())
        }
    }
    let mut lists = Lists(BTreeSet::new());
    if let Parsed::Statement(statement) = statement
        && let ControlFlow::Break(()) = statement.visit(&mut lists)
    {
        return BTreeSet::new();
    }
    lists.0
}

/// The number of a parameter, from 1.
fn number(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Placeholder(name) = &value.value else { return None };
    name.strip_prefix('$')?.parse().ok().filter(|number| *number > 0)
}

struct Literals<'a> {
    parameters: &'a [Parameter],
    unknown: Unknown,
}

impl VisitorMut for Literals<'_> {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        let Some(number) = number(expr) else { return ControlFlow::Continue(()) };
        let parameter = self.parameters.get(number.saturating_sub(1));
        if self.unknown == Unknown::Remain && parameter.is_none_or(|known| known.oid == 0) {
            return ControlFlow::Continue(());
        }
        let literal = match parameter {
            None => Err(SqlError::Statement(format!("there is no parameter ${number}"))),
            Some(parameter) => literal(parameter)
                .map_err(|why| SqlError::Value(format!("parameter ${number}: {why}"))),
        };
        match literal.and_then(|text| parsed(&text)) {
            Ok(literal) => *expr = literal,
            Err(error) => return ControlFlow::Break(error),
        }
        ControlFlow::Continue(())
    }
}

fn parsed(literal: &str) -> Result<Expr, SqlError> {
    let dialect = PostgreSqlDialect {};
    let parser = Parser::new(&dialect).try_with_sql(literal);
    let expr = parser.and_then(|mut parser| parser.parse_expr());
    expr.map_err(|error| SqlError::Value(crate::common::error_texts::of_text(&error)))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Name of a type in casts.
fn cast(kind: u32) -> Option<&'static str> {
    Some(match kind {
        oid::BOOL => "boolean",
        oid::INT2 => "smallint",
        oid::INT4 => "integer",
        oid::INT8 | oid::OID => "bigint",
        oid::FLOAT4 => "real",
        oid::FLOAT8 | oid::NUMERIC => "double precision",
        oid::TIMESTAMPTZ => "timestamp with time zone",
        oid::TIMESTAMP => "timestamp",
        oid::DATE => "date",
        oid::INTERVAL => "interval",
        _ => return None,
    })
}

/// The SQL of a parameter's value.
fn literal(parameter: &Parameter) -> Result<String, String> {
    let Some(value) = &parameter.value else {
        let element = oid::element(parameter.oid);
        let kind = cast(element.unwrap_or(parameter.oid)).unwrap_or("text");
        let list = if element.is_some() { "[]" } else { "" };
        return Ok(match parameter.oid {
            0 => "NULL".to_owned(),
            _ => format!("CAST(NULL AS {kind}{list})"),
        });
    };
    let (kind, trimmed) = (parameter.oid, value.trim());
    match kind {
        oid::INT2 | oid::INT4 | oid::INT8 | oid::OID => {
            let number: i64 =
                trimmed.parse().map_err(|_| format!("`{}` is no integer", shown(value)))?;
            Ok(if number < 0 { format!("({number})") } else { number.to_string() })
        }
        oid::FLOAT4 | oid::FLOAT8 | oid::NUMERIC => {
            trimmed.parse::<f64>().map_err(|_| format!("`{}` is no number", shown(value)))?;
            Ok(format!("CAST({} AS double precision)", quoted(trimmed)))
        }
        oid::BOOL => match &*trimmed.to_lowercase() {
            "t" | "true" | "on" | "yes" | "1" => Ok("true".to_owned()),
            "f" | "false" | "off" | "no" | "0" => Ok("false".to_owned()),
            _ => Err(format!("`{}` is no boolean", shown(value))),
        },
        _ => match (oid::element(kind), cast(kind)) {
            (Some(element), _) => {
                let elements = elements(value).map_err(|error| error.to_string())?;
                let each = |value| literal(&Parameter { oid: element, value });
                let each = elements.into_iter().map(each).collect::<Result<Vec<_>, _>>()?;
                Ok(format!("ARRAY[{}]", each.join(", ")))
            }
            (None, Some(kind)) => Ok(format!("CAST({} AS {kind})", quoted(value))),
            (None, None) => Ok(quoted(value)),
        },
    }
}

/// The text of a value whose literal is this text or a whole number without a sign.
pub(crate) fn plain_text(parameter: &Parameter) -> Option<String> {
    let (kind, value) = (parameter.oid, parameter.value.as_ref()?);
    match kind {
        oid::INT2 | oid::INT4 | oid::INT8 | oid::OID => {
            let number: i64 = value.trim().parse().ok()?;
            (number >= 0).then(|| number.to_string())
        }
        _ if cast(kind).is_none() && oid::element(kind).is_none() => Some(value.clone()),
        _ => None,
    }
}

fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_of_values() {
        let literal = |oid, value: &str| literal(&Parameter { oid, value: Some(value.to_owned()) });
        for (kind, value, want) in [
            (0, "it's", "'it''s'"),
            (oid::TEXT, "\\'; DROP", "'\\''; DROP'"),
            (oid::INT4, "-7", "(-7)"),
            (oid::FLOAT8, "NaN", "CAST('NaN' AS double precision)"),
            (oid::BOOL, "t", "true"),
            (oid::TIMESTAMPTZ, "2026-01-06", "CAST('2026-01-06' AS timestamp with time zone)"),
            (oid::TEXT_ARRAY, "{a,\"b'\"}", "ARRAY['a', 'b''']"),
        ] {
            assert_eq!(literal(kind, value).as_deref(), Ok(want));
        }
        assert!(literal(oid::INT8, "1 OR 1=1").is_err() && literal(oid::FLOAT8, "x").is_err());
        let null = Parameter { oid: oid::INT8, value: None };
        assert_eq!(super::literal(&null).as_deref(), Ok("CAST(NULL AS bigint)"));
    }
}
