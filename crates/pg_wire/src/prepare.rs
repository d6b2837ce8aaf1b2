//! `PREPARE`, `EXECUTE`, cursors, and statements that write within or after `WITH`.

use crate::cast::type_name;
use crate::insert::{Value, value};
use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};

/// Which rows of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// The next rows, at least one.
    Next(u64),
    /// All rows that follow.
    All,
    /// The row at which the cursor is.
    Current,
    /// The row of this number, from 1; 0: none, before the first one.
    Absolute(u64),
    /// One row, this many after that of the cursor.
    Relative(u64),
    /// Rows before that of the cursor.
    Backward,
}

/// Keywords of statements that change rows.
const CHANGES: [&str; 4] = ["insert", "update", "delete", "merge"];

/// Reads `PREPARE` after its keyword: the name, the types of the parameters, and the first byte of the statement.
pub(crate) fn prepare(parser: &mut Parser<'_>) -> Result<(String, Vec<u32>, usize), SyntaxError> {
    let name = parser.name()?;
    let types = if parser.accept_sign('(')? {
        parser.items(|parser| type_name(parser).map(|kind| kind.oid))?
    } else {
        Vec::new()
    };
    let query = if parser.accept("as")? { parser.at() } else { return Err(parser.wrong("AS")) };
    if parser.peek().is_none() {
        return Err(parser.wrong("a statement"));
    }
    Ok((name, types, query))
}

/// Reads `EXECUTE` after its keyword: the name and the values.
pub(crate) fn execute(parser: &mut Parser<'_>) -> Result<(String, Vec<Value>), SyntaxError> {
    let name = parser.name()?;
    let values = if parser.accept_sign('(')? {
        parser.items(|parser| value(parser).map(|(value, _)| value))?
    } else {
        Vec::new()
    };
    Ok((name, values))
}

/// Reads `WITH` after its keyword. Returns the keyword of a statement that writes, within the brackets of a query or
/// after them.
pub(crate) fn written_with(parser: &mut Parser<'_>) -> Result<Option<String>, SyntaxError> {
    let (mut depth, mut opens, mut after_as) = (0_usize, false, false);
    while let Some(token) = parser.take()? {
        let starts = (depth == 0 && !after_as) || opens;
        opens = false;
        match &token {
            Token::Sign('(') => {
                (depth, opens) = (depth + 1, after_as);
            }
            Token::Sign(')') => depth = depth.saturating_sub(1),
            Token::Word(word) if starts && CHANGES.contains(&&**word) => {
                return Ok(Some(word.clone()));
            }
            Token::Word(word) if depth == 0 && matches!(&**word, "select" | "values" | "table") => {
                return Ok(None);
            }
            _ => {}
        }
        after_as = token.is("as") || (after_as && (token.is("not") || token.is("materialized")));
    }
    Ok(None)
}

/// Takes what follows DECLARE, up to the statement of the cursor: its name, whether its values are binary, whether it outlives
/// its transaction, and the first byte of its statement.
pub(crate) fn declare(
    parser: &mut Parser<'_>,
) -> Result<(String, (bool, bool), usize), SyntaxError> {
    let name = parser.name()?;
    let (mut binary, mut hold) = (false, false);
    loop {
        let at = parser.at();
        match parser.take()? {
            Some(Token::Word(word)) => match &*word {
                "binary" => binary = true,
                "with" => hold = true,
                "for" => return Ok((name, (binary, hold), parser.at())),
                "scroll" | "no" | "insensitive" | "asensitive" | "cursor" | "without" | "hold" => {}
                _ => return Err(SyntaxError::new(at, "syntax error in DECLARE: expected FOR")),
            },
            _ => return Err(SyntaxError::new(at, "syntax error in DECLARE: expected FOR")),
        }
    }
}

/// Takes what follows FETCH or MOVE: the name of the cursor, and which rows.
pub(crate) fn fetch(parser: &mut Parser<'_>) -> Result<(String, Count), SyntaxError> {
    let count = match parser.peek() {
        Some(Token::Word(word)) => match &**word {
            word @ ("next" | "prior" | "first" | "last" | "all" | "absolute" | "relative"
            | "forward" | "backward") => {
                let word = word.to_owned();
                parser.take()?;
                direction(&word, parser)?
            }
            _ => Count::Next(1),
        },
        Some(Token::Number(_) | Token::Sign('-' | '+')) => forward(number(parser)?),
        _ => Count::Next(1),
    };
    if !parser.accept("from")? {
        parser.accept("in")?;
    }
    Ok((parser.name()?, count))
}

/// Takes what follows the word of a direction.
fn direction(word: &str, parser: &mut Parser<'_>) -> Result<Count, SyntaxError> {
    let is_number = matches!(parser.peek(), Some(Token::Number(_) | Token::Sign('-' | '+')));
    Ok(match word {
        "next" => Count::Next(1),
        "first" => Count::Absolute(1),
        "all" => Count::All,
        "absolute" => match number(parser)? {
            number if number < 0 => Count::Backward,
            number => Count::Absolute(number.unsigned_abs()),
        },
        "relative" => match number(parser)? {
            0 => Count::Current,
            number if number < 0 => Count::Backward,
            number => Count::Relative(number.unsigned_abs()),
        },
        "forward" if is_number => forward(number(parser)?),
        "forward" => match parser.accept("all")? {
            true => Count::All,
            false => Count::Next(1),
        },
        "backward" if is_number => forward(-number(parser)?),
        "backward" => {
            parser.accept("all")?;
            Count::Backward
        }
        // The last row, and the one before the cursor.
        _ => Count::Backward,
    })
}

const fn forward(count: i64) -> Count {
    match count {
        0 => Count::Current,
        count if count < 0 => Count::Backward,
        count => Count::Next(count.unsigned_abs()),
    }
}

/// Takes a whole number with its sign, as `int` has them.
fn number(parser: &mut Parser<'_>) -> Result<i64, SyntaxError> {
    let is_negative = parser.accept_sign('-')?;
    if !is_negative {
        parser.accept_sign('+')?;
    }
    let (at, token) = (parser.at(), parser.take()?);
    let number = match token {
        Some(Token::Number(digits)) => digits.parse::<i32>().ok().map(i64::from),
        _ => None,
    };
    let number = number.ok_or_else(|| SyntaxError::new(at, "syntax error: no number of rows"))?;
    Ok(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oid;

    #[test]
    fn statements_and_values_have_names() {
        let mut parser = Parser::new("p (int, double precision, text[]) AS SELECT $1").unwrap();
        let types = vec![oid::INT4, oid::FLOAT8, oid::TEXT_ARRAY];
        assert_eq!(prepare(&mut parser), Ok(("p".to_owned(), types, 37)));
        let text = |text: &str| Value::Text(text.to_owned());
        let values = vec![text("-1"), text("a"), text("true"), text("2026-01-06"), Value::Null];
        let given = "p(-1, 'a'::text, true, date '2026-01-06', NULL)";
        let mut parser = Parser::new(given).unwrap();
        assert_eq!(execute(&mut parser), Ok(("p".to_owned(), values)));
    }
}
