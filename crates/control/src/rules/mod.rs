//! Rules of promotions, and rules about values.
//!
//! - `rules_file`: the rules file; `expression`: its metric names; `portable_expression`: those that other engines read alike.
//! - `value_rule`, `rule_evaluator`: value rules, and when they fire.

pub(crate) mod expression;
pub(crate) mod portable_expression;
pub(crate) mod rule_evaluator;
pub(crate) mod rules_file;
pub(crate) mod value_rule;
