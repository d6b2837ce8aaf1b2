//! Checks of a parsed statement that the engine omits: literals that are none of their type, types that it does not
//! have, and locks. Arithmetic of decimal literals, which is exact.

use crate::SqlError;
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, ExactNumberInfo, Expr, Query, SelectItem, SetExpr,
    Statement, UnaryOperator, Value, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;

/// Most digits of an exact number: those of the engine's decimals.
const DIGITS_MAX: usize = 38;

/// Checks a statement, and computes with its decimal literals.
///
/// # Errors
/// A literal is none of its type, or the statement has a type or a lock that does not exist here.
pub(crate) fn prepare(statement: &mut Parsed) -> Result<(), SqlError> {
    let Parsed::Statement(statement) = statement else { return Ok(()) };
    if let ControlFlow::Break(error) = statement.visit(&mut Literals) {
        return Err(error);
    }
    if let Statement::Query(query) = &mut **statement {
        decimals(&mut query.body);
    }
    Ok(())
}

struct Literals;

impl VisitorMut for Literals {
    type Break = SqlError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<SqlError> {
        match query.locks.first() {
            Some(lock) => {
                let kind = lock.lock_type.to_string();
                let kind = kind.trim_start_matches("FOR ");
                ControlFlow::Break(SqlError::NotSelect(format!("SELECT FOR {kind}")))
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<SqlError> {
        if let Expr::Cast { kind, expr: inner, data_type, .. } = expr
            && matches!(kind, CastKind::Cast | CastKind::DoubleColon)
            && let Some(error) = cast_error(inner, data_type)
        {
            return ControlFlow::Break(error);
        }
        if let Some(number) = exact(expr) {
            *expr = number;
        }
        ControlFlow::Continue(())
    }
}

fn cast_error(inner: &Expr, data_type: &DataType) -> Option<SqlError> {
    let text = match inner {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    };
    let shown = |text: &str| text.chars().take(100).collect::<String>();
    match data_type {
        DataType::Bytea | DataType::Binary(_) | DataType::Varbinary(_) | DataType::Blob(_) => {
            let what = "the type `bytea` is not supported; encode(…) and decode(…) convert texts";
            Some(SqlError::Statement(what.to_owned()))
        }
        DataType::Array(_) => {
            let text = text?;
            let is_malformed = pg_wire::parameters::elements(text).is_err();
            let what = || format!("malformed array literal: \"{}\"", shown(text));
            is_malformed.then(|| SqlError::Value(what()))
        }
        DataType::JSON | DataType::JSONB => {
            let read = serde_json::from_str::<serde_json::Value>(text?);
            let what = |error| format!("invalid input syntax for type json: {error}");
            read.err().map(|error| SqlError::Value(what(error)))
        }
        _ => None,
    }
}

/// A number as its digits without the point, and the number of digits after it.
fn number(expr: &Expr) -> Option<(i128, usize)> {
    match expr {
        Expr::Nested(inner) => number(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            number(expr).map(|(digits, scale)| (-digits, scale))
        }
        Expr::Value(value) => {
            let Value::Number(text, _) = &value.value else { return None };
            let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
            let digits = format!("{whole}{fraction}");
            let is_decimal = !digits.is_empty()
                && digits.len() <= DIGITS_MAX
                && digits.bytes().all(|byte| byte.is_ascii_digit());
            is_decimal.then(|| digits.parse().ok()).flatten().map(|digits| (digits, fraction.len()))
        }
        _ => None,
    }
}

/// The result of `+`, `-` and `*` on literals of which one has a point.
fn exact(expr: &Expr) -> Option<Expr> {
    let Expr::BinaryOp { left, op, right } = expr else { return None };
    let ((a, of_a), (b, of_b)) = (number(left)?, number(right)?);
    if of_a.max(of_b) == 0 {
        return None;
    }
    let at =
        |digits: i128, by: usize| digits.checked_mul(10_i128.checked_pow(u32::try_from(by).ok()?)?);
    let scale = of_a.max(of_b);
    let (digits, scale) = match op {
        BinaryOperator::Plus => (at(a, scale - of_a)?.checked_add(at(b, scale - of_b)?)?, scale),
        BinaryOperator::Minus => (at(a, scale - of_a)?.checked_sub(at(b, scale - of_b)?)?, scale),
        BinaryOperator::Multiply => (a.checked_mul(b)?, of_a + of_b),
        _ => return None,
    };
    let padded = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = padded.split_at_checked(padded.len().checked_sub(scale)?)?;
    let literal = Value::Number(format!("{whole}.{fraction}"), false).with_empty_span();
    let literal = Expr::Value(literal);
    Some(if digits < 0 {
        Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Minus, expr: Box::new(literal) }))
    } else {
        literal
    })
}

/// Gives decimal literals that are a column of the result the type `numeric`.
fn decimals(body: &mut SetExpr) {
    let select = match body {
        SetExpr::Select(select) => select,
        SetExpr::Query(query) => return decimals(&mut query.body),
        _ => return,
    };
    for item in &mut select.projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        let Some((digits, scale)) = number(expr).filter(|(_, scale)| *scale > 0) else { continue };
        let precision = digits.unsigned_abs().to_string().len().max(scale);
        let (Ok(precision), Ok(scale)) = (u64::try_from(precision), i64::try_from(scale)) else {
            continue;
        };
        let info = ExactNumberInfo::PrecisionAndScale(precision, scale);
        let sign = if digits < 0 { "-" } else { "" };
        let text = expr.to_string().replace(['(', ')', '-', ' '], "");
        let text = Value::SingleQuotedString(format!("{sign}{text}")).with_empty_span();
        *expr = Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(Expr::Value(text)),
            data_type: DataType::Numeric(info),
            array: false,
            format: None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::sql::parser::DFParser;

    fn prepared(text: &str) -> Result<String, SqlError> {
        let mut statement = DFParser::parse_sql(text).unwrap().pop_front().unwrap();
        prepare(&mut statement).map(|()| statement.to_string())
    }

    #[test]
    fn decimal_literals_are_exact() {
        for (text, want) in [
            ("0.1 + 0.2", "CAST('0.3' AS NUMERIC(1,1))"),
            ("1.50", "CAST('1.50' AS NUMERIC(3,2))"),
            ("-(0.5 - 2)", "CAST('1.5' AS NUMERIC(2,1))"),
            ("1.5 * -2", "CAST('-3.0' AS NUMERIC(2,1))"),
            ("1 + 2", "1 + 2"),
            ("1e5 * 2.0", "1e5 * 2.0"),
            ("value * (0.1 + 0.2)", "value * (0.3)"),
        ] {
            assert_eq!(prepared(&format!("SELECT {text}")).unwrap(), format!("SELECT {want}"));
        }
    }

    #[test]
    fn literals_of_no_type() {
        for (text, code) in [
            ("SELECT CAST('\\x41' AS bytea)", "0A000"),
            ("SELECT CAST('{1' AS int[])", "22P02"),
            ("SELECT CAST('{' AS json)", "22P02"),
            ("SELECT 1 FROM metrics FOR UPDATE", "42501"),
        ] {
            assert_eq!(prepared(text).unwrap_err().code(), code, "{text}");
        }
    }
}
