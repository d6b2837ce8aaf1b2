//! `/rpc`: Kwollect's functions, in the form that PostgREST serves.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::csv;
use crate::common::http_error::{HttpError, Why};
use crate::http::params::{Params, pairs, part};
use crate::queries::answers::format;
use crate::queries::postgrest::answer::{RowRequest, answer, is_wanted, rows};
use crate::queries::postgrest::row_query::RowQuery;
use crate::queries::slow_query_log::RunningQuery;
use api::{Available, Operation};
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::DeviceId;
use query::{AvailableFilter, Format, GetMetrics, parse_time};
use serde_json::Value;
use std::sync::Arc;

/// The functions that exist.
const FUNCTIONS: [&str; 6] = [
    "get_metrics",
    "get_job_metrics",
    "available_metrics",
    "update_promoted_metrics",
    "insert_metrics",
    "insert_user_metrics",
];
/// `GET|POST /rpc/get_metrics`.
pub(crate) async fn get_metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let call = Call::read(&app, request, Operation::GetMetrics, "get_metrics").await?;
    let pairs = call.arguments()?;
    if call.has_form() {
        return call.rows(&app, &caller, &pairs).await;
    }
    let format = format(&call.headers)?;
    let query = GetMetrics::from_pairs(pairs.iter().map(|(name, text)| (*name, &**text)))?;
    let context = app.context(&caller)?;
    let words: Vec<String> = pairs.iter().map(|(name, text)| format!("{name}={text}")).collect();
    let running = RunningQuery::new(&app, "get_metrics", &caller, &words.join(" "));
    let engine = app.engine.clone();
    let (cancel, user_key) = (context.cancel.clone(), Arc::clone(&context.user_key));
    let taken = running.taken.clone();
    let work = move || {
        let begin = || engine.get_metrics(&query, format, &context);
        let mut answer = taken.reads.during(begin)?;
        let mut rows_sent = 0;
        Ok(std::iter::from_fn(move || {
            let piece = taken.reads.during(|| answer.next());
            let before = std::mem::replace(&mut rows_sent, answer.rows());
            taken.count_rows(
                usize::try_from(rows_sent.saturating_sub(before)).unwrap_or(usize::MAX),
            );
            piece
        }))
    };
    running.streamed(app.work.stream(&user_key, format.content_type(), cancel, work).await)
}

/// `GET|POST /rpc/available_metrics`.
pub(crate) async fn available_metrics(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let call = Call::read(&app, request, Operation::AvailableMetrics, "available_metrics").await?;
    if call.has_form() {
        let arguments = call.arguments_as_json()?;
        return call.rows(&app, &caller, &arguments).await;
    }
    let (format, params, now) = (format(&call.headers)?, &call.params, app.now());
    let at = params.text("at")?.map(|at| parse_time(&at, now, &app.engine.settings().zone));
    let at = at.transpose()?.unwrap_or(now);
    let only = AvailableFilter::parse(&params.json("params")?.unwrap_or(Value::Null))?;
    let context = app.context(&caller)?;
    let (cancel, engine) = (context.cancel.clone(), app.engine.clone());
    let user_key = Arc::clone(&context.user_key);
    let rows =
        app.work.answer(&user_key, cancel, move || engine.available_metrics(at, &only, &context));
    let body = available(&rows.await?, format).map_err(|error| HttpError::fault(&error))?;
    let content_type = HeaderValue::from_static(format.content_type());
    Ok(([(header::CONTENT_TYPE, content_type)], body).into_response())
}

fn available(rows: &[(DeviceId, Arc<str>)], format: Format) -> Result<Vec<u8>, serde_json::Error> {
    if format == Format::Csv {
        let mut text = String::from("device_id,metric_id\n");
        for (device, metric) in rows {
            csv::text_field(device.as_str(), &mut text);
            text.push(',');
            csv::text_field(metric, &mut text);
            text.push('\n');
        }
        return Ok(text.into_bytes());
    }
    let row = |(device, metric): &(DeviceId, Arc<str>)| Available {
        device_id: device.to_string(),
        metric_id: metric.to_string(),
    };
    serde_json::to_vec(&rows.iter().map(row).collect::<Vec<_>>())
}

/// `GET /sites/SITE/metrics`: `get_metrics`.
pub(crate) async fn metrics_of_site(
    State(app): State<Arc<App>>,
    site: Result<Path<String>, PathRejection>,
    caller: Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    check_site(&app, site)?;
    get_metrics(State(app), caller, request).await
}

/// Checks that the site in a path is the server's.
pub(crate) fn check_site(
    app: &App,
    site: Result<Path<String>, PathRejection>,
) -> Result<(), HttpError> {
    let (site, live) = (part(site)?, app.live());
    if live.site.as_ref() == Some(&site) {
        return Ok(());
    }
    let shown: String = site.chars().take(100).collect();
    let message = format!("this server is not that of the site `{shown}`");
    let hint = match &live.site {
        Some(served) => format!("the site of this server is `{served}`"),
        None => "the setting `site` names the site of a server".to_owned(),
    };
    Err(HttpError::not_found(message).hint(Some(hint)))
}

