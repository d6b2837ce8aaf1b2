//! Modes of transactions.

use crate::insert::Parser;
use crate::scanner::{SyntaxError, Token};

/// Takes the modes of a transaction, up to the end of the statement. Returns whether they make it read only; `None`: they do
/// not state it. The others change nothing: each statement reads one state of the store.
pub(crate) fn modes(parser: &mut Parser<'_>) -> Result<Option<bool>, SyntaxError> {
    let (mut before, mut is_read_only) = (String::new(), None);
    while parser.peek().is_some() {
        let at = parser.at();
        let unsupported = |what: &'static str| Err(SyntaxError::unsupported(at, what));
        let word = match parser.take()? {
            Some(Token::Word(word)) if matches!(&*word, "prepared" | "prepare") => {
                return unsupported("two-phase transactions are not supported");
            }
            Some(Token::Word(word)) if is_mode(&word) => word,
            Some(Token::Sign(',')) => String::new(),
            _ => return Err(SyntaxError::new(at, "syntax error: expected a transaction mode")),
        };
        match (&*before, &*word) {
            ("read", "only") => is_read_only = Some(true),
            ("read", "write") => is_read_only = Some(false),
            ("no", "chain") => {}
            (_, "chain") => {
                return unsupported("AND CHAIN is not supported: begin the next transaction");
            }
            _ => {}
        }
        before = word;
    }
    Ok(is_read_only)
}

fn is_mode(word: &str) -> bool {
    const MODES: &str = "work transaction isolation level serializable repeatable read committed \
                         uncommitted write only not deferrable and no chain";
    MODES.split_whitespace().any(|mode| mode == word)
}
