//! `SELECT … FROM function(constants)`, with nothing else than `ORDER BY column` and `LIMIT number`: the statement of most
//! dashboards and scripts.

use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};

/// Most digits of a whole number: each such number is a `bigint`.
const DIGITS_MAX: usize = 18;

/// Columns of the rows of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Names of the columns; `None`: all.
    pub columns: Option<Vec<String>>,
    /// Schema of the function, if given.
    pub schema: Option<String>,
    /// Name of the function.
    pub function: String,
    /// Arguments, each with the name of its parameter if given.
    pub arguments: Vec<(Option<String>, Constant)>,
    /// The column that orders the rows, ascending.
    pub order: Option<String>,
    /// Most rows, at least 1.
    pub limit: Option<usize>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Constant {
    /// `NULL`.
    Null,
    /// A text.
    Text(String),
    /// A whole number without a sign.
    Number(i64),
    /// A truth value.
    Bool(bool),
    /// A parameter of the statement, from 1.
    Parameter(u16),
}

/// Reads a statement; `None`: it has another form. Parts that scanners of SQL read in different ways, such as comments and
/// escapes, are another form.
pub fn call(text: &str) -> Option<Call> {
    let is_plain = |byte: u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    if !text.bytes().all(is_plain) || text.contains("--") || text.contains("/*") {
        return None;
    }
    // A statement with an error is left to the engine, which reports it.
    read(text).ok().flatten()
}

fn read(text: &str) -> Result<Option<Call>, SyntaxError> {
    let mut parser = Parser::new(text)?;
    if !parser.accept("select")? {
        return Ok(None);
    }
    let columns = if parser.accept_sign('*')? { None } else { Some(names(&mut parser)?) };
    if !parser.accept("from")? {
        return Ok(None);
    }
    let (mut schema, mut function) = (None, word(&mut parser)?);
    if parser.accept_sign('.')? {
        (schema, function) = (Some(function), word(&mut parser)?);
    }
    parser.expect_sign('(')?;
    let argument = |parser: &mut Parser<'_>| argument(parser, text);
    let arguments = if parser.accept_sign(')')? { Vec::new() } else { parser.items(argument)? };
    let mut order = None;
    if parser.accept("order")? {
        if !parser.accept("by")? {
            return Ok(None);
        }
        order = Some(parser.name()?);
        parser.accept("asc")?;
    }
    let mut limit = None;
    if parser.accept("limit")? {
        let number = number(parser.take()?).and_then(|number| usize::try_from(number).ok());
        limit = number.filter(|number| *number > 0);
        if limit.is_none() {
            return Ok(None);
        }
    }
    parser.end()?;
    Ok(Some(Call { columns, schema, function, arguments, order, limit }))
}

fn names(parser: &mut Parser<'_>) -> Result<Vec<String>, SyntaxError> {
    let mut names = vec![parser.name()?];
    while parser.accept_sign(',')? {
        names.push(parser.name()?);
    }
    Ok(names)
}

/// Takes a name without quotes.
fn word(parser: &mut Parser<'_>) -> Result<String, SyntaxError> {
    match parser.peek() {
        Some(Token::Word(_)) => parser.name(),
        _ => Err(parser.wrong("a name")),
    }
}

fn number(token: Option<Token>) -> Option<i64> {
    let Some(Token::Number(digits)) = token else { return None };
    let is_whole = digits.len() <= DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_whole.then(|| digits.parse().ok()).flatten()
}

/// Takes an argument: a constant, or `name => constant`, or `name := constant`.
fn argument(
    parser: &mut Parser<'_>,
    text: &str,
) -> Result<(Option<String>, Constant), SyntaxError> {
    let at = parser.at();
    if let Some(constant) = constant(parser, text)? {
        return Ok((None, constant));
    }
    let name = word(parser)?;
    let first = if parser.accept_sign(':')? { '=' } else { '>' };
    if first == '>' {
        parser.expect_sign('=')?;
    }
    parser.expect_sign(first)?;
    match constant(parser, text)? {
        Some(constant) => Ok((Some(name), constant)),
        None => Err(SyntaxError::new(at, "no constant")),
    }
}

