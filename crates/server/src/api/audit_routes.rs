//! `GET /api/v1/audit`: the entries of the audit, for administrators and staff.

use crate::app::App;
use crate::auth::caller::Caller;
use crate::common::http_error::HttpError;
use crate::http::params::Params;
use crate::http::selection::{Span, wrong};
use crate::queries::answers::json;
use crate::queries::series_routes::known;
use api::{AuditEntry, Operation};
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use jobs::{JobName, Reader, Registry, RegistryError, Users};
use model::Timestamp;
use query::{Cancel, QueryError};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

const DAY: i64 = 24 * 3600 * Timestamp::SECOND;
/// Most lines of a response without `limit`.
const LINES: usize = 1000;
/// Most bytes of lines in one response.
const BYTES_MAX: usize = 32 << 20;
/// The job of an entry about several jobs.
const ANY_JOB: &str = "*";

/// Which lines are requested.
#[derive(Clone, Debug)]
pub(crate) struct AuditQuery {
    /// Words that must stand together in the actor of a line. A user matches by name or by UID.
    who: Vec<String>,
    /// A part of the action.
    what: Option<String>,
    /// The job.
    job: Option<String>,
    from: f64,
    to: f64,
    most: usize,
}

/// `GET /api/v1/audit`.
pub(crate) async fn audit(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, HttpError> {
    let params = known(query, Operation::Audit)?;
    if !caller.reader().is_some_and(Reader::sees_every_job) {
        return Err(HttpError::forbidden("only administrators and staff read the audit"));
    }
    let span = Span::of(&params, &app.engine, app.now(), DAY)?;
    let job = params.text("job")?.map(|text| named(&app.registry, text)).transpose()?;
    let wanted = AuditQuery::of(&params, span, job, &app.registry.users())?;
    let context = app.context(&caller)?;
    // The response shows which jobs other callers read.
    context.meets_any();
    let files = app.audit.files();
    let cancel = context.cancel.clone();
    let lines = app
        .work
        .answer(&context.user_key, context.cancel, move || Ok(read_all(&files, &wanted, &cancel)));
    json(&lines.await?.map_err(|error| HttpError::fault(&error))?)
}

/// Returns the job of `[CLUSTER:]ID` as audit lines name it. With a cluster, the registry may have deleted the job.
fn named(registry: &Registry, text: String) -> Result<String, HttpError> {
    if text == ANY_JOB {
        return Ok(text);
    }
    let name: JobName = text.parse().map_err(wrong)?;
    match registry.resolve(&name) {
        Ok(key) => Ok(key.to_string()),
        Err(RegistryError::Unknown(_)) if name.cluster.is_some() => Ok(text),
        Err(error) => Err(QueryError::from(error).into()),
    }
}

impl AuditQuery {
    fn of(
        params: &Params,
        span: Span,
        job: Option<String>,
        users: &Users,
    ) -> Result<Self, HttpError> {
        let who = params.text("actor")?;
        let number = who.as_ref().and_then(|who| users.uid(who)).map(|uid| uid.to_string());
        Ok(Self {
            who: who.into_iter().chain(number).collect(),
            what: params.text("action")?,
            job,
            from: span.from.seconds(),
            to: span.to.seconds(),
            most: params.limit(api::AUDIT_LINES_MAX)?.unwrap_or(LINES),
        })
    }

    fn wants(&self, line: &AuditEntry) -> bool {
        (self.from..=self.to).contains(&line.time)
            && (self.who.is_empty() || self.who.iter().any(|who| has_words(&line.actor, who)))
            && self.what.as_ref().is_none_or(|what| line.action.contains(what))
            && self.job.as_ref().is_none_or(|job| line.job.as_ref() == Some(job))
    }
}

/// Whether a text contains these words as whole words: `uid 7` is in `uid 7`, but not in `uid 70`.
fn has_words(text: &str, words: &str) -> bool {
    let ends = |rest: Option<char>| rest.is_none_or(|letter| !letter.is_alphanumeric());
    !words.is_empty()
        && text.match_indices(words).any(|(at, _)| {
            let (before, after) = (text.get(..at), text.get(at + words.len()..));
            ends(before.and_then(|text| text.chars().next_back()))
                && ends(after.and_then(|text| text.chars().next()))
        })
}

/// Reads the latest requested lines of several sequences of audit files, in the order of time.
fn read_all(
    files: &[Vec<PathBuf>],
    wanted: &AuditQuery,
    cancel: &Cancel,
) -> io::Result<Vec<AuditEntry>> {
    let mut all = Vec::new();
    for files in files {
        all.extend(read(files, wanted, cancel)?);
    }
    all.sort_by(|one, other| one.time.total_cmp(&other.time));
    Ok(all.split_off(all.len().saturating_sub(wanted.most)))
}

/// Reads the latest requested lines, in the order of time. The files come in reverse order of time.
fn read(files: &[PathBuf], wanted: &AuditQuery, cancel: &Cancel) -> io::Result<Vec<AuditEntry>> {
    let mut all = VecDeque::new();
    let mut bytes = 0;
    for file in open(files)? {
        let mut found = MatchingLines::default();
        let older = found.read(file, wanted, cancel)?;
        // Of an older file, only its latest lines that still fit.
        while let Some((length, line)) = found.lines.pop_back() {
            if all.len() >= wanted.most || bytes + length > BYTES_MAX {
                return Ok(all.into());
            }
            bytes += length;
            all.push_front(line);
        }
        if !older {
            break;
        }
    }
    Ok(all.into())
}

/// Opens all files before the first is read: a file that is rotated meanwhile is read once.
fn open(files: &[PathBuf]) -> io::Result<Vec<File>> {
    let (mut opened, mut seen) = (Vec::new(), Vec::new());
    for path in files {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?,
        };
        let about = file.metadata()?;
        let inode = (about.dev(), about.ino());
        if !seen.contains(&inode) {
            seen.push(inode);
            opened.push(file);
        }
    }
    Ok(opened)
}

