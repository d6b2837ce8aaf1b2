//! Expositions of exporters. The descriptions of one target are merged as in Kwollect: the union of their lists, or
//! everything if one list is empty.

use crate::descriptions::{ALIAS, Description, Target};
use crate::exposition::{Format, Line, Lines, Sample};
use crate::meaning::{Exposed, Family};
use crate::polling::http::{Call, Client};
use crate::polling::poller::{Exchange, Poller, Running, Turns, still_silent, waits_for_turn};
use crate::polling::reading::{Failure, Reading};
use crate::polling::values::instant;
use crate::protocols::{PrometheusRequest, Request};
use hyper::StatusCode;
use model::{Metric, Timestamp, Unit, printable};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::time::timeout_at;

/// Bytes of a body, and of what it unpacks to.
const BODY_BYTES_MAX: usize = 32 << 20;
/// Samples of a scrape.
const SAMPLES_MAX: usize = 200_000;
/// Time by which a sample's own instant may be ahead of its scrape (decision 0038).
const AHEAD_MAX_US: i64 = 86_400 * Timestamp::SECOND;
/// Characters of a help text.
const HELP_MAX: usize = 500;
/// The metric whose labels name another one (Kwollect's custom metrics).
const CUSTOM: &str = "kwollect_custom";

/// Characters of a name in a message.
const SHOWN_MAX: usize = 80;

const ACCEPT: &str =
    "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";

/// What a scrape returned.
#[derive(Debug, Default)]
struct Scrape {
    readings: Vec<Reading>,
    /// The exposed names.
    names: HashSet<String>,
    /// Lines that are no samples, and the first of them.
    bad_lines: usize,
    first_bad: Option<String>,
}

/// Descriptions of one exposition.
type Requests<'a> = Vec<(&'a Description, &'a PrometheusRequest)>;

/// An exporter.
pub(super) struct Exporter {
    client: Client,
    /// Whether requests name a user.
    has_user: bool,
    /// The paths that reject the user or did not answer: they are requested after the others.
    paths: Turns<String>,
}

/// Why an exposition is not read.
enum ScrapeError {
    /// The user or the password is rejected. Another attempt may lock the account.
    User(Failure),
    /// Any other reason.
    Exposition(Failure),
}

impl From<Failure> for ScrapeError {
    fn from(failure: Failure) -> Self {
        Self::Exposition(failure)
    }
}

impl Exporter {
    pub(super) fn new(target: &Arc<Target>) -> Self {
        let (client, has_user) = (Client::new(target), target.user.is_some());
        Self { client, has_user, paths: Turns::default() }
    }

    /// Reads the metrics that descriptions of one exposition request.
    async fn scrape(
        &mut self,
        requests: &Requests<'_>,
        instants: &[Timestamp],
    ) -> Result<Scrape, ScrapeError> {
        let Some((description, request)) = requests.first() else { return Ok(Scrape::default()) };
        let call = Call::get(&request.path, (ACCEPT, BODY_BYTES_MAX));
        let received = self.client.follow(&description.rare().tls, call).await?;
        let is_rejected = self.has_user && received.status == StatusCode::UNAUTHORIZED;
        let body = received.into_body().map_err(|failure| match is_rejected {
            true => ScrapeError::User(failure),
            false => ScrapeError::Exposition(failure),
        })?;
        let format = Format::of_content_type(&body.content_type);
        let text = String::from_utf8(body.bytes);
        let text = text.map_err(|_| Failure::broken("the exposition is not UTF-8"))?;
        Ok(read(&text, format, requests, instants)?)
    }

    async fn read(&mut self, due: &[&Description], exchange: &mut Exchange) {
        let mut expositions = expositions(exchange.open(due));
        expositions.sort_by_key(|(_, requests)| self.paths.place(path(requests)));
        for (places, requests) in expositions {
            let path = path(&requests);
            if exchange.is_over_for(self.paths.place(path)) {
                exchange.fail_all(&places, &waits_for_turn());
                continue;
            }
            // The exchange may end here, by its timeout.
            let until = exchange.deadline(self.paths.begin(path.to_owned()));
            exchange.send(places.iter().copied());
            let instants: Vec<Timestamp> =
                places.iter().map(|place| exchange.instant(*place)).collect();
            let Ok(scraped) = timeout_at(until, self.scrape(&requests, &instants)).await else {
                self.paths.failed(path);
                exchange.fail_all(&places, &still_silent());
                continue;
            };
            match &scraped {
                Err(ScrapeError::User(_)) => self.paths.failed(path),
                _ => self.paths.answered(path),
            }
            match scraped {
                Ok(scrape) => {
                    exchange.readings.extend(scrape.readings);
                    for (place, (description, request)) in places.iter().zip(&requests) {
                        match missing(description, request, &scrape.names) {
                            Ok(names) => {
                                exchange.settle(*place);
                                let one = std::slice::from_ref(place);
                                exchange.count_errors(one, due, names.len());
                                let device = &description.device;
                                let warning = |name| {
                                    let name = shortened(name);
                                    format!("the exporter has no metric {name} of {device}")
                                };
                                exchange.warnings.extend(names.into_iter().map(warning));
                            }
                            Err(failure) => exchange.fail(*place, failure),
                        }
                    }
                    if let Some(first) = scrape.first_bad {
                        let more = scrape.bad_lines;
                        exchange.count_errors(&places, due, more);
                        exchange.warnings.push(format!("{more} lines are no samples: {first}"));
                    }
                }
                Err(ScrapeError::User(failure)) => {
                    return exchange.fail_rest(&failure);
                }
                Err(ScrapeError::Exposition(failure)) => {
                    exchange.fail_all(&places, &failure);
                }
            }
        }
    }
}

