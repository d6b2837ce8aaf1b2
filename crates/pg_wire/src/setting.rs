//! Parameters of a session: SET and SHOW.

use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};
use crate::transaction::{Modes, modes};

/// What SET changes.
pub(crate) enum Setting {
    /// A parameter; without a value: to its default. It may end with the transaction.
    Parameter { name: String, value: Option<String>, local: bool },
    /// Modes of the transaction.
    Transaction(Modes),
    /// Modes of all later transactions.
    Session(Modes),
}

/// Takes the name of a parameter, which may have two parts.
pub(crate) fn setting(parser: &mut Parser<'_>) -> Result<String, SyntaxError> {
    let mut name = parser.name()?;
    if name == "time" && parser.accept("zone")? {
        return Ok("timezone".to_owned());
    }
    while parser.accept_sign('.')? {
        name = format!("{name}.{}", parser.name()?);
    }
    Ok(name.to_lowercase())
}

/// Reads SET after its keyword.
pub(crate) fn set(parser: &mut Parser<'_>, text: &str) -> Result<Setting, SyntaxError> {
    let mut local = false;
    if parser.accept("session")? {
        if parser.accept("characteristics")? {
            parser.accept("as")?;
            parser.accept("transaction")?;
            return modes(parser).map(Setting::Session);
        }
    } else {
        local = parser.accept("local")?;
    }
    let at = parser.at();
    if parser.accept("transaction")? {
        return modes(parser).map(Setting::Transaction);
    }
    let name = match parser.accept("names")? {
        true => "client_encoding".to_owned(),
        false => setting(parser)?,
    };
    if matches!(&*name, "role" | "authorization" | "constraints") {
        let what = format!(
            "SET {} is not supported: the caller of a session is fixed",
            name.to_uppercase()
        );
        return Err(SyntaxError::unsupported(at, what));
    }
    if !parser.accept_sign('=')? {
        parser.accept("to")?;
    }
    let from = parser.at();
    let mut values = Vec::new();
    let mut after_comma = true;
    while parser.peek().is_some() {
        let at = parser.at();
        match parser.take()? {
            Some(Token::Sign(',')) => after_comma = true,
            Some(Token::Sign('-')) => values.push("-".to_owned()),
            Some(
                Token::Word(word) | Token::Quoted(word) | Token::Text(word) | Token::Number(word),
            ) => {
                match values.last_mut().filter(|_| !after_comma) {
                    Some(last) => last.push_str(&word),
                    None => values.push(word),
                }
                after_comma = false;
            }
            _ => return Err(SyntaxError::new(at, "syntax error: expected a value")),
        }
    }
    match &*values {
        [] => Err(SyntaxError::new(from.min(text.len()), "syntax error: expected a value")),
        [word] if word == "default" => Ok(Setting::Parameter { name, value: None, local }),
        _ => Ok(Setting::Parameter { name, value: Some(values.join(", ")), local }),
    }
}

/// Reads SHOW after its keyword: the name of the parameter; `None`: the engine reads it.
pub(crate) fn show(parser: &mut Parser<'_>) -> Result<Option<String>, SyntaxError> {
    if parser.peek().is_some_and(|token| token.is("tables") || token.is("columns")) {
        return Ok(None);
    }
    if parser.accept("transaction")? {
        parser.accept("isolation")?;
        parser.accept("level")?;
        return Ok(Some("transaction_isolation".to_owned()));
    }
    setting(parser).map(Some)
}
