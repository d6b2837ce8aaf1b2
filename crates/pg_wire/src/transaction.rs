//! Modes of transactions.

use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};

/// Modes of a transaction, as far as they are stated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Whether it only reads.
    pub is_read_only: Option<bool>,
    /// The name of its isolation, which changes nothing: each statement reads one state of the store.
    pub isolation: Option<&'static str>,
}

/// Names of the isolation of transactions.
pub const ISOLATIONS: [&str; 4] =
    ["serializable", "repeatable read", "read committed", "read uncommitted"];

/// Takes the modes of a transaction, up to the end of the statement.
pub(crate) fn modes(parser: &mut Parser<'_>) -> Result<Modes, SyntaxError> {
    if !parser.accept("work")? {
        parser.accept("transaction")?;
    }
    let mut modes = Modes::default();
    while parser.peek().is_some() {
        let at = parser.at();
        let wrong = || SyntaxError::new(at, "syntax error: expected a transaction mode");
        let mut words = Vec::new();
        // A mode ends at a comma, or with its last word.
        while !is_mode(&words) {
            match parser.take()? {
                Some(Token::Word(word)) if words.len() < MODE_WORDS_MAX => words.push(word),
                _ => return Err(wrong()),
            }
        }
        match words.join(" ").as_str() {
            "read only" => modes.is_read_only = Some(true),
            "read write" => modes.is_read_only = Some(false),
            mode => {
                let isolation = mode.strip_prefix(LEVEL);
                let known = isolation.and_then(|mode| ISOLATIONS.iter().find(|one| **one == mode));
                modes.isolation = known.copied().or(modes.isolation);
            }
        }
        parser.accept_sign(',')?;
    }
    Ok(modes)
}

/// Takes what follows COMMIT or ROLLBACK, up to the end of the statement.
pub(crate) fn ending(parser: &mut Parser<'_>) -> Result<(), SyntaxError> {
    let at = parser.at();
    if parser.accept("prepared")? {
        return Err(SyntaxError::unsupported(at, "two-phase transactions are not supported"));
    }
    if !parser.accept("work")? {
        parser.accept("transaction")?;
    }
    if !parser.accept("and")? {
        return parser.end();
    }
    let (is_chain, at) = (!parser.accept("no")?, parser.at());
    if !parser.accept("chain")? {
        return Err(parser.wrong("CHAIN"));
    }
    if is_chain {
        let what = "AND CHAIN is not supported: begin the next transaction";
        return Err(SyntaxError::unsupported(at, what));
    }
    Ok(())
}

/// Words before the name of an isolation, and most words of a mode.
const LEVEL: &str = "isolation level ";
const MODE_WORDS_MAX: usize = 4;

fn is_mode(words: &[String]) -> bool {
    let mode = words.join(" ");
    matches!(&*mode, "read only" | "read write" | "deferrable" | "not deferrable")
        || mode.strip_prefix(LEVEL).is_some_and(|isolation| ISOLATIONS.contains(&isolation))
}