impl Poller for Exporter {
    fn exchange<'a>(
        &'a mut self,
        due: &'a [&'a Description],
        exchange: &'a mut Exchange,
    ) -> Running<'a> {
        Box::pin(self.read(due, exchange))
    }
}

/// The path of an exposition.
fn path<'a>(requests: &Requests<'a>) -> &'a str {
    requests.first().map_or("", |(_, first)| &*first.path)
}

/// The descriptions of each exposition, with their places: those with one path and one way to verify the certificate.
fn expositions<'a>(
    due: impl Iterator<Item = (usize, &'a Description)>,
) -> Vec<(Vec<usize>, Requests<'a>)> {
    let mut expositions: Vec<(Vec<usize>, Requests<'_>)> = Vec::new();
    for (place, description) in due {
        let Request::Prometheus(request) = &description.request else { continue };
        let is_of = |(_, requests): &&mut (Vec<usize>, Requests<'_>)| {
            requests.first().is_some_and(|(one, first)| {
                (&one.rare().tls, &first.path) == (&description.rare().tls, &request.path)
            })
        };
        match expositions.iter_mut().find(is_of) {
            Some((places, requests)) => {
                places.push(place);
                requests.push((description, request));
            }
            None => expositions.push((vec![place], vec![(description, request)])),
        }
    }
    expositions
}

fn read(
    text: &str,
    format: Format,
    requests: &[(&Description, &PrometheusRequest)],
    instants: &[Timestamp],
) -> Result<Scrape, Failure> {
    let mut scrape = Scrape::default();
    let mut families: HashMap<String, Family> = HashMap::new();
    let mut lines = Lines::new(text, format);
    for line in lines.by_ref() {
        let sample = match line {
            Ok(Line::Sample(sample)) => sample,
            Ok(stated) => {
                learn(&mut families, stated);
                continue;
            }
            Err(error) => {
                scrape.bad_lines += 1;
                scrape.first_bad.get_or_insert_with(|| shortened(&error.to_string()));
                continue;
            }
        };
        if !scrape.names.contains(&*sample.name) {
            scrape.names.insert(sample.name.to_string());
        }
        let exposed = exposed(&families, &sample);
        let mut bad = None;
        let of_others = scrape.readings.len();
        for (description, nth) in requesting(&sample, requests) {
            let at = instants.get(nth).copied().unwrap_or_default();
            match reading(&sample, description, &exposed, at) {
                Ok(reading) => {
                    // Labels of the exporter may replace those in which entries differ.
                    let is_same = |one: &Reading| {
                        (&one.device, &one.labels) == (&reading.device, &reading.labels)
                    };
                    if !scrape.readings.iter().skip(of_others).any(is_same) {
                        scrape.readings.push(reading);
                    }
                }
                Err(what) => bad = Some(what),
            }
        }
        if let Some(what) = bad {
            scrape.bad_lines += 1;
            scrape.first_bad.get_or_insert(what);
        }
        if scrape.readings.len() > SAMPLES_MAX {
            return Err(Failure::broken(format!("more than {SAMPLES_MAX} samples")));
        }
    }
    if let Some(first) = scrape.first_bad.as_ref().filter(|_| scrape.names.is_empty()) {
        return Err(Failure::broken(format!("the response is no exposition: {first}")));
    }
    scrape.readings.sort_by(|one, next| one.device.cmp(&next.device));
    match lines.is_complete() {
        true => Ok(scrape),
        false => Err(Failure::broken("the exposition is cut: `# EOF` is missing")),
    }
}

/// The metrics that a description names and the exporter has not. If it has none of them, the description has no value.
/// Custom metrics come and go.
fn missing<'a>(
    description: &Description,
    request: &'a PrometheusRequest,
    names: &HashSet<String>,
) -> Result<Vec<&'a str>, Failure> {
    if description.rare().only.is_some() {
        return Ok(Vec::new());
    }
    let is_missing = |name: &&String| *name != CUSTOM && !names.contains(*name);
    let missing: Vec<&str> = request.names.iter().filter(is_missing).map(|name| &**name).collect();
    if !missing.is_empty() && missing.len() == request.names.len() {
        return Err(Failure::broken(format!("the exporter has no metric {}", missing.join(", "))));
    }
    Ok(missing)
}

