//! The parameters of a query in PostgREST's form, and its statement.

use super::column_ref::{Rows, identifier};
use super::conditions::{of_column, of_tree};
use super::selection;
use crate::common::http_error::HttpError;
use std::collections::BTreeSet;

/// Names of parameters that are no column, besides those of logic trees.
const RESERVED: [&str; 4] = ["select", "order", "limit", "offset"];

/// Which rows a query returns, without its window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowQuery {
    /// What follows FROM.
    from: String,
    columns: String,
    conditions: Vec<String>,
    order: Option<String>,
}

impl RowQuery {
    /// Reads the parameters of a table's rows.
    ///
    /// # Errors
    /// A parameter names no column, or cannot be parsed.
    pub(crate) fn of_table(pairs: &[(String, String)], rows: &Rows<'_>) -> Result<Self, HttpError> {
        Self::read(identifier(rows.name), pairs, rows)
    }

    /// Reads the parameters of a function's rows. The arguments are those of the function.
    ///
    /// # Errors
    /// The same.
    pub(crate) fn of_function(
        arguments: &[(&str, String)],
        pairs: &[(String, String)],
        rows: &Rows<'_>,
    ) -> Result<Self, HttpError> {
        let argument = |(name, value): &(&str, String)| {
            format!("{name} => {}", super::column_ref::text(value))
        };
        let arguments: Vec<String> = arguments.iter().map(argument).collect();
        let from = format!("{}({})", rows.name, arguments.join(", "));
        let mut query = Self::read(from, pairs, rows)?;
        // The function returns its rows in this order.
        if query.order.is_none() && rows.name == "get_metrics" {
            query.order = Some(identifier("timestamp"));
        }
        Ok(query)
    }

    fn read(from: String, pairs: &[(String, String)], rows: &Rows<'_>) -> Result<Self, HttpError> {
        let (mut select, mut order, mut conditions) = (None, None, Vec::new());
        let mut given = BTreeSet::new();
        for (name, value) in pairs {
            // Several conditions of a column all hold. Of the others, none could be chosen over the other.
            if RESERVED.contains(&&**name) && !given.insert(name) {
                return Err(HttpError::malformed(format!("duplicate parameter `{name}`")));
            }
            match &**name {
                "select" => select = Some(&**value),
                "order" => order = Some(selection::order(value, rows)?),
                "limit" | "offset" => {}
                _ => conditions.push(match of_tree(name, value, rows) {
                    Some(condition) => condition?,
                    None => of_column(name, value, rows)?,
                }),
            }
        }
        let columns = selection::columns(select, rows)?;
        Ok(Self { from, columns, conditions, order })
    }

    /// Whether a parameter is one of this form: reserved, a logic tree, or a column.
    pub(crate) fn has_parameter(name: &str, rows: &Rows<'_>) -> bool {
        let is_tree = matches!(name, "and" | "or" | "not.and" | "not.or");
        let of_column = name.split("->").next().unwrap_or(name).trim_matches('"');
        is_tree
            || RESERVED.contains(&name)
            || rows.columns.iter().any(|(column, _)| *column == of_column)
    }

    /// The statement for these rows.
    pub(crate) fn statement(&self, limit: Option<u64>, offset: u64) -> String {
        let order = self.order.as_ref().map(|order| format!(" ORDER BY {order}"));
        let order = order.unwrap_or_default();
        self.select(&self.columns, &(order + &window(limit, offset)))
    }

    /// The statement that counts the rows of a window.
    pub(crate) fn count(&self, limit: Option<u64>, offset: u64) -> String {
        let rows = self.select("1", &window(limit, offset));
        format!("SELECT count(*) AS rows FROM ({rows}) AS counted")
    }

    fn select(&self, columns: &str, end: &str) -> String {
        let conditions = match &*self.conditions {
            [] => String::new(),
            conditions => format!(" WHERE {}", conditions.join(" AND ")),
        };
        format!("SELECT {columns} FROM {}{conditions}{end}", self.from)
    }
}

