//! PostgreSQL's dialect of SQL, and the parser of statements.

use datafusion::common::{not_impl_err, plan_datafusion_err};
use datafusion::error::Result;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::dialect::{self, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use std::any::TypeId;

/// PostgreSQL's dialect. Names of arguments are names: where they may be expressions, the parser reads each argument twice,
/// and a call within 20 others a million times.
#[derive(Debug)]
pub(crate) struct Dialect;

/// Methods that are those of PostgreSQL's dialect.
macro_rules! as_postgresql {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $($argument: $kind),*) -> $result {
            PostgreSqlDialect {}.$name($($argument),*)
        })*
    };
}

impl dialect::Dialect for Dialect {
    fn dialect(&self) -> TypeId {
        TypeId::of::<PostgreSqlDialect>()
    }

    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    as_postgresql! {
        identifier_quote_style(identifier: &str) -> Option<char>;
        is_delimited_identifier_start(ch: char) -> bool;
        is_identifier_start(ch: char) -> bool;
        is_identifier_part(ch: char) -> bool;
        supports_unicode_string_literal() -> bool;
        is_reserved_for_identifier(kw: Keyword) -> bool;
        is_custom_operator_part(ch: char) -> bool;
        get_next_precedence(parser: &Parser<'_>) -> Option<Result<u8, ParserError>>;
        supports_filter_during_aggregation() -> bool;
        supports_group_by_expr() -> bool;
        prec_value(prec: Precedence) -> u8;
        allow_extract_custom() -> bool;
        allow_extract_single_quotes() -> bool;
        supports_create_index_with_clause() -> bool;
        supports_explain_with_utility_options() -> bool;
        supports_listen_notify() -> bool;
        supports_factorial_operator() -> bool;
        supports_bitwise_shift_operators() -> bool;
        supports_comment_on() -> bool;
        supports_load_extension() -> bool;
        supports_named_fn_args_with_colon_operator() -> bool;
        supports_empty_projections() -> bool;
        supports_nested_comments() -> bool;
        supports_string_escape_constant() -> bool;
        supports_numeric_literal_underscores() -> bool;
        supports_array_typedef_with_brackets() -> bool;
        supports_geometric_types() -> bool;
        supports_set_names() -> bool;
        supports_alter_column_type_using() -> bool;
        supports_notnull_operator() -> bool;
        supports_interval_options() -> bool;
        supports_insert_table_alias() -> bool;
        supports_create_table_like_parenthesized() -> bool;
        supports_select_wildcard_with_alias() -> bool;
        supports_comma_separated_trim() -> bool;
        supports_xml_expressions() -> bool;
        supports_comment_optimizer_hint() -> bool;
    }
}

/// Parses a text, which has one statement.
///
/// # Errors
/// It is no valid SQL, or has none or several statements.
pub(crate) fn parse(text: &str) -> Result<Statement> {
    let parser = DFParserBuilder::new(text).with_dialect(&Dialect).build();
    let mut statements = parser.and_then(|mut parser| parser.parse_statements())?;
    if statements.len() > 1 {
        return not_impl_err!("The context currently only supports a single SQL statement");
    }
    let none = || plan_datafusion_err!("No SQL statements were provided in the query string");
    statements.pop_front().ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_within_calls_are_read_once() {
        // Otherwise this would take days.
        let deep = format!("SELECT {}1{}", "abs(".repeat(40), ")".repeat(40));
        parse(&deep).unwrap();
        for named in ["f(a => 1)", "f(a := 1)", "f(\"A\" => g(b => 2), 3)"] {
            assert!(parse(&format!("SELECT * FROM {named}")).is_ok(), "{named}");
        }
        let several = parse("SELECT 1; SELECT 2").unwrap_err().to_string();
        assert!(several.contains("single SQL statement"), "{several}");
    }
}
