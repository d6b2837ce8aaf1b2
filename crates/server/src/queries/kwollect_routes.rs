//! `/rpc`: Kwollect's functions, in the form that PostgREST serves.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::csv;
use crate::common::http_error::{HttpError, Why};
use crate::http::params::{Params, part};
use crate::queries::answers::format;
use crate::queries::slow_query_log::RunningQuery;
use api::{Available, Operation};
use axum::Extension;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jobs::JobName;
use model::{DeviceId, JobId};
use query::{Format, GetMetrics, parse_time};
use serde_json::Value;
use std::sync::Arc;

/// The functions that exist.
const FUNCTIONS: [&str; 5] = [
    "get_metrics",
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
    let format = format(request.headers())?;
    let params = params(&app, request).await?;
    params.only(Operation::GetMetrics, StatusCode::NOT_FOUND)?;
    let mut pairs = Vec::new();
    for name in Operation::GetMetrics.params().iter().map(|param| param.name) {
        if let Some(text) = params.text(name)? {
            pairs.push((name, text));
        }
    }
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
    let format = format(request.headers())?;
    let params = params(&app, request).await?;
    params.only(Operation::AvailableMetrics, StatusCode::NOT_FOUND)?;
    let now = app.now();
    let at = params.text("at")?.map(|at| parse_time(&at, now, &app.engine.settings().zone));
    let at = at.transpose()?.unwrap_or(now);
    let (devices, job) = narrowed(params.json("params")?.unwrap_or(Value::Null))?;
    let context = app.context(&caller)?;
    let (cancel, engine) = (context.cancel.clone(), app.engine.clone());
    let user_key = Arc::clone(&context.user_key);
    let rows = app.work.answer(&user_key, cancel, move || {
        engine.available_metrics(at, devices.as_deref(), job.as_ref(), &context)
    });
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

/// Parses the parameter `params`, which restricts the query to devices and a job.
fn narrowed(params: Value) -> Result<(Option<Vec<DeviceId>>, Option<JobName>), HttpError> {
    let rejected = |message: &str| {
        Err(HttpError::new(StatusCode::BAD_REQUEST, "P0001", Why::Malformed, message))
    };
    if !(params.is_object() || params.is_null()) {
        return rejected("params is a JSON object");
    }
    let devices = match params.get("devices") {
        None | Some(Value::Null) => None,
        Some(Value::Array(names)) => {
            let name = |name: &Value| name.as_str().and_then(|name| DeviceId::new(name).ok());
            let devices: Option<Vec<DeviceId>> = names.iter().map(name).collect();
            let Some(devices) = devices else {
                return rejected("params->devices contains an invalid device name");
            };
            Some(devices)
        }
        Some(_) => return rejected("Cannot parse params->devices, should be JSON array"),
    };
    // A job ID with other characters than digits is ignored, as in Kwollect.
    let job = params.get("job_id").and_then(|job| match job {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    });
    Ok((devices, job.and_then(JobId::new).map(JobName::number)))
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
    use serde_json::json;

    #[test]
    fn rows_of_available_metrics() {
        let rows = [(DeviceId::new("a\"b").unwrap(), Arc::from("load_1m"))];
        let text = |format| String::from_utf8(available(&rows, format).unwrap()).unwrap();
        assert_eq!(text(Format::Csv), "device_id,metric_id\n\"a\"\"b\",load_1m\n");
        let json = r#"[{"device_id":"a\"b","metric_id":"load_1m"}]"#;
        assert_eq!(text(Format::Json), json);
    }

    #[test]
    fn what_available_metrics_is_narrowed_to() {
        let (devices, job) = narrowed(json!({"devices": ["a", "b"], "job_id": "7"})).unwrap();
        assert_eq!(devices.unwrap().len(), 2);
        assert_eq!(job.unwrap().to_string(), "7");
        let (devices, job) = narrowed(json!({"job_id": "7; DROP TABLE"})).unwrap();
        assert!(devices.is_none() && job.is_none());
        let http_error = narrowed(json!({"devices": "a"})).unwrap_err();
        assert_eq!((http_error.status.as_u16(), http_error.code), (400, "P0001"));
        assert!(http_error.message.contains("should be JSON array"));
        assert!(narrowed(json!({"devices": [1]})).is_err());
        assert!(narrowed(json!([null])).is_err() && narrowed(json!(null)).is_ok());
    }
}
