//! Converts the engine's errors to text for the statement's author: with our table names, without the engine's
//! internal names.

use crate::common::schema::Table;
use datafusion::common::SchemaError;
use datafusion::sql::sqlparser::parser::ParserError;
use std::collections::BTreeSet;

/// Prefix of our tables in the engine.
const CATALOGUE: &str = "datafusion.";
const SCHEMA: &str = "public.";

/// Text for invalid SQL.
pub(crate) fn of_text(error: &ParserError) -> String {
    let what = match error {
        ParserError::TokenizerError(what) | ParserError::ParserError(what) => what,
        ParserError::RecursionLimitExceeded => "it is nested too deeply",
    };
    // `Expected: an SQL statement, found: SELEC at Line: 1, Column: 1`
    let what = what.replacen("Expected: ", "expected ", 1).replace(", found: ", ", found ");
    let what = what.replace(" at Line: ", " in line ").replace(", Column: ", ", column ");
    format!("invalid SQL: {what}")
}

/// Text for a plan that cannot be built.
pub(crate) fn of_plan(text: &str) -> String {
    let quoted = |before: &str| {
        let name = text.strip_prefix(before)?.strip_suffix("' not found")?;
        Some(plain(name))
    };
    if let Some(name) = quoted("table '") {
        let tables = Table::ALL.map(Table::name).join(", ");
        let meant = model::nearest(&name, Table::ALL.map(Table::name));
        let meant = meant.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
        return format!("there is no table `{name}`{meant}; the tables are {tables}");
    }
    if let Some(name) = quoted("table function '") {
        return format!("there is no table function `{name}`");
    }
    plain(text)
}

/// Text for unknown or ambiguous columns.
pub(crate) fn of_columns(error: &SchemaError) -> String {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let name = plain(&field.flat_name());
            let known: BTreeSet<&str> = valid_fields.iter().map(|column| column.name()).collect();
            if known.is_empty() {
                return format!("there is no column `{name}` here");
            }
            let known: Vec<&str> = known.into_iter().collect();
            format!("there is no column `{name}` here; the columns are {}", known.join(", "))
        }
        SchemaError::AmbiguousReference { field } => {
            format!("several tables have a column `{}`; write TABLE.COLUMN", field.name())
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            format!("two columns are named `{name}`; name one of them with AS")
        }
    }
}

fn plain(text: &str) -> String {
    text.replace(CATALOGUE, "").replace(SCHEMA, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engines_names_stay_inside() {
        let told = of_plan("table 'datafusion.public.metric' not found");
        assert!(
            told.starts_with(
                "there is no table `metric` (did you mean `metrics`?); the tables are metrics, "
            ),
            "{told}"
        );
        assert_eq!(of_plan("no 'datafusion.public.x' in sight"), "no 'x' in sight");
        let told = of_text(&ParserError::ParserError(
            "Expected: an SQL statement, found: SELEC at Line: 1, Column: 1".to_owned(),
        ));
        let want = "invalid SQL: expected an SQL statement, found SELEC in line 1, column 1";
        assert_eq!(told, want);
    }
}
