//! Converts the engine's errors to text for the statement's author: with our table names, without the engine's
//! internal names.

use crate::common::schema::Table;
use datafusion::common::SchemaError;
use datafusion::sql::sqlparser::parser::ParserError;
use std::collections::BTreeSet;

/// Prefix of our tables in the engine.
const CATALOGUE: &str = "datafusion.";
const SCHEMA: &str = "public.";
/// Categories of errors, before their texts.
const CATEGORIES: [&str; 7] = [
    "Compute error: ",
    "Parser error: ",
    "Cast error: ",
    "Internal error: ",
    "Arrow error: ",
    "Error during planning: ",
    "Execution error: ",
];

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

/// Text for a plan that cannot be built, or for a value that cannot be computed.
pub(crate) fn of_plan(text: &str) -> String {
    let mut first = text.lines().next().unwrap_or_default();
    while let Some(rest) = CATEGORIES.iter().find_map(|category| first.strip_prefix(category)) {
        first = rest;
    }
    let first = plain(first);
    let known = [of_name(&first, text), of_value(&first), of_types(&first), of_grouping(&first)];
    known.into_iter().flatten().next().unwrap_or_else(|| with_types(&first))
}

/// Text for a pattern that is no regular expression. The last line of the engine's text has the reason.
pub(crate) fn of_pattern(text: &str) -> String {
    let reason = text.lines().find_map(|line| line.strip_prefix("error: "));
    reason.unwrap_or("it is too large").to_owned()
}

/// Unknown tables and functions. The second line of the engine's text suggests a function.
fn of_name(first: &str, text: &str) -> Option<String> {
    if first.contains("only supports a single SQL statement") {
        return Some("one statement at a time: remove the text after the first `;`".to_owned());
    }
    let quoted = |before: &str| first.strip_prefix(before)?.strip_suffix("' not found");
    if let Some(name) = quoted("table '") {
        let tables = Table::ALL.map(Table::name).join(", ");
        let meant = is_meant(model::nearest(name, Table::ALL.map(Table::name)));
        return Some(format!("there is no table `{name}`{meant}; the tables are {tables}"));
    }
    if let Some(name) = quoted("table function '") {
        return Some(format!("there is no table function `{name}`"));
    }
    let name = between(first, "Invalid function '", "'")?;
    // The engine always suggests some function, whatever its name.
    let near = between(text, "Did you mean '", "'").and_then(|near| model::nearest(name, [near]));
    Some(format!("there is no function `{name}`{}", is_meant(near)))
}

fn is_meant(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
}

/// Texts that are no value of the type that they are compared with or converted to.
fn of_value(first: &str) -> Option<String> {
    if first.contains("Divide by zero") {
        return Some("division by zero".to_owned());
    }
    if let Some(text) = between(first, "Error parsing timestamp from '", "'") {
        return Some(format!(
            "'{text}' is no time; write a time such as '2026-01-06 13:35', or now() - interval '1 hour'"
        ));
    }
    if let Some(text) = between(first, "Invalid input syntax for type interval: \"", "\"") {
        return Some(format!("'{text}' is no interval; write one such as interval '5 minutes'"));
    }
    let text = between(first, "Cannot cast string '", "' to value of ")?;
    let (_, kind) = first.rsplit_once("' to value of ")?;
    let kind = type_word(kind.strip_suffix(" type")?);
    Some(format!("the text '{text}' is no {kind}; a text is compared with a text in quotes"))
}

