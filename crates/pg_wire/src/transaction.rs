//! Modes of transactions.

use crate::parser::Parser;
use crate::scanner::{SyntaxError, Token};

/// Takes the modes of a transaction, up to the end of the statement. Returns whether they make it read only; `None`: they do
/// not state it. The others change nothing: each statement reads one state of the store.
pub(crate) fn modes(parser: &mut Parser<'_>) -> Result<Option<bool>, SyntaxError> {
    let (mut before, mut is_read_only) = (String::new(), None);
    while parser.peek().is_some() {
        let at = parser.at();
        let word = match parser.take()? {
            Some(Token::Word(word)) if is_mode(&word) => word,
            Some(Token::Sign(',')) => String::new(),
            _ => return Err(SyntaxError::new(at, "syntax error: expected a transaction mode")),
        };
        match (&*before, &*word) {
            ("read", "only") => is_read_only = Some(true),
            ("read", "write") => is_read_only = Some(false),
            _ => {}
        }
        before = word;
    }
    Ok(is_read_only)
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

fn is_mode(word: &str) -> bool {
    const MODES: &str = "work transaction isolation level serializable repeatable read committed \
                         uncommitted write only not deferrable";
    MODES.split_whitespace().any(|mode| mode == word)
}