fn constant(parser: &mut Parser<'_>, text: &str) -> Result<Option<Constant>, SyntaxError> {
    let at = parser.at();
    let constant = match parser.peek() {
        // Neither escapes nor dollar quotes.
        Some(Token::Text(content)) if text.as_bytes().get(at) == Some(&b'\'') => {
            Constant::Text(content.clone())
        }
        Some(Token::Parameter(number)) => Constant::Parameter(*number),
        Some(Token::Word(word)) => match &**word {
            "null" => Constant::Null,
            "true" => Constant::Bool(true),
            "false" => Constant::Bool(false),
            _ => return Ok(None),
        },
        token => match number(token.cloned()) {
            Some(number) => Constant::Number(number),
            None => return Ok(None),
        },
    };
    parser.take()?;
    Ok(Some(constant))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn calls_with_constants() {
        let text = "select \"timestamp\", Value\nfrom API.get_metrics(07, 'it''s', metrics => $2, summary := TRUE, x => null) \
                    order by timestamp asc limit 5";
        let named = |name: &str, constant| (Some(name.to_owned()), constant);
        let want = Call {
            columns: Some(vec!["timestamp".into(), "value".into()]),
            schema: Some("api".into()),
            function: "get_metrics".into(),
            arguments: vec![
                (None, Constant::Number(7)),
                (None, Constant::Text("it's".into())),
                named("metrics", Constant::Parameter(2)),
                named("summary", Constant::Bool(true)),
                named("x", Constant::Null),
            ],
            order: Some("timestamp".into()),
            limit: Some(5),
        };
        assert_eq!(call(text), Some(want));
        let all = call("SELECT * FROM f()").unwrap();
        assert_eq!((all.columns, all.arguments, all.limit), (None, Vec::new(), None));
    }

    #[test]
    fn other_statements() {
        for text in [
            "SELECT * FROM metrics",
            "SELECT * FROM f(1) AS x",
            "SELECT * FROM f(1) WHERE true",
            "SELECT * FROM f(1), f(2)",
            "SELECT * FROM f(1) LIMIT 0",
            "SELECT * FROM f(1) LIMIT ALL",
            "SELECT * FROM f(1) LIMIT 1 OFFSET 1",
            "SELECT * FROM f(1) LIMIT 1 ORDER BY a",
            "SELECT * FROM f(1) ORDER BY a DESC",
            "SELECT * FROM f(1) ORDER BY a, b",
            "SELECT DISTINCT a FROM f(1)",
            "SELECT a AS b FROM f(1)",
            "SELECT f.a FROM f(1)",
            "SELECT max(a) FROM f(1)",
            "SELECT *, a FROM f(1)",
            "SELECT * FROM \"f\"(1)",
            "SELECT * FROM a.b.f(1)",
            "SELECT * FROM f(-1)",
            "SELECT * FROM f(1.5)",
            "SELECT * FROM f(1e5)",
            "SELECT * FROM f(9999999999999999999)",
            "SELECT * FROM f('a'::text)",
            "SELECT * FROM f('a' || 'b')",
            "SELECT * FROM f('a' 'b')",
            "SELECT * FROM f(E'a')",
            "SELECT * FROM f($$a$$)",
            "SELECT * FROM f('é')",
            "SELECT * FROM f(now())",
            "SELECT * FROM f(a => b)",
            "SELECT * FROM f(1) -- x",
            "SELECT * FROM f(/* x */ 1)",
            "SELECT * FROM f('--')",
            "SELECT * FROM f(1",
            "SELECT * FROM f(1);",
            "WITH x AS (SELECT 1) SELECT * FROM f(1)",
            "EXPLAIN SELECT * FROM f(1)",
            "(SELECT * FROM f(1))",
            "",
        ] {
            assert_eq!(call(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_ends(rest in ".{0,60}") {
            call(&rest);
            call(&format!("SELECT * FROM f({rest}"));
        }
    }
}