/// Adds what a comment states about a family.
fn learn(families: &mut HashMap<String, Family>, stated: Line<'_>) {
    match stated {
        Line::Type(name, metric_type) => {
            families.entry(name.into_owned()).or_default().metric_type = Some(metric_type);
        }
        Line::Help(name, help) => {
            let help: String = printable(&help).chars().take(HELP_MAX).collect();
            families.entry(name.into_owned()).or_default().help = help.into();
        }
        Line::Unit(name, word) => {
            families.entry(name.into_owned()).or_default().unit = Unit::from_word(word);
        }
        Line::Sample(_) | Line::End => {}
    }
}

/// What the family of a sample states about it: nothing about a metric that a label names.
fn exposed(families: &HashMap<String, Family>, sample: &Sample<'_>) -> Exposed {
    if custom_name(sample).is_some() {
        return Exposed::default();
    }
    let of_suffix = |suffix: &&str| {
        let family = families.get(sample.name.strip_suffix(*suffix)?)?;
        Some(family.of_suffix(suffix))
    };
    Family::SUFFIXES.iter().find_map(of_suffix).unwrap_or_default()
}

/// The descriptions that request a sample, and their places: the first of each device and labels. An empty list requests
/// everything.
fn requesting<'a>(
    sample: &Sample<'_>,
    requests: &[(&'a Description, &PrometheusRequest)],
) -> Vec<(&'a Description, usize)> {
    let names = |request: &PrometheusRequest| {
        request.names.is_empty() || request.names.iter().any(|name| *name == sample.name)
    };
    let promoted = |description: &Description| {
        let Some(only) = &description.rare().only else { return true };
        let stored = stored_name(sample);
        only.iter().any(|expression| expression.matches(&stored))
    };
    let mut first: Vec<(&Description, usize)> = Vec::new();
    for (nth, (description, request)) in requests.iter().enumerate() {
        let is_same = |(one, _): &(&Description, usize)| {
            (&one.device, &one.labels) == (&description.device, &description.labels)
        };
        if names(request) && promoted(description) && !first.iter().any(is_same) {
            first.push((*description, nth));
        }
    }
    first
}

/// A label of a sample.
fn label<'a>(sample: &'a Sample<'_>, key: &str) -> Option<&'a str> {
    sample.labels.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
}

/// The beginning of a name, for a message.
fn shortened(name: &str) -> String {
    name.chars().take(SHOWN_MAX).collect::<String>().escape_debug().to_string()
}

/// The name under which a sample is stored: Kwollect's custom metrics have it in a label.
fn stored_name(sample: &Sample<'_>) -> String {
    custom_name(sample).map_or_else(|| format!("prom_{}", sample.name), str::to_owned)
}

/// The metric that the label of a custom metric names.
fn custom_name<'a>(sample: &'a Sample<'_>) -> Option<&'a str> {
    (sample.name == CUSTOM).then(|| label(sample, "_metric_id")).flatten()
}

fn reading(
    sample: &Sample<'_>,
    description: &Description,
    exposed: &Exposed,
    at: Timestamp,
) -> Result<Reading, String> {
    let metric = stored_name(sample);
    Metric::check_name(&metric).map_err(|error| error.to_string())?;
    let stated = match (sample.name == CUSTOM).then(|| label(sample, "_timestamp")).flatten() {
        Some(text) => {
            Some(crate::polling::values::python_float(text).ok_or("`_timestamp` is not a number")?)
        }
        None => sample.at,
    };
    let at = match stated {
        Some(seconds) => instant(seconds)
            // A server rejects a batch's samples of a later time with a gap of its device.
            .filter(|stated| stated.since(at) <= AHEAD_MAX_US)
            .ok_or("the timestamp is not possible")?,
        None => at,
    };
    let mut labels = description.labels.clone();
    // Only the files choose the fed node, and only the poller uses the names of its own metrics.
    if Metric::is_of_polls(&metric) {
        return Err(format!("the name {} is the poller's own", shortened(&metric)));
    }
    for (key, value) in sample.labels.iter().filter(|(key, _)| key != ALIAS) {
        let is_taken = sample.name == CUSTOM && matches!(&**key, "_metric_id" | "_timestamp");
        if !is_taken {
            labels = labels.with(key, value).map_err(|error| error.to_string())?;
        }
    }
    if custom_name(sample).is_some() {
        labels =
            labels.with("_metric_origin", "prom_kwollect_custom").map_err(|e| e.to_string())?;
    }
    let labels = labels.must_be_printable().map_err(|error| error.to_string())?;
    let reading = Reading::exposed(description, metric, exposed, (labels, at, sample.value));
    Ok(Reading { is_stated: stated.is_some(), ..reading })
}

#[cfg(test)]
mod tests;
