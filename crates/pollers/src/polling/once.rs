//! Every target once, with the readings printed as an agent's samples are.

use super::poller::{self, Common, Exchange};
use super::reading::{Failure, Reading};
use crate::descriptions::{Description, Target};
use delivery::{Printer, wall};
use model::{SeriesEntry, printable};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Exchanges at the same time.
const EXCHANGES_MAX: usize = 256;

/// The result of an exchange: readings, and what failed with its target and metrics.
struct Exchanged {
    readings: Vec<Reading>,
    problems: Vec<String>,
    is_good: bool,
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
    let mut targets: BTreeMap<Arc<Target>, Vec<Description>> = BTreeMap::new();
    for description in descriptions {
        targets.entry(Arc::clone(&description.target)).or_default().push(description);
    }
    let permits = Arc::new(Semaphore::new(EXCHANGES_MAX));
    let (common, mut exchanges) = (Arc::new(Common::default()), JoinSet::new());
    for (target, descriptions) in targets {
        let (permits, common) = (Arc::clone(&permits), Arc::clone(&common));
        exchanges.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await.ok();
            exchange(&target, &descriptions, &common).await
        });
    }
    let (mut printer, mut is_good) = (Printer::new(out), true);
    while let Some(exchanged) = exchanges.join_next().await {
        let exchanged = exchanged.map_err(io::Error::other)?;
        for reading in exchanged.readings {
            add(&mut printer, reading);
        }
        is_good &= exchanged.is_good;
        for problem in exchanged.problems {
            writeln!(problems, "{}", printable(&problem))?;
        }
    }
    printer.print()?;
    Ok(is_good)
}

fn add(printer: &mut Printer, reading: Reading) {
    let metric = Arc::new(reading.definition());
    let Reading { device, labels, at, value, .. } = reading;
    let entry = SeriesEntry { metric, device, job: None, labels, start: None };
    printer.add(&entry, at, value);
}

async fn exchange(
    target: &Arc<Target>,
    descriptions: &[Description],
    common: &Common,
) -> Exchanged {
    let due: Vec<&Description> = descriptions.iter().collect();
    let mut exchange = Exchange::new(wall(), due.len());
    let mut poller = poller::open(target, common);
    poller::run(&mut *poller, &due, &mut exchange).await;
    poller.close().await;
    let warnings = exchange.warnings.iter().map(|warning| format!("{target}: {warning}"));
    let mut problems: Vec<String> = warnings.collect();
    problems.extend(failures(target, &due, &exchange.failures));
    let is_good = exchange.failures.is_empty() && exchange.other_errors.is_empty();
    Exchanged { readings: exchange.readings, problems, is_good }
}

/// One line per failure. Metrics with an equal failure share a line.
fn failures(target: &Target, due: &[&Description], all: &[(usize, Failure)]) -> Vec<String> {
    let mut metrics: Vec<(&Failure, Vec<&str>)> = Vec::new();
    for (place, failure) in all {
        let name = due.get(*place).map_or("", |description| &description.name);
        match metrics.iter_mut().find(|(known, _)| *known == failure) {
            Some((_, names)) if names.last() == Some(&name) => {}
            Some((_, names)) => names.push(name),
            None => metrics.push((failure, vec![name])),
        }
    }
    let line = |(failure, names): (&Failure, Vec<&str>)| {
        format!("{target}: {}: {}: {failure}", names.join(" "), failure.cause.words())
    };
    metrics.into_iter().map(line).collect()
}
