//! `PREPARE`, `EXECUTE`, and statements that write within or after `WITH`.

use crate::cast::type_name;
use crate::insert::{Value, value};
use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};

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
