//! The store's write side as its own program, for tests that kill it, cut its power or fill its disk.
//!
//! ```text
//! numbered write DIR [COUNT]    appends batches 0, 1, 2 … after those in DIR, COUNT or endless;
//!                               prints each number once it is acknowledged
//! numbered check DIR PRINTED [SENT]
//!                               opens DIR and checks that it has all printed batches, each once, and nothing
//!                               that was not sent; prints the newest number there. PRINTED is the output file of
//!                               `write`; SENT is its complete output if it continued after that
//! ```
//!
//! With the variable `RECEIVED`, `write` also delivers all samples as a follower to that file, and `check` checks it.
//!
//! A temporarily rejected batch is sent again until it is accepted. After a start, the last few known batches
//! are also sent again: they must be reported as duplicates.

mod check;
mod numbers;
mod output;

use model::Timestamp;
use numbers::{Sender, sent_at, settings};
use output::Output;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use storage::{Clock, Incoming, Outcome, Stats, Storage as _};
use store::{Settings, Store};

/// Batches of a request: the most that are stored without acknowledgement, and the number sent again after a start.
const TOGETHER: u64 = 4;
/// With more blocks than this, batches are slowed.
const BEHIND: u64 = 12;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["write", dir] => write(Path::new(dir), u64::MAX),
        ["write", dir, count] => match count.parse() {
            Ok(count) => write(Path::new(dir), count),
            Err(_) => Err(format!("{count}: no number").into()),
        },
        ["check", dir, printed] => check(Path::new(dir), printed, printed),
        ["check", dir, printed, sent] => check(Path::new(dir), printed, sent),
        _ => Err("use: numbered write DIR [COUNT] | numbered check DIR PRINTED [SENT]".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            print_line(&format!("numbered: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard error; a missing reader is ignored.
fn print_line(line: &str) {
    writeln!(std::io::stderr(), "{line}").unwrap_or_default();
}

fn write(dir: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    let now = Arc::new(AtomicI64::new(sent_at(0)));
    let clock: Clock = {
        let now = Arc::clone(&now);
        Arc::new(move || Timestamp(now.load(Ordering::SeqCst)))
    };
    let (store, _) = Store::open(dir, settings(), clock)?;
    let known = store.origins().iter().flat_map(|origin| &origin.boots).map(|b| b.last_seq).max();
    let next = known.map_or(0, |known| known + 1);
    let mut output = Output::open(&store)?;
    let mut sender = Sender::default();
    let (mut number, end) = (next.saturating_sub(TOGETHER), next.saturating_add(count));
    while number < end {
        let batches: Vec<u64> = (number..end.min(number + TOGETHER)).collect();
        number += TOGETHER;
        now.fetch_max(batches.last().copied().map_or(0, sent_at), Ordering::SeqCst);
        send(&store, &mut sender, batches, next)?;
        output.as_mut().map_or(Ok(()), |output| output.deliver(&store, number / TOGETHER))?;
        // Batches arrive no faster than blocks are merged, so that merging, settling and deletion take turns.
        if store.stats().blocks > BEHIND {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    while let Err(error) = store.flush() {
        print_line(&error.to_string());
    }
    let Stats { merges, merge_errors, retain_errors, flush_errors, log_errors, .. } = store.stats();
    let samples_removed = store.stats().samples_removed;
    print_line(&format!(
        "{merges} merges, {samples_removed} samples let go; failed: {log_errors} appends, {flush_errors} blocks, \
         {merge_errors} merges, {retain_errors} steps of retention"
    ));
    Ok(())
}

/// Sends batches until all are accepted, and prints their numbers; those from `next` on are new.
fn send(
    store: &Store,
    sender: &mut Sender,
    mut batches: Vec<u64>,
    next: u64,
) -> Result<(), Box<dyn Error>> {
    let mut found = false;
    while !batches.is_empty() {
        let frames: Result<Vec<Incoming>, _> = batches.iter().map(|n| sender.batch(*n)).collect();
        let (to, from) = sync_channel(1);
        // The receiver is gone only after this function failed.
        store.append(frames?, move |outcomes| to.send(outcomes).unwrap_or_default());
        let (mut rejected, mut lines) = (Vec::new(), String::new());
        for (number, outcome) in batches.iter().zip(from.recv()?) {
            match outcome {
                Outcome::Stored { samples_rejected: 0, .. } if *number >= next => {}
                Outcome::Duplicate if *number < next => {}
                Outcome::RejectedTemporarily(why) => {
                    if !found {
                        print_line(&format!("refused for now: {why}"));
                    }
                    found = true;
                    rejected.push(*number);
                    continue;
                }
                other => return Err(format!("batch {number} of {next}: {other:?}").into()),
            }
            lines.push_str(&format!("{number}\n"));
        }
        let mut out = std::io::stdout().lock();
        out.write_all(lines.as_bytes()).and_then(|()| out.flush())?;
        batches = rejected;
        if !batches.is_empty() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    Ok(())
}

fn check(dir: &Path, printed: &str, sent: &str) -> Result<(), Box<dyn Error>> {
    let (acked, sent) = (last(Path::new(printed))?, last(Path::new(sent))?);
    let sent = sent.map_or(0, |sent| sent + 1) + TOGETHER;
    if acked.is_some() {
        check::files(dir, true)?;
    }
    let clock: Clock = Arc::new(move || Timestamp(sent_at(acked.unwrap_or(0))));
    let (store, recovery) =
        Store::open(dir, Settings { background_maintenance: false, ..settings() }, clock)?;
    if !recovery.damaged.is_empty() {
        return Err(format!("{:?}", recovery.damaged).into());
    }
    let opened = check::whole(&store, acked, sent)?;
    // A block in progress looks like a leftover of a crash: wait for it before the files are checked.
    store.flush()?;
    store.maintain()?;
    let maintained = check::whole(&store, acked, sent)?;
    if let Some(mut output) = Output::open(&store)? {
        output.finish(&store)?;
        let batches = maintained.last.map_or(0, |last| last + 1);
        output.check(batches * numbers::SAMPLES)?;
    }
    check::files(dir, false)?;
    print_line(&format!("as opened {opened:?}, as maintained {maintained:?}"));
    let newest = maintained.last.map_or(String::new(), |last| format!("{last}\n"));
    Ok(std::io::stdout().write_all(newest.as_bytes())?)
}

/// The highest printed number.
fn last(printed: &Path) -> Result<Option<u64>, Box<dyn Error>> {
    let (mut last, mut text) = (None, String::new());
    let mut lines = BufReader::new(std::fs::File::open(printed)?);
    // A line truncated by a kill was not printed.
    while lines.read_line(&mut text)? > 0 && text.ends_with('\n') {
        let number: u64 = text.trim().parse()?;
        if last.is_some_and(|last| number > last + 1) {
            return Err(format!("{number} is printed after {last:?}").into());
        }
        last = last.max(Some(number));
        text.clear();
    }
    Ok(last)
}