/// The latest requested lines of one file.
#[derive(Default)]
struct MatchingLines {
    lines: VecDeque<(usize, AuditEntry)>,
    bytes: usize,
}

impl MatchingLines {
    /// Reads a file. Returns whether older files may have requested lines.
    fn read(&mut self, file: File, wanted: &AuditQuery, cancel: &Cancel) -> io::Result<bool> {
        let mut first = None;
        let (mut damaged, mut before_damage) = (0, wanted.from);
        let (mut reader, mut line) = (BufReader::new(file), Vec::new());
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if cancel.check().is_err() {
                return Ok(false);
            }
            let Ok(entry) = serde_json::from_slice::<AuditEntry>(line.trim_ascii_end()) else {
                // A line that is being written has no newline yet.
                damaged += u64::from(line.ends_with(b"\n"));
                continue;
            };
            if damaged == 0 {
                before_damage = entry.time;
            }
            first = first.or(Some(entry.time));
            if !wanted.wants(&entry) {
                continue;
            }
            self.bytes += line.len();
            self.lines.push_back((line.len(), entry));
            while self.lines.len() > wanted.most || self.bytes > BYTES_MAX {
                let Some((length, _)) = self.lines.pop_front() else { break };
                self.bytes -= length;
            }
        }
        if damaged > 0 && (wanted.from..=wanted.to).contains(&before_damage) {
            self.note(damaged, before_damage, wanted.most);
        }
        Ok(first.is_none_or(|first| first >= wanted.from))
    }
}

impl MatchingLines {
    /// Adds a note about undecodable lines, whatever the request: damage may hide an action.
    fn note(&mut self, count: u64, time: f64, most: usize) {
        let action = format!("{count} lines from this line on cannot be decoded");
        let line = AuditEntry {
            time,
            actor: String::new(),
            address: String::new(),
            action,
            job: None,
            owner: None,
            more: BTreeMap::new(),
        };
        let place = self.lines.partition_point(|(_, line)| line.time <= time);
        self.lines.insert(place, (0, line));
        while self.lines.len() > most {
            self.lines.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::audit::files;
    use proptest::prelude::*;

    fn line(time: u32, who: &str, did: &str, job: &str) -> String {
        let more = if job.is_empty() { String::new() } else { format!(",\"job\":\"{job}\"") };
        format!(
            "{{\"time\":{time},\"actor\":\"{who}\",\"address\":\"::1\",\"action\":\"{did}\"{more}}}\n"
        )
    }

    fn all() -> AuditQuery {
        let (who, what, job) = (Vec::new(), None, None);
        AuditQuery { who, what, job, from: 0.0, to: 1e10, most: 100 }
    }

    #[test]
    fn the_newest_lines_of_all_files_that_are_wanted() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir.path().join("audit.log"), 2);
        let older = line(1, "uid 7", "POST /api/v1/tokens", "")
            + &line(2, "uid 70", "GET /api/v1/jobs/oar:7", "oar:7");
        let newer = line(3, "token 7 of `read:1000`", "GET /api/v1/jobs", "*")
            + "{\"time\": 4, \"actor"
            + "\n"
            + &line(5, "uid 7", "POST /api/v1/jobs", "oar:7");
        let entry = |wanted: &AuditQuery| {
            let lines = read(&files, wanted, &Cancel::default()).unwrap();
            lines.iter().map(|line| line.time).collect::<Vec<_>>()
        };
        assert_eq!(entry(&all()), [0.0; 0], "no file, no line");
        std::fs::write(&files[1], older).unwrap();
        std::fs::write(&files[0], newer).unwrap();
        // The line after the third cannot be decoded.
        let noted = read(&files, &all(), &Cancel::default()).unwrap().swap_remove(3);
        assert_eq!(noted.action, "1 lines from this line on cannot be decoded");
        assert_eq!(entry(&all()), [1.0, 2.0, 3.0, 3.0, 5.0]);
        assert_eq!(entry(&AuditQuery { most: 2, ..all() }), [3.0, 5.0]);
        assert_eq!(entry(&AuditQuery { most: 3, ..all() }), [3.0, 3.0, 5.0]);
        assert_eq!(entry(&AuditQuery { most: 0, ..all() }), [0.0; 0]);
        assert_eq!(entry(&AuditQuery { from: 2.0, to: 3.0, ..all() }), [2.0, 3.0, 3.0]);
        assert_eq!(entry(&AuditQuery { who: vec!["uid 7".into()], ..all() }), [1.0, 3.0, 5.0]);
        assert_eq!(entry(&AuditQuery { who: vec!["7".into()], ..all() }), [1.0, 3.0, 3.0, 5.0]);
        assert_eq!(
            entry(&AuditQuery { who: vec!["ann".into(), "1000".into()], ..all() }),
            [3.0, 3.0]
        );
        assert_eq!(entry(&AuditQuery { what: Some("POST".into()), ..all() }), [1.0, 3.0, 5.0]);
        assert_eq!(entry(&AuditQuery { job: Some("oar:7".into()), ..all() }), [2.0, 3.0, 5.0]);
        let cancelled = Cancel::default();
        cancelled.cancel();
        assert_eq!(read(&files, &all(), &cancelled).unwrap(), []);
    }

    proptest! {
        #[test]
        fn words_of_any_text_are_in_it(text in ".{0,20}", words in ".{0,5}") {
            prop_assert!(!has_words(&text, &words) || text.contains(&words));
            prop_assert!(text.is_empty() || has_words(&text, &text));
        }
    }
}
