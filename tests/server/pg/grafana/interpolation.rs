//! Variables and macros of Grafana's PostgreSQL datasource.

use std::collections::BTreeMap;

/// The values of a variable.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) values: Vec<String>,
    /// Whether several values, or all, can be selected. Without a format, these become texts of SQL.
    pub(crate) is_list: bool,
}

pub(crate) type Variables = BTreeMap<String, Values>;

/// The time range, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// Replaces variables, as the browser does, and then macros, as Grafana's server does.
pub(crate) fn expanded(text: &str, variables: &Variables, range: Range) -> String {
    macros_expanded(&variables_replaced(text, variables), range)
}

/// Replaces `$name`, `${name}` and `${name:format}` of known variables.
fn variables_replaced(text: &str, variables: &Variables) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once('$') {
        out.push_str(before);
        rest = reference;
        let (inner, after) = match rest.strip_prefix('{') {
            Some(braced) => braced.split_once('}').unwrap_or_else(|| panic!("{text}: no }}")),
            None => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                rest.split_at(end.unwrap_or(rest.len()))
            }
        };
        let (name, format) = inner.split_once(':').map_or((inner, None), |(a, b)| (a, Some(b)));
        match variables.get(name) {
            Some(values) => {
                out.push_str(&formatted(values, format));
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out + rest
}

fn formatted(Values { values, is_list }: &Values, format: Option<&str>) -> String {
    let list = |of: &dyn Fn(&String) -> String| values.iter().map(of).collect::<Vec<_>>().join(",");
    let text = |value: &String| format!("'{}'", value.replace('\'', "''"));
    match format {
        Some("raw" | "csv") => values.join(","),
        Some("doublequote") => list(&|value| format!("\"{}\"", value.replace('"', "\\\""))),
        Some("sqlstring") => list(&text),
        None if *is_list => list(&text),
        None => values.join(",").replace('\'', "''"),
        Some(other) => panic!("no format {other}"),
    }
}

/// Replaces `$__name(argument)`.
fn macros_expanded(text: &str, range: Range) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, call)) = rest.split_once("$__") {
        let (name, call) = call.split_once('(').unwrap_or_else(|| panic!("{text}: no ("));
        let (argument, after) = call.split_once(')').unwrap_or_else(|| panic!("{text}: no )"));
        out.push_str(before);
        out.push_str(&macro_expanded(name, argument, range));
        rest = after;
    }
    out + rest
}

fn macro_expanded(name: &str, argument: &str, Range { from, to }: Range) -> String {
    let time = |seconds| format!("'{}'", jiff::Timestamp::from_second(seconds).unwrap());
    match (name, argument) {
        ("timeFrom", "") => time(from),
        ("timeTo", "") => time(to),
        ("unixEpochFrom", "") => from.to_string(),
        ("unixEpochTo", "") => to.to_string(),
        ("timeFilter", column) => format!("{column} BETWEEN {} AND {}", time(from), time(to)),
        ("time", column) => format!("{column} AS \"time\""),
        ("timeEpoch", column) => format!("extract(epoch from {column}) as \"time\""),
        ("unixEpochFilter", column) => format!("{column} >= {from} AND {column} <= {to}"),
        _ => panic!("no macro {name}({argument})"),
    }
}

#[test]
fn variables_and_macros_become_values() {
    let values = |values: &[&str], is_list| Values {
        values: values.iter().map(|&value| value.to_owned()).collect(),
        is_list,
    };
    let variables = Variables::from([
        ("d".to_owned(), values(&["n1", "o'n"], true)),
        ("job".to_owned(), values(&["7"], false)),
    ]);
    let range = Range { from: 1_767_657_600, to: 1_767_657_640 };
    let text = "$d ${d:csv} [${d:doublequote}] ${d:sqlstring} '$job' '^\\d+$' $__timeFilter(timestamp) \
                $__unixEpochTo()-$__unixEpochFrom() $jobs";
    let want = "'n1','o''n' n1,o'n [\"n1\",\"o'n\"] 'n1','o''n' '7' '^\\d+$' \
                timestamp BETWEEN '2026-01-06T00:00:00Z' AND '2026-01-06T00:00:40Z' 1767657640-1767657600 $jobs";
    assert_eq!(expanded(text, &variables, range), want);
}