/// Operators and functions that do not accept the types of their arguments.
fn of_types(first: &str) -> Option<String> {
    let sides = |text: &str| {
        // `Timestamp(µs, "Etc/UTC") - Int64`
        let mut words = text.split_whitespace().rev();
        let (right, operator) = (words.next()?, words.next()?);
        let left = text.strip_suffix(right)?.trim_end().strip_suffix(operator)?.trim_end();
        Some((type_word(left), operator.to_owned(), type_word(right)))
    };
    let hint = |left: &str, right: &str| match (left, right) {
        ("time", "whole number" | "number" | "text") => {
            "; write times in quotes, and differences as interval '5 minutes'"
        }
        _ => "",
    };
    if let Some(text) = between(first, "coerce arithmetic expression ", " to valid types") {
        let (left, operator, right) = sides(text)?;
        let hint = hint(&left, &right);
        return Some(format!("`{operator}` does not work on a {left} and a {right}{hint}"));
    }
    let compared = "Cannot infer common argument type for comparison operation ";
    if let Some(text) = first.strip_prefix(compared) {
        let (left, operator, right) = sides(text)?;
        let hint = hint(&left, &right);
        return Some(format!("`{operator}` does not compare a {left} with a {right}{hint}"));
    }
    if let Some(text) = between(first, "common type to coerce ", " in LIKE expression") {
        let (left, right) = text.split_once(" and ")?;
        let (left, right) = (type_word(left), type_word(right));
        return Some(format!("LIKE compares texts, not a {left} with a {right}"));
    }
    if let Some(text) = between(first, "with non-boolean predicate '", "' returning ") {
        return Some(format!("WHERE needs a condition, such as {text} > 0, and `{text}` is none"));
    }
    of_function(first)
}

fn of_function(first: &str) -> Option<String> {
    let name = between(first, "Function '", "'")?;
    let received =
        between(first, "(DataType: ", ").").or_else(|| between(first, "(DataType: ", ")"));
    if let Some(kind) = received {
        return Some(format!("the function `{name}` does not accept a {}", type_word(kind)));
    }
    let count = between(first, " expects ", " arguments but received ")?;
    let (_, given) = first.split_once(" arguments but received ")?;
    let given: String = given.chars().take_while(char::is_ascii_digit).collect();
    Some(format!("the function `{name}` takes {count} arguments, not {given}"))
}

fn of_grouping(first: &str) -> Option<String> {
    let column = match between(first, "column \"", "\" must appear in the GROUP BY") {
        Some(column) => column.to_owned(),
        None => {
            let text = between(first, "clause references: ", " must appear in the GROUP BY")?;
            with_types(text)
        }
    };
    Some(format!("`{column}` must be in GROUP BY, or within an aggregate such as max(...)"))
}

/// The text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(part, _)| part)
}

/// The word for a type of the engine.
fn type_word(name: &str) -> String {
    let name = name.trim();
    let word = match name.split('(').next().unwrap_or(name) {
        "Utf8View" | "Utf8" | "LargeUtf8" | "String" => "text",
        "Float64" | "Float32" | "Decimal128" => "number",
        "Int64" | "Int32" | "Int16" | "Int8" | "UInt64" | "UInt32" => "whole number",
        "Boolean" => "condition",
        "Timestamp" | "Date32" | "Time64" => "time",
        "Interval" | "Duration" => "interval",
        "Null" => "NULL",
        _ => name,
    };
    word.to_owned()
}

/// Replaces the engine's types and literals in a text that has no words of its own here: `Int64(1)` is `1`.
fn with_types(text: &str) -> String {
    let mut text = text.to_owned();
    for name in ["Utf8View", "LargeUtf8", "Utf8", "Float64", "UInt64", "Int64", "Boolean"] {
        let literal = format!("{name}(");
        while let Some((before, rest)) = text.split_once(&literal) {
            let Some((value, after)) = rest.split_once(')') else { break };
            text = format!("{before}{value}{after}");
        }
        text = text.replace(name, &type_word(name));
    }
    text
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
            let meant = is_meant(model::nearest(&name, known.iter().copied()));
            format!("there is no column `{name}` here{meant}; the columns are {}", known.join(", "))
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
    fn the_engines_names_remain_inside() {
        let text_of_error = of_plan("table 'datafusion.public.metric' not found");
        assert!(
            text_of_error.starts_with(
                "there is no table `metric` (did you mean `metrics`?); the tables are metrics, "
            ),
            "{text_of_error}"
        );
        let text_of_error = of_plan("Invalid function 'sums'.\nDid you mean 'sum'?");
        assert_eq!(text_of_error, "there is no function `sums` (did you mean `sum`?)");
        assert_eq!(of_plan("no 'datafusion.public.x' in sight"), "no 'x' in sight");
        let text_of_error = of_text(&ParserError::ParserError(
            "Expected: an SQL statement, found: SELEC at Line: 1, Column: 1".to_owned(),
        ));
        let want = "invalid SQL: expected an SQL statement, found SELEC in line 1, column 1";
        assert_eq!(text_of_error, want);
    }
}
