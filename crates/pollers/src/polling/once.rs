//! Every target once, with the readings printed as an agent's samples are.

use super::reading::{Failure, Reading};
use super::{document, exporter};
use crate::descriptions::{Description, Target};
use crate::protocols::{Protocol, Request};
use delivery::{Printer, wall};
use model::{Metric, SeriesEntry, printable};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Exchanges at the same time.
const EXCHANGES_MAX: usize = 256;

/// The result of an exchange: readings, and what failed with its target and metrics.
#[derive(Default)]
struct Exchanged {
    readings: Vec<Reading>,
    problems: Vec<String>,
}

/// Polls every target of the descriptions once. Prints the readings to `out`, and what failed to `problems`.
///
/// Returns whether everything was read.
///
/// # Errors
/// Printing fails.
pub async fn poll_once(
    descriptions: Vec<Description>,
    out: Box<dyn io::Write + Send>,
    problems: &mut dyn io::Write,
) -> io::Result<bool> {
    let mut targets: BTreeMap<Target, Vec<Description>> = BTreeMap::new();
    for description in descriptions {
        targets.entry(description.target.clone()).or_default().push(description);
    }
    let permits = Arc::new(Semaphore::new(EXCHANGES_MAX));
    let mut exchanges = JoinSet::new();
    for (target, descriptions) in targets {
        let permits = Arc::clone(&permits);
        exchanges.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await.ok();
            exchange(&target, &descriptions).await
        });
    }
    let (mut printer, mut is_good) = (Printer::new(out), true);
    while let Some(exchanged) = exchanges.join_next().await {
        let exchanged = exchanged.map_err(io::Error::other)?;
        for reading in exchanged.readings {
            add(&mut printer, reading);
        }
        for problem in exchanged.problems {
            is_good = false;
            writeln!(problems, "{}", printable(&problem))?;
        }
    }
    printer.print()?;
    Ok(is_good)
}

fn add(printer: &mut Printer, reading: Reading) {
    let Reading { metric, meaning, help, device, labels, at, value } = reading;
    let metric = Metric {
        name: metric.into(),
        unit: meaning.unit,
        kind: meaning.kind,
        help: help.into(),
        divisor: 1,
    };
    let entry = SeriesEntry { metric: Arc::new(metric), device, job: None, labels, start: None };
    printer.add(&entry, at, value);
}

async fn exchange(target: &Target, descriptions: &[Description]) -> Exchanged {
    match target.protocol {
        Protocol::Prometheus => of_exporter(target, descriptions).await,
        Protocol::Json => of_documents(target, descriptions).await,
        other => {
            let what = format!("{target}: {other} is not polled by this version");
            Exchanged { problems: vec![what], ..Exchanged::default() }
        }
    }
}

async fn of_exporter(target: &Target, descriptions: &[Description]) -> Exchanged {
    let all: Vec<&Description> = descriptions.iter().collect();
    let scraped = within(&all, exporter::scrape(target, &all, wall())).await;
    let mut exchanged = Exchanged::default();
    match scraped {
        Ok(scrape) => {
            exchanged.readings = scrape.readings;
            if let Some(first) = scrape.first_bad {
                let more = scrape.bad_lines;
                exchanged.problems.push(format!("{target}: {more} lines are no samples: {first}"));
            }
        }
        Err(failure) => exchanged.problems.push(problem(target, &all, &failure)),
    }
    exchanged
}

async fn of_documents(target: &Target, descriptions: &[Description]) -> Exchanged {
    let mut documents: BTreeMap<&str, Vec<&Description>> = BTreeMap::new();
    for description in descriptions {
        if let Request::Json(request) = &description.request {
            documents.entry(&request.document).or_default().push(description);
        }
    }
    let mut exchanged = Exchanged::default();
    for (path, all) in documents {
        let Some(first) = all.first() else { continue };
        let at = wall();
        let fetched = within(&all, document::fetch(target, first, path)).await;
        let value = match fetched {
            Ok(value) => value,
            Err(failure) => {
                exchanged.problems.push(problem(target, &all, &failure));
                continue;
            }
        };
        for description in all {
            match document::reading(description, &value, at) {
                Ok(reading) => exchanged.readings.extend(reading),
                Err(failure) => {
                    exchanged.problems.push(problem(target, &[description], &failure));
                }
            }
        }
    }
    exchanged
}

/// Limits an exchange to the longest timeout of its descriptions.
async fn within<T>(
    descriptions: &[&Description],
    exchange: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    if descriptions.iter().any(|one| one.credential.is_some()) {
        return Err(Failure::denied("`credential` is not read by this version"));
    }
    let longest = descriptions.iter().map(|one| one.timeout).max().unwrap_or(Duration::ZERO);
    let silent =
        |_| Failure::timeout(format!("no complete answer within {} ms", longest.as_millis()));
    tokio::time::timeout(longest, exchange).await.map_err(silent)?
}

fn problem(target: &Target, descriptions: &[&Description], failure: &Failure) -> String {
    let mut names: Vec<&str> = descriptions.iter().map(|one| &*one.name).collect();
    names.dedup();
    format!("{target}: {}: {}: {failure}", names.join(" "), failure.cause.words())
}
