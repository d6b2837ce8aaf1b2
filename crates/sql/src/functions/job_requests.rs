//! A site's own statements about a job: a file with one SELECT of `jobmetrics` per line.

use crate::common::complexity;
use crate::common::dialect::Dialect;
use crate::common::schema::Table;
use crate::functions::headers::name_of_term;
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, Select, SelectItem, SetExpr, Statement, TableFactor, Visit, Visitor,
};
use datafusion::sql::sqlparser::parser::Parser;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;

/// The statements of a server without such a file.
pub use database::DEFAULT_JOB_REQUESTS;
/// Maximum number of statements in a file.
const REQUESTS_MAX: usize = 64;
/// Maximum number of columns of all statements.
const KEYS_MAX: usize = 256;
/// Maximum number of tables in a statement; repeated tables count again.
pub(crate) const JOB_TABLES_MAX: usize = 8;
/// Maximum number of characters of an error about a line.
const ERROR_CHARS_MAX: usize = 300;

/// A valid statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequest {
    /// Its line in the file, from 1.
    pub line: usize,
    /// Its column names: the keys of its values.
    pub keys: Vec<String>,
    /// Its text.
    pub text: String,
}

/// A rejected line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequestError {
    /// The line in the file, from 1.
    pub line: usize,
    /// The reason.
    pub what: String,
}

impl fmt::Display for JobRequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Reads the statements of a file. Returns the valid ones, and the errors of the other lines.
pub fn read_job_requests(text: &str) -> (Vec<JobRequest>, Vec<JobRequestError>) {
    let (mut requests, mut errors) = (Vec::new(), Vec::new());
    // The line of each key.
    let mut taken: HashMap<String, usize> = HashMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let is_space_left = requests.len() < REQUESTS_MAX && taken.len() < KEYS_MAX;
        let read = match is_space_left {
            true => keys(text).and_then(|keys| claimed(keys, line, &mut taken)),
            false => Err(format!("a file has at most {REQUESTS_MAX} statements")),
        };
        match read {
            Ok(keys) => requests.push(JobRequest { line, keys, text: text.to_owned() }),
            Err(what) => {
                let what = what.lines().next().unwrap_or_default();
                let what = what.chars().take(ERROR_CHARS_MAX).collect();
                errors.push(JobRequestError { line, what });
            }
        }
    }
    (requests, errors)
}

/// Claims the keys of a line, if none of them is a key of an earlier one.
fn claimed(
    keys: Vec<String>,
    line: usize,
    taken: &mut HashMap<String, usize>,
) -> Result<Vec<String>, String> {
    let mut own = HashSet::new();
    for key in &keys {
        if let Some(earlier) = taken.get(key) {
            return Err(format!("line {earlier} has a column `{key}`, too; name it differently"));
        }
        if !own.insert(key) {
            return Err(format!("two columns have the name `{key}`; name one differently"));
        }
    }
    taken.extend(keys.iter().map(|key| (key.clone(), line)));
    Ok(keys)
}

/// Checks a statement. Returns its column names.
fn keys(text: &str) -> Result<Vec<String>, String> {
    complexity::check(text).map_err(|error| error.to_string())?;
    let parsed = Parser::parse_sql(&Dialect, text);
    let statements = parsed.map_err(|error| error.to_string())?;
    let [statement] = statements.as_slice() else {
        return Err(format!("a line has one statement, and this has {}", statements.len()));
    };
    let Statement::Query(query) = statement else {
        let word: String = statement.to_string().split_whitespace().take(1).collect();
        return Err(format!("only SELECT is accepted here, and this is {word}"));
    };
    let mut check = Check::default();
    if let ControlFlow::Break(what) = statement.visit(&mut check) {
        return Err(what);
    }
    let select = first_select(&query.body).ok_or("only SELECT is accepted here")?;
    select.projection.iter().map(key).collect()
}

/// The SELECT that names the columns: of a UNION the first one.
fn first_select(body: &SetExpr) -> Option<&Select> {
    match body {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(query) => first_select(&query.body),
        SetExpr::SetOperation { left, .. } => first_select(left),
        _ => None,
    }
}

