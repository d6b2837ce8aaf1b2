//! The expressions of promotions, as they match names (docs/decisions/0017-on-demand.md).

use config::bounded_regex;
use regex_lite::Regex;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Names of an exporter whose matches are remembered: others are matched at each scrape.
const NAMES_MAX: usize = 1024;

/// A regular expression of a promotion.
#[derive(Debug)]
pub struct Expression {
    text: Box<str>,
    start: Regex,
    whole: Regex,
    /// Whole names and whether they match: the samples of an exporter are many, and a match may cost a millisecond.
    known: Mutex<HashMap<Box<str>, bool>>,
}

impl Expression {
    /// Compiles an expression; `None` if it is not one.
    pub fn new(text: &str) -> Option<Self> {
        let start = bounded_regex(&format!("^(?:{text})")).ok()?;
        let whole = bounded_regex(&format!("^(?:{text})$")).ok()?;
        Some(Self { text: text.into(), start, whole, known: Mutex::default() })
    }

    /// The expression as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the name of a description begins with a match, as Kwollect matches.
    pub fn promotes(&self, description: &str) -> bool {
        self.start.is_match(description)
    }

    /// Whether a whole name matches, as for the metrics of agents.
    pub fn matches(&self, stored: &str) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(matches) = known.get(stored) {
            return *matches;
        }
        let matches = self.whole.is_match(stored);
        if known.len() < NAMES_MAX {
            known.insert(stored.into(), matches);
        }
        matches
    }
}

/// Two expressions are equal if their texts are equal.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Expression {}

/// Several expressions.
pub type Expressions = Vec<Arc<Expression>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_matches_from_its_start_and_a_stored_name_as_a_whole() {
        let all = Expression::new("wattmetre|prom_node_load1").unwrap();
        assert!(all.promotes("wattmetre_power_watt") && !all.promotes("my_wattmetre"));
        assert!(all.matches("prom_node_load1") && !all.matches("prom_node_load15"));
        assert!(Expression::new("(").is_none() && Expression::new("(?x) a # all").is_none());
    }
}
