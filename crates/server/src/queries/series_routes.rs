//! `/api/v1`: series, their values over time, their latest values, the metrics catalogue, and gaps.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::http::params::Params;
use crate::http::selection::{Selection, Span, wrong};
use crate::ingest::agent_reports::LastError;
use crate::queries::answers::{reply, reply_long};
use crate::queries::slow_query_log::RunningQuery;
use api::Operation;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use model::{DeviceId, Timestamp};
use query::{RangeQuery, Rate};
use std::sync::Arc;

const MINUTE: i64 = 60 * Timestamp::SECOND;
const DAY: i64 = 24 * 60 * MINUTE;
/// Longest step, in seconds: a year.
const STEP_SECONDS_MAX: f64 = 366.0 * 86_400.0;

/// `GET /api/v1/series`: series with samples in the interval; the default is the last day.
pub(crate) async fn series(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::Series)?;
    let selection = Selection::of(&params)?;
    let span = Span::of(&params, &app.engine, app.now(), DAY)?;
    let most = params.text("limit")?.map_or(Ok(usize::MAX), |limit| most(&limit))?;
    reply(&app, &caller, move |engine, context| {
        let select = selection.resolve(engine, context)?;
        engine.first_series(&select, (span.from, span.to), most, context)
    })
    .await
}

/// `GET /api/v1/range`: points of series in the interval; the default is the last 5 minutes.
pub(crate) async fn range(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let words = query.clone().unwrap_or_default();
    let params = known(query, Operation::Range)?;
    let selection = Selection::of(&params)?;
    let span = Span::of(&params, &app.engine, app.now(), 5 * MINUTE)?;
    let step_us = params.text("step")?.map_or(Ok(0), |step| step_us(&step))?;
    let rate = match truth(&params, "rate")? {
        Some(true) => Rate::Counters,
        Some(false) | None => Rate::Raw,
    };
    let totals = truth(&params, "totals")?.unwrap_or(false);
    let running = RunningQuery::new(&app, "range", &caller, &words);
    let points = |range: &api::Range| range.series.iter().map(|one| one.values.len()).sum();
    reply_long(&app, &caller, running, points, move |engine, context| {
        let select = selection.resolve(engine, context)?;
        let Span { from, to } = span;
        engine.range_with(&RangeQuery { select, from, to, step_us, rate }, totals, context)
    })
    .await
}

/// `GET /api/v1/last`: the latest value of each active series.
pub(crate) async fn last(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let selection = Selection::of(&known(query, Operation::Last)?)?;
    reply(&app, &caller, move |engine, context| {
        let select = selection.resolve(engine, context)?;
        engine.last(&select, context)
    })
    .await
}

/// `GET /api/v1/explain`: the origin of series with samples in the interval; the default is the last day.
pub(crate) async fn explain(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::Explain)?;
    let selection = Selection::of(&params)?;
    let span = Span::of(&params, &app.engine, app.now(), DAY)?;
    let agents = Arc::clone(&app);
    reply(&app, &caller, move |engine, context| {
        let select = selection.resolve(engine, context)?;
        let mut explained = engine.explain(&select, (span.from, span.to), context)?;
        let access = engine.node_access((context.now.plus(-DAY), context.now), context)?;
        for one in &mut explained {
            let device = &one.series.device;
            let last = one.source.as_ref().and_then(|it| agents.agents.last_error(device, it));
            // An error of a source belongs to the node and has a time. It is shown if the caller may see the node at
            // that time.
            let is_seen = |at| access.at(at, |node| node == device).is_none_or(|it| !it.is_empty());
            one.last_error = last.filter(|last| is_seen(last.at)).map(LastError::shown);
        }
        Ok(explained)
    })
    .await
}

/// `GET /api/v1/catalogue`: every known metric.
pub(crate) async fn catalogue(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    known(query, Operation::Catalogue)?;
    reply(&app, &caller, |engine, _| Ok(engine.catalogue())).await
}

/// `GET /api/v1/gaps`: gaps in the interval; the default is the last day.
pub(crate) async fn gaps(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::Gaps)?;
    let device = params.text("device")?.map(|name| DeviceId::listed(&name)).transpose();
    let device = device.map_err(wrong)?;
    let span = Span::of(&params, &app.engine, app.now(), DAY)?;
    reply(&app, &caller, move |engine, context| {
        let gaps = engine.gaps((span.from, span.to), device.as_ref(), context)?;
        Ok(gaps.iter().map(query::gap).collect::<Vec<_>>())
    })
    .await
}

/// Parses a query string. A parameter that the operation does not have is an error.
pub(crate) fn known(query: Option<String>, operation: Operation) -> Result<Params, HttpError> {
    let params = Params::of_query(query.as_deref())?;
    params.only(operation, StatusCode::BAD_REQUEST)?;
    Ok(params)
}

/// Parses `limit`: the most elements that the caller wants.
fn most(text: &str) -> Result<usize, HttpError> {
    let most = text.parse::<u32>().ok().filter(|most| *most <= api::COUNT_MAX);
    let message = || format!("`limit` must be a whole number up to {}", api::COUNT_MAX);
    most.and_then(|most| usize::try_from(most).ok()).ok_or_else(|| HttpError::malformed(message()))
}

/// Parses a Boolean in the forms that PostgreSQL accepts.
pub(crate) fn truth(params: &Params, name: &str) -> Result<Option<bool>, HttpError> {
    let Some(text) = params.text(name)? else { return Ok(None) };
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "yes" | "y" | "on" | "1" => Ok(Some(true)),
        "false" | "f" | "no" | "n" | "off" | "0" => Ok(Some(false)),
        _ => Err(HttpError::malformed(format!("`{name}` is true or false"))),
    }
}

/// Parses a step in seconds, or in the form `30s` or `5m`. With 0, every sample is returned as stored.
fn step_us(text: &str) -> Result<i64, HttpError> {
    let rejected = || {
        HttpError::malformed(
            "`step` must be a duration such as 0.5, 30s or 5m, at most \
                                         a year",
        )
    };
    if let Some(step) = config::parse_duration(text) {
        let micros = i64::try_from(step.as_micros()).ok();
        return micros.filter(|_| step.as_secs_f64() <= STEP_SECONDS_MAX).ok_or_else(rejected);
    }
    let seconds: f64 = text.parse().map_err(|_| rejected())?;
    if !(0.0..=STEP_SECONDS_MAX).contains(&seconds) {
        return Err(rejected());
    }
    #[expect(clippy::cast_possible_truncation, reason = "bounded by the line above")]
    Ok((seconds * 1e6).round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps() {
        for (text, us) in
            [("0", 0), ("10", 10_000_000), ("0.5", 500_000), ("30s", 30_000_000), ("1ms", 1000)]
        {
            assert_eq!(step_us(text).unwrap(), us, "{text}");
        }
        for text in ["", "x", "-1", "nan", "inf", "1e300", "400d"] {
            assert_eq!(step_us(text).unwrap_err().status, 400, "{text}");
        }
    }

    #[test]
    fn truths() {
        let of = |query| truth(&Params::of_query(Some(query)).unwrap(), "rate");
        assert_eq!(of("rate=True").unwrap(), Some(true));
        assert_eq!(of("rate=off").unwrap(), Some(false));
        assert_eq!(of("").unwrap(), None);
        assert!(of("rate=maybe").is_err());
    }
}