fn key(item: &SelectItem) -> Result<String, String> {
    let unnamed = |item: &SelectItem| format!("the column `{item}` has no name; add `AS name`");
    let name = match item {
        SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
        SelectItem::UnnamedExpr(term) => name_of_term(term).ok_or_else(|| unnamed(item))?,
        _ => return Err(unnamed(item)),
    };
    if name.is_empty() || name.chars().any(char::is_control) {
        return Err(unnamed(item));
    }
    Ok(name)
}

/// Rejects what reads anything other than `jobmetrics`.
#[derive(Debug, Default)]
struct Check {
    /// Names of WITH.
    named: HashSet<String>,
    tables: usize,
}

impl Check {
    fn table(&mut self, name: &ObjectName) -> ControlFlow<String> {
        self.tables += 1;
        if self.tables > JOB_TABLES_MAX {
            return ControlFlow::Break(format!(
                "a statement names at most {JOB_TABLES_MAX} tables"
            ));
        }
        let parts: Option<Vec<String>> =
            name.0.iter().map(|part| part.as_ident().map(folded)).collect();
        match parts.as_deref() {
            Some([name]) if name == JOBMETRICS || self.named.contains(name) => {
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Break(format!(
                "only the table `{JOBMETRICS}` can be read here, and this names `{name}`"
            )),
        }
    }
}

const JOBMETRICS: &str = Table::JobMetrics.name();

/// A name as PostgreSQL compares it.
fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

impl Visitor for Check {
    type Break = String;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<String> {
        if let Some(with) = &query.with {
            if with.recursive {
                return ControlFlow::Break("WITH RECURSIVE is not supported here".to_owned());
            }
            for named in &with.cte_tables {
                let name = folded(&named.alias.name);
                if Table::every().any(|table| table.name() == name) {
                    return ControlFlow::Break(format!(
                        "WITH gives a query the name of the table `{name}`; name it differently"
                    ));
                }
                self.named.insert(name);
            }
        }
        match &*query.body {
            SetExpr::Select(_)
            | SetExpr::Query(_)
            | SetExpr::SetOperation { .. }
            | SetExpr::Values(_) => ControlFlow::Continue(()),
            _ => ControlFlow::Break("only SELECT is accepted here".to_owned()),
        }
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<String> {
        match &select.into {
            Some(_) => ControlFlow::Break("only SELECT without INTO is accepted here".to_owned()),
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<String> {
        match factor {
            TableFactor::Table { name, args: None, .. } => self.table(name),
            TableFactor::Derived { .. } | TableFactor::NestedJoin { .. } => {
                ControlFlow::Continue(())
            }
            other => ControlFlow::Break(format!(
                "only the table `{JOBMETRICS}` can be read here, and this names `{other}`"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(line: &str) -> String {
        let (requests, errors) = read_job_requests(line);
        assert_eq!(requests, [], "{line}");
        errors.into_iter().next().unwrap_or_else(|| panic!("{line}")).what
    }

    #[test]
    fn the_default_is_valid() {
        let (requests, errors) = read_job_requests(DEFAULT_JOB_REQUESTS);
        assert_eq!((requests.len(), errors), (6, vec![]));
        assert!(requests.iter().all(|request| request.keys.len() == 1), "{requests:?}");
    }

    #[test]
    fn a_wrong_line_does_not_affect_the_others() {
        let text = "# comment\n\nSELECT 1 AS a FROM jobmetrics;\r\nSELEC 1\n  SELECT max(value), min(value) AS \"b c\" FROM jobmetrics\nSELECT 2 AS a FROM jobmetrics\n";
        let (requests, errors) = read_job_requests(text);
        let lines: Vec<(usize, Vec<&str>)> = requests
            .iter()
            .map(|one| (one.line, one.keys.iter().map(String::as_str).collect()))
            .collect();
        assert_eq!(lines, [(3, vec!["a"]), (5, vec!["max", "b c"])]);
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 2, "{shown:?}");
        assert!(shown[0].starts_with("line 4: "), "{shown:?}");
        assert_eq!(shown[1], "line 6: line 3 has a column `a`, too; name it differently");
    }

    #[test]
    fn only_jobmetrics_is_read() {
        for (line, reason) in [
            ("DROP TABLE jobmetrics", "only SELECT is accepted here, and this is DROP"),
            ("EXPLAIN SELECT 1 AS a", "only SELECT"),
            ("SELECT 1 AS a INTO x FROM jobmetrics", "without INTO"),
            ("SELECT 1 AS a; SELECT 2 AS b", "one statement, and this has 2"),
            ("SELECT 1 AS a FROM metrics", "names `metrics`"),
            ("SELECT 1 AS a FROM \"JobMetrics\"", "names"),
            ("SELECT 1 AS a FROM public.jobmetrics", "names"),
            ("SELECT 1 AS a FROM jobmetrics, jobs", "names `jobs`"),
            ("SELECT (SELECT max(job_id) FROM jobs) AS a FROM jobmetrics", "names `jobs`"),
            (
                "SELECT 1 AS a FROM jobmetrics WHERE value IN (SELECT job_id FROM jobs)",
                "names `jobs`",
            ),
            ("SELECT 1 AS a FROM jobmetrics WHERE EXISTS (SELECT 1 FROM marks)", "names `marks`"),
            ("SELECT 1 AS a FROM jobmetrics ORDER BY (SELECT 1 FROM jobs)", "names `jobs`"),
            ("SELECT 1 AS a FROM get_metrics(job_id => 7)", "names"),
            ("SELECT 1 AS a FROM api.get_job_metrics(job_id => 7)", "names"),
            ("SELECT 1 AS a FROM information_schema.tables", "names `information_schema.tables`"),
            ("SELECT 1 AS a FROM unnest(ARRAY[1])", "names"),
            ("SELECT 1 AS a FROM LATERAL generate_series(1, 9)", "names"),
            ("TABLE jobs", ""),
            ("VALUES (1)", "only SELECT"),
            ("SELECT 1 AS a FROM (TABLE jobs) AS x", ""),
            ("WITH x AS (SELECT 1 FROM jobs) SELECT 1 AS a FROM x", "names `jobs`"),
            ("WITH x AS (INSERT INTO metrics VALUES (1)) SELECT 1 AS a", ""),
            (
                "WITH jobmetrics AS (SELECT 1) SELECT 1 AS a FROM jobmetrics",
                "name of the table `jobmetrics`",
            ),
            ("WITH jobs AS (SELECT 1) SELECT 1 AS a FROM jobs", "name of the table `jobs`"),
            (
                "WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT 1 FROM x) SELECT 1 AS a FROM x",
                "RECURSIVE",
            ),
            ("SELECT 1 AS a FROM jobmetrics UNION SELECT job_id FROM jobs", "names `jobs`"),
            ("SELECT * FROM jobmetrics", "has no name"),
            ("SELECT value * 2 FROM jobmetrics", "has no name"),
            ("SELECT 1 AS a, 2 AS a FROM jobmetrics", "two columns have the name `a`"),
            ("SELECT 'never closed", ""),
        ] {
            let what = rejected(line);
            assert!(what.contains(reason), "{line}: {what}");
        }
        let many = ["jobmetrics"; 9].join(", ");
        assert!(rejected(&format!("SELECT 1 AS a FROM {many}")).contains("at most 8 tables"));
        assert!(rejected(&format!("SELECT {}1 AS a", "(".repeat(60))).contains("complex"));
        let ok = "WITH x AS (SELECT value FROM JobMetrics) SELECT max(value) AS a FROM x UNION ALL SELECT 1 FROM (SELECT value FROM jobmetrics) AS y";
        assert_eq!(read_job_requests(ok).1, []);
        let many: String = (0..70).map(|nth| format!("SELECT 1 AS a{nth}\n")).collect();
        let (requests, errors) = read_job_requests(&many);
        assert_eq!((requests.len(), errors.len()), (64, 6));
    }
}