fn window(limit: Option<u64>, offset: u64) -> String {
    let limit = limit.map(|limit| format!(" LIMIT {limit}")).unwrap_or_default();
    if offset == 0 { limit } else { format!("{limit} OFFSET {offset}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use model::Timestamp;
    use proptest::prelude::*;

    fn rows(zone: &TimeZone) -> Rows<'_> {
        let columns = sql::columns("metrics").unwrap();
        Rows { name: "metrics", columns, now: Timestamp(7_200_000_000), zone }
    }

    fn statement(query: &str) -> Result<String, HttpError> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(query.as_bytes())
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        Ok(RowQuery::of_table(&pairs, &rows(&TimeZone::UTC))?.statement(None, 0))
    }

    fn condition(query: &str) -> String {
        let statement = statement(query).unwrap();
        statement.strip_prefix("SELECT * FROM \"metrics\" WHERE ").unwrap().to_owned()
    }

    #[test]
    fn conditions_are_those_of_postgrest() {
        for (query, want) in [
            ("value=gt.5", r#"("value" > CAST('5.0' AS DOUBLE PRECISION))"#),
            ("value=not.eq.NaN", r#"(NOT ("value" = CAST('NaN' AS DOUBLE PRECISION)))"#),
            ("device_id=eq.a'b", r#"("device_id" = 'a''b')"#),
            ("device_id=eq.\"a\"", r#"("device_id" = '"a"')"#),
            ("job_id=in.(7,8)", r#"("job_id" IN (7, 8))"#),
            ("metric_id=in.(a,\"b,\\\"c\")", r#"("metric_id" IN ('a', 'b,"c'))"#),
            ("metric_id=like.load*", r#"("metric_id" LIKE 'load%')"#),
            ("metric_id=imatch.^LOAD", r#"("metric_id" ~* '^LOAD')"#),
            ("job_id=is.null", r#"("job_id" IS NULL)"#),
            ("job_id=is.not_null", r#"("job_id" IS NOT NULL)"#),
            ("labels->>cpu=eq.0", r#"(("labels"->>'cpu') = '0')"#),
            ("device_id=in.()", "(1 = 0)"),
            (
                "or=(value.lt.1,and(device_id.eq.a,not.or(job_id.eq.7,cluster.eq.\"x,y\")))",
                r#"(("value" < CAST('1.0' AS DOUBLE PRECISION)) OR (("device_id" = 'a') AND (NOT (("job_id" = 7) OR ("cluster" = 'x,y')))))"#,
            ),
            (
                "timestamp=gte.1970-01-01T00:00:01&timestamp=lt.3.5",
                r#"("timestamp" >= '1970-01-01T00:00:01+00:00') AND ("timestamp" < '1970-01-01T00:00:03.5+00:00')"#,
            ),
        ] {
            assert_eq!(condition(query), want, "{query}");
        }
    }

    #[test]
    fn columns_and_order_are_those_of_postgrest() {
        assert_eq!(
            statement("select=timestamp,watts:value::int,labels->>cpu,all:labels").unwrap(),
            "SELECT \"timestamp\" AS \"timestamp\", CAST(\"value\" AS INTEGER) AS \"watts\", \
             (\"labels\"->>'cpu') AS \"cpu\", \"labels\" AS \"all\" FROM \"metrics\""
        );
        assert_eq!(
            statement("order=value.desc.nullslast,labels->>cpu,timestamp.asc").unwrap(),
            "SELECT * FROM \"metrics\" ORDER BY \"value\" DESC NULLS LAST, \
             (\"labels\"->>'cpu'), \"timestamp\" ASC"
        );
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_position() {
        for (query, code, message) in [
            ("value=5", "PGRST100", "\"failed to parse filter (5)\" (line 1, column 1)"),
            ("value=gt5.1", "PGRST100", "(line 1, column 1)"),
            ("value=gt.x", "22P02", "type double precision: \"x\""),
            ("job_id=eq.1.5", "22P02", "type bigint"),
            ("value=like.1*", "PGRST100", "failed to parse filter"),
            ("job_id=in.(1", "PGRST100", "(line 1, column 6)"),
            ("job_id=in.1", "PGRST100", "(line 1, column 4)"),
            ("or=(value.gt.1", "PGRST100", "failed to parse logic tree"),
            ("or=value.gt.1", "PGRST100", "(line 1, column 1)"),
            ("or=(value.gt.1))", "PGRST100", "(line 1, column 13)"),
            ("select=a", "42703", "column metrics.a does not exist"),
            ("select=value,", "PGRST100", "failed to parse select parameter"),
            ("select=value::money", "PGRST100", "(line 1, column 8)"),
            ("select=device(name)", "42703", "does not exist"),
            ("order=value.up", "PGRST100", "failed to parse order"),
            ("valeu=gt.5", "42703", "column metrics.valeu"),
            ("labels->cpu=eq.0", "PGRST100", "column 7"),
            ("value->>a=eq.0", "PGRST100", "failed to parse filter"),
            ("timestamp=gt.soon", "22007", "soon"),
            ("limit=1&limit=2", "PGRST102", "duplicate parameter `limit`"),
            ("select=value&select=labels", "PGRST102", "duplicate parameter `select`"),
        ] {
            let error = statement(query).unwrap_err();
            assert_eq!(error.code, code, "{query}: {error:?}");
            assert!(error.message.contains(message), "{query}: {error:?}");
        }
        let nested = format!("and=({}value.gt.1{})", "or(".repeat(9), ")".repeat(9));
        assert_eq!(statement(&nested).unwrap_err().code, "PGRST100");
    }

    proptest! {
        /// Whatever a value is, it is one literal: quotes are doubled, and nothing else ends it.
        #[test]
        fn a_value_never_ends_its_literal(value in "\\PC{0,20}") {
            let zone = TimeZone::UTC;
            let pairs = [("device_id".to_owned(), format!("eq.{value}"))];
            let statement = RowQuery::of_table(&pairs, &rows(&zone)).unwrap().statement(None, 0);
            let literal = statement.strip_prefix("SELECT * FROM \"metrics\" WHERE (\"device_id\" = '");
            let literal = literal.and_then(|rest| rest.strip_suffix("')")).unwrap();
            prop_assert_eq!(literal.replace("''", ""), value.replace('\'', ""));
            prop_assert_eq!(literal.replace("''", "'"), value);
        }

        #[test]
        fn no_text_panics(name in "\\PC{0,20}", value in "\\PC{0,40}") {
            let zone = TimeZone::UTC;
            for name in [&*name, "or", "select", "order", "labels->>x", "value"] {
                drop(RowQuery::of_table(&[(name.to_owned(), value.clone())], &rows(&zone)));
            }
        }
    }
}
