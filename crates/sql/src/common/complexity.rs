//! Limits on the size and the depth of a statement, checked before anything parses it.
//!
//! A parser, a planner and every pass of an optimizer recurse once for each level of a statement. The text bounds
//! this depth: each level needs at least one token, and only a comma or a closing bracket starts another branch.
//! The depth of the tree is therefore at most the number of tokens on the longest path from the statement's start
//! into its brackets. The path counts every token of any meaning: operators, `NOT`, `::`, `CASE`, `JOIN`, `UNION`,
//! `EXPLAIN`. No kind of nesting escapes it.
//!
//! Two kinds of commas chain their elements and start no branch. Tables after `FROM` are joined from left to right,
//! and each query of `WITH` may contain the one before.

use crate::SqlError;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// Maximum number of tokens of a statement, without blanks and comments.
const TOKENS_MAX: usize = 16_384;
/// Maximum number of tokens on the longest path into a statement's brackets.
const PATH_MAX: usize = 2048;
/// Maximum nesting depth of brackets.
const BRACKETS_MAX: usize = 48;
/// Maximum number of queries that a statement names with `WITH`.
const NAMED_QUERIES_MAX: usize = 32;

/// The part of a statement inside one pair of brackets.
#[derive(Debug, Default)]
struct Level {
    /// Number of tokens since the last comma that starts another branch.
    tokens: usize,
    /// Longest path of the inner brackets since that comma.
    inside: usize,
    /// Longest path of the earlier branches.
    longest: usize,
    /// Whether commas chain their elements.
    chained: bool,
}

impl Level {
    fn path(&self) -> usize {
        self.longest.max(self.tokens.saturating_add(self.inside))
    }

    fn next_branch(&mut self) {
        self.longest = self.path();
        (self.tokens, self.inside) = (0, 0);
    }
}

/// Rejects a statement that is larger or deeper than the engine's stack permits.
///
/// # Errors
/// A limit is exceeded, or the text cannot be split into SQL tokens.
pub(crate) fn check(text: &str) -> Result<(), SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize();
    let tokens = tokens
        .map_err(|error| SqlError::Statement(crate::common::error_texts::of_text(&error.into())))?;
    let (mut count, mut named) = (0_usize, 0_usize);
    let mut outer: Vec<Level> = Vec::new();
    let mut level = Level::default();
    let mut after_as = false;
    for token in &tokens {
        if matches!(token, Token::Whitespace(_) | Token::EOF) {
            continue;
        }
        count += 1;
        level.tokens += 1;
        let keyword = match token {
            Token::Word(word) => word.keyword,
            _ => Keyword::NoKeyword,
        };
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                named += usize::from(after_as && matches!(token, Token::LParen));
                outer.push(std::mem::take(&mut level));
                if outer.len() > BRACKETS_MAX {
                    return Err(too_deep(format!(
                        "more than {BRACKETS_MAX} brackets in each other"
                    )));
                }
            }
            Token::RParen | Token::RBracket | Token::RBrace => {
                if let Some(mut before) = outer.pop() {
                    before.inside = before.inside.max(level.path());
                    level = before;
                }
            }
            Token::Comma if !level.chained => level.next_branch(),
            _ => level.chained |= keyword == Keyword::FROM,
        }
        after_as = matches!(keyword, Keyword::AS)
            || (after_as && matches!(keyword, Keyword::NOT | Keyword::MATERIALIZED));
        let around: usize = outer.iter().map(|level| level.tokens).sum();
        if around.saturating_add(level.path()) > PATH_MAX {
            return Err(too_deep(format!("more than {PATH_MAX} tokens in one expression")));
        }
    }
    if count > TOKENS_MAX {
        return Err(too_deep(format!("{count} tokens; {TOKENS_MAX} at most")));
    }
    if named > NAMED_QUERIES_MAX {
        return Err(too_deep(format!(
            "{named} queries named by WITH; {NAMED_QUERIES_MAX} at most"
        )));
    }
    Ok(())
}

fn too_deep(what: String) -> SqlError {
    SqlError::TooComplex(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(text: &str) -> bool {
        matches!(check(text), Err(SqlError::TooComplex(_)))
    }

    #[test]
    fn wide_statements_pass_and_deep_ones_do_not() {
        let list = |count: usize| vec!["'n1'"; count].join(", ");
        assert!(!rejected(&format!("SELECT 1 FROM metrics WHERE device_id IN ({})", list(5000))));
        assert!(rejected(&format!("SELECT 1 FROM metrics WHERE device_id IN ({})", list(9000))));
        let any = |count: usize| vec!["device_id = 'n1'"; count].join(" OR ");
        assert!(!rejected(&format!("SELECT 1 FROM metrics WHERE {}", any(500))));
        assert!(rejected(&format!("SELECT 1 FROM metrics WHERE {}", any(520))));
        let columns = vec!["max(value) AS v"; 1000].join(", ");
        assert!(!rejected(&format!("SELECT {columns} FROM metrics")));
        let tables = vec!["(VALUES (1)) a"; 700].join(", ");
        assert!(rejected(&format!("SELECT 1 FROM {tables}")));
    }

    #[test]
    fn brackets_and_named_queries() {
        let nested = |count: usize| format!("SELECT {}1{}", "(".repeat(count), ")".repeat(count));
        assert!(!rejected(&nested(48)) && rejected(&nested(49)));
        assert!(rejected(&format!("SELECT {}1", "[".repeat(49))), "never closed");
        let chain = |count: usize, word: &str| {
            let query = |i: usize| format!("q{} AS {word}(SELECT * FROM q{i})", i + 1);
            let queries: Vec<String> = (0..count).map(query).collect();
            format!("WITH {} SELECT 1", queries.join(", "))
        };
        for word in ["", "MATERIALIZED ", "NOT MATERIALIZED ", "/* ( */ "] {
            assert!(!rejected(&chain(32, word)) && rejected(&chain(33, word)), "{word}");
        }
    }

    #[test]
    fn what_stands_in_texts_and_comments_does_not_count() {
        let signs = "(".repeat(3000);
        for text in [
            format!("SELECT '{signs}'"),
            format!("SELECT $${signs}$$"),
            format!("SELECT 1 AS \"{signs}\""),
            format!("SELECT 1 -- {signs}"),
            format!("SELECT 1 /* /* {signs} */ */"),
        ] {
            assert!(check(&text).is_ok(), "{text}");
        }
        assert!(rejected(&format!("SELECT 'x' || {signs}")));
        assert!(matches!(check("SELECT 'never closed"), Err(SqlError::Statement(_))));
    }
}
