//! `PREPARE`, `EXECUTE`, and statements that write within or after `WITH`.

use crate::insert::{Parser, Value, value};
use crate::oid;
use crate::scanner::{SyntaxError, Token};

/// Names of types in SQL beside those of the catalogue.
const ALIASES: &[(&str, u32)] = &[
    ("int", oid::INT4),
    ("float", oid::FLOAT8),
    ("decimal", oid::NUMERIC),
    ("dec", oid::NUMERIC),
    ("string", oid::TEXT),
];
/// Keywords of statements that change rows.
const CHANGES: [&str; 4] = ["insert", "update", "delete", "merge"];

/// Reads `PREPARE` after its keyword: the name, the types of the parameters, and the first byte of the statement.
pub(crate) fn prepare(parser: &mut Parser<'_>) -> Result<(String, Vec<u32>, usize), SyntaxError> {
    let name = parser.name()?;
    let types = if parser.accept_sign('(')? { parser.items(type_name)? } else { Vec::new() };
    let query = if parser.accept("as")? { parser.at() } else { return Err(parser.wrong("AS")) };
    if parser.peek().is_none() {
        return Err(parser.wrong("a statement"));
    }
    Ok((name, types, query))
}

/// Takes the name of a type, up to a comma or a closing bracket.
fn type_name(parser: &mut Parser<'_>) -> Result<u32, SyntaxError> {
    let at = parser.at();
    let mut words: Vec<String> = Vec::new();
    let mut is_array = false;
    loop {
        match parser.peek().cloned() {
            Some(Token::Word(word) | Token::Quoted(word)) => {
                parser.take()?;
                words.push(word);
            }
            Some(Token::Sign('[')) => {
                parser.take()?;
                parser.expect_sign(']')?;
                is_array = true;
            }
            // Precision, as in `numeric(10, 2)`.
            Some(Token::Sign('(')) => {
                while !parser.accept_sign(')')? {
                    if parser.take()?.is_none() {
                        return Err(parser.wrong("`)`"));
                    }
                }
            }
            Some(Token::Sign('.')) => {
                parser.take()?;
                words.clear();
            }
            _ => break,
        }
    }
    let name = words.join(" ");
    let known = oid::TYPES.iter().find(|one| one.1 == name || one.2 == name).map(|one| one.0);
    let alias = || ALIASES.iter().find(|one| one.0 == name).map(|one| one.1);
    let array = |element: u32| oid::TYPES.iter().find(|one| one.5 == element).map(|one| one.0);
    let found = known.or_else(alias);
    let found = if is_array { found.and_then(array) } else { found };
    found.ok_or_else(|| {
        let list = if is_array { "[]" } else { "" };
        let what = format!("type \"{name}{list}\" does not exist");
        SyntaxError { code: "42704", ..SyntaxError::new(at, what) }
    })
}

/// Reads `EXECUTE` after its keyword: the name and the values.
pub(crate) fn execute(parser: &mut Parser<'_>) -> Result<(String, Vec<Value>), SyntaxError> {
    let name = parser.name()?;
    let values = if parser.accept_sign('(')? { parser.items(value)? } else { Vec::new() };
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