/// `/rpc/NAME` of a function that does not exist.
pub(crate) async fn unknown(name: Result<Path<String>, PathRejection>) -> HttpError {
    let shown: String = match part(name) {
        Ok(name) => name.chars().take(100).collect(),
        Err(http_error) => return http_error,
    };
    let message = format!("Could not find the function api.{shown} in the schema cache");
    let meant = config::nearest(&shown, FUNCTIONS);
    let hint = meant.map(|near| format!("Did you mean the function api.{near}?"));
    HttpError::new(StatusCode::NOT_FOUND, "PGRST202", Why::Unknown, message).hint(hint)
}

/// A call of a function.
struct Call {
    function: &'static str,
    operation: Operation,
    params: Params,
    /// Parameters of PostgREST's form.
    form: Vec<(String, String)>,
    headers: HeaderMap,
}

impl Call {
    /// Reads a call. A parameter of the query string that is neither an argument nor of PostgREST's form is an error.
    async fn read(
        app: &App,
        request: Request,
        operation: Operation,
        function: &'static str,
    ) -> Result<Self, HttpError> {
        let headers = request.headers().clone();
        let (mut head, body) = request.into_parts();
        let (arguments, form) = split(app, head.uri.query(), operation, function)?;
        let path = format!("{}?{arguments}", head.uri.path());
        head.uri = path.parse().map_err(|error| HttpError::fault(&error))?;
        let params = params(app, Request::from_parts(head, body)).await?;
        params.only(operation, StatusCode::NOT_FOUND)?;
        Ok(Self { function, operation, params, form, headers })
    }

    fn arguments(&self) -> Result<Vec<(&'static str, String)>, HttpError> {
        let names = self.operation.params().iter().map(|param| param.name);
        let argument = |name| Ok(self.params.text(name)?.map(|text| (name, text)));
        names.map(argument).filter_map(Result::transpose).collect()
    }

    /// The arguments of `available_metrics`, whose `params` is JSON.
    fn arguments_as_json(&self) -> Result<Vec<(&'static str, String)>, HttpError> {
        let at = self.params.text("at")?.map(|at| ("at", at));
        let params = self.params.json("params")?.map(|params| ("params", params.to_string()));
        Ok([at, params].into_iter().flatten().collect())
    }

    /// Whether the call has anything of PostgREST's form beyond the function and its arguments.
    fn has_form(&self) -> bool {
        is_wanted(&self.form, &self.headers)
    }

    async fn rows(
        &self,
        app: &Arc<App>,
        caller: &Caller,
        arguments: &[(&str, String)],
    ) -> Result<Response, HttpError> {
        let rows =
            rows(app, self.function).ok_or_else(|| HttpError::fault(&"an unknown function"))?;
        let query = RowQuery::of_function(arguments, &self.form, &rows)?;
        let wanted = RowRequest::new(query, &self.form, &self.headers)?;
        answer(app, caller, &wanted).await
    }
}

/// The arguments of a query string, and the parameters of PostgREST's form.
fn split(
    app: &App,
    query: Option<&str>,
    operation: Operation,
    function: &str,
) -> Result<(String, Vec<(String, String)>), HttpError> {
    let rows = rows(app, function).ok_or_else(|| HttpError::fault(&"an unknown function"))?;
    let (mut form, mut arguments) = (Vec::new(), form_urlencoded::Serializer::new(String::new()));
    for (name, value) in pairs(query)? {
        let is_argument = operation.params().iter().any(|param| param.name == name);
        if !is_argument && RowQuery::has_parameter(&name, &rows) {
            form.push((name, value));
        } else {
            arguments.append_pair(&name, &value);
        }
    }
    Ok((arguments.finish(), form))
}

pub(crate) async fn params(app: &App, request: Request) -> Result<Params, HttpError> {
    let (head, body) = request.into_parts();
    if head.method == Method::POST {
        let held = app.question_body(&head, body).await?;
        Params::of_body(head.uri.query(), &head.headers, &held.bytes)
    } else {
        Params::of_query(head.uri.query())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_available_metrics() {
        let rows = [(DeviceId::new("a\"b").unwrap(), Arc::from("load_1m"))];
        let text = |format| String::from_utf8(available(&rows, format).unwrap()).unwrap();
        assert_eq!(text(Format::Csv), "device_id,metric_id\n\"a\"\"b\",load_1m\n");
        let json = r#"[{"device_id":"a\"b","metric_id":"load_1m"}]"#;
        assert_eq!(text(Format::Json), json);
    }
}
