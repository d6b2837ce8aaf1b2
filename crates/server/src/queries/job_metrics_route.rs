//! `/rpc/get_job_metrics`: what a job used, by the site's own statements.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::csv;
use crate::common::http_error::{HttpError, Why};
use crate::queries::answers::format;
use crate::queries::kwollect_routes::params;
use crate::queries::postgrest::answer::{rows, wants_object};
use crate::queries::postgrest::row_query::RowQuery;
use crate::queries::slow_query_log::RunningQuery;
use crate::queries::sql_routes::complete;
use api::Operation;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use query::Format;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use sql::Encoding;
use std::fmt;
use std::sync::Arc;

const FUNCTION: &str = "get_job_metrics";
/// Names the statements that failed.
const WARNING: HeaderName = HeaderName::from_static("x-jobmeter-warning");
/// Maximum length of the header in bytes, so that it stays within the clients' limits.
const WARNING_BYTES_MAX: usize = 2000;

/// The only row of the function.
#[derive(serde::Deserialize)]
struct Row {
    get_job_metrics: Box<RawValue>,
    warnings: Option<Vec<String>>,
}

/// Handles a request.
pub(crate) async fn get_job_metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let format = match wants_object(request.headers()) {
        true => Format::Json,
        false => format(request.headers())?,
    };
    let given = params(&app, request).await?;
    given.only(Operation::GetJobMetrics, StatusCode::NOT_FOUND)?;
    let job = given.text("job_id")?.ok_or_else(no_job)?;
    let cluster = given.text("cluster")?.map(|cluster| ("cluster", cluster));
    let arguments: Vec<_> = [("job_id", job)].into_iter().chain(cluster).collect();
    let table = rows(&app, FUNCTION).ok_or_else(|| HttpError::fault(&"an unknown function"))?;
    let statement = RowQuery::of_function(&arguments, &[], &table)?.statement(None, 0);
    let mut running = RunningQuery::new(&app, FUNCTION, &caller, &statement);
    let encoding = Encoding { format: Format::Json, like_postgrest: true };
    let answer = complete(&app, &caller, &statement, encoding, &mut running.taken).await;
    let answer = answer.and_then(|(text, _)| response(&text, format, &caller));
    running.answered(answer)
}

fn no_job() -> HttpError {
    let message =
        "Could not find the function api.get_job_metrics without parameters in the schema cache";
    let hint = "give the job: get_job_metrics?job_id=1234".to_owned();
    HttpError::new(StatusCode::NOT_FOUND, "PGRST202", Why::Unknown, message).hint(Some(hint))
}

fn response(text: &[u8], format: Format, caller: &Caller) -> Result<Response, HttpError> {
    let rows: Vec<Row> = serde_json::from_slice(text).map_err(|error| HttpError::fault(&error))?;
    let row = rows.into_iter().next().ok_or_else(|| HttpError::fault(&"no row"))?;
    let object = row.get_job_metrics.get();
    let body = match format {
        Format::Json => object.to_owned(),
        Format::Csv => as_csv(object).map_err(|error| HttpError::fault(&error))?,
    };
    let content_type = HeaderValue::from_static(format.content_type());
    let mut response = ([(header::CONTENT_TYPE, content_type)], body).into_response();
    for warning in row.warnings.iter().flatten() {
        log::warn!("{FUNCTION} of {}: {}", caller.actor.who, warning.escape_debug());
    }
    let warning = row.warnings.and_then(|all| header_text(&all));
    response.headers_mut().extend(warning.map(|text| (WARNING, text)));
    Ok(response)
}

/// The warnings in one line of ASCII.
fn header_text(warnings: &[String]) -> Option<HeaderValue> {
    let mut text = String::new();
    for c in warnings.join("; ").chars() {
        match c {
            ' '..='~' => text.push(c),
            _ => text.extend(c.escape_default()),
        }
    }
    text.truncate(WARNING_BYTES_MAX);
    HeaderValue::try_from(text).ok()
}

/// A header line and a line of values.
fn as_csv(object: &str) -> Result<String, serde_json::Error> {
    let Members(members) = serde_json::from_str(object)?;
    let (mut names, mut values) = (String::new(), String::new());
    for (nth, (name, value)) in members.iter().enumerate() {
        for line in [&mut names, &mut values] {
            line.push_str(if nth == 0 { "" } else { "," });
        }
        csv::text_field(name, &mut names);
        match serde_json::from_str(value.get())? {
            serde_json::Value::Null => {}
            serde_json::Value::String(text) => csv::text_field(&text, &mut values),
            _ => csv::field(value.get(), &mut values),
        }
    }
    Ok(format!("{names}\n{values}\n"))
}

/// The members of an object in their order.
struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadMembers)
    }
}

struct ReadMembers;

impl<'de> Visitor<'de> for ReadMembers {
    type Value = Members;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = map.next_entry()? {
            members.push(member);
        }
        Ok(Members(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_as_csv() {
        let object =
            r#"{"watts":98.5,"a \"b\", c":"x, \"y\"","none":null,"nan":"NaN","l":{"a": 1}}"#;
        let want =
            "watts,\"a \"\"b\"\", c\",none,nan,l\n98.5,\"x, \"\"y\"\"\",,NaN,\"{\"\"a\"\": 1}\"\n";
        assert_eq!(as_csv(object).unwrap(), want);
        assert_eq!(as_csv("{}").unwrap(), "\n\n");
    }

    #[test]
    fn warnings_are_one_line_of_ascii() {
        let text = |warnings: &[&str]| {
            let owned: Vec<String> = warnings.iter().map(|one| (*one).to_owned()).collect();
            header_text(&owned).unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(
            text(&["line 1: a", "line 2: 'é'\n"]),
            "line 1: a; line 2: 'é'\\n".replace('é', "\\u{e9}")
        );
        assert_eq!(text(&["x".repeat(5000).as_str()]).len(), 2000);
    }
}
