//! The common parts of Slurm's answer formats: a parsed job, and what could not be read.

use super::json::{Number, Object, ignored, skip_all};
use jobs::JobRecord;
use model::{ClusterId, DeviceId, JobId, JobKey, Timestamp};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Longest list of nodes of one job.
const NODES_MAX: usize = 100_000;
/// Most messages per round about unreadable parts.
const REJECTIONS_MAX: usize = 20;
/// Most words of a comment, and most bytes of a user's text.
const TYPES_MAX: usize = 64;
const TEXT_BYTES_MAX: usize = 1024;
/// Most steps stored per job.
pub(super) const STEPS_MAX: usize = 1000;

/// A job as one answer reports it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ParsedJob {
    pub(super) record: JobRecord,
    /// Slurm's name of the cluster; empty if missing.
    pub(super) cluster_name: Box<str>,
}

/// Messages about unreadable parts, and the number of those beyond the limit.
#[derive(Debug, Default)]
pub(super) struct ParseErrors {
    kept: Vec<String>,
    more: usize,
}

impl ParseErrors {
    pub(super) fn add(&mut self, what: String) {
        if self.kept.len() < REJECTIONS_MAX {
            self.kept.push(what);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn done(mut self) -> Vec<String> {
        if self.more > 0 {
            self.kept.push(format!("and {} more", self.more));
        }
        self.kept
    }
}

/// The key of a valid job ID.
pub(super) fn key(cluster: &ClusterId, id: Option<i64>) -> Option<JobKey> {
    let id = JobId::new(id?)?;
    Some(JobKey { cluster: cluster.clone(), id })
}

/// The time from seconds since 1970; Slurm writes 0 for none.
pub(super) fn instant(seconds: Number) -> Option<Timestamp> {
    // The year 9999; Slurm's special 64-bit values lie beyond.
    let seconds = seconds.0.filter(|seconds| (1..253_402_300_800).contains(seconds))?;
    Some(Timestamp::from_seconds(seconds))
}

/// The devices of Slurm's list of nodes, each name cut at its first dot.
pub(super) fn devices(nodes: &str) -> Result<Vec<DeviceId>, String> {
    let nodes = nodes.trim();
    if matches!(nodes, "None assigned" | "(null)" | "N/A" | "None") {
        return Ok(Vec::new());
    }
    let hosts = model::expand_hosts(nodes, NODES_MAX).map_err(|error| error.to_string())?;
    hosts.iter().map(|host| device(host)).collect()
}

pub(super) fn device(host: &str) -> Result<DeviceId, String> {
    let name = host.split('.').next().unwrap_or(host);
    DeviceId::new(name).map_err(|error| error.to_string())
}

/// The words of a comment, if it has any.
pub(super) fn types(comment: &str) -> Option<Vec<Box<str>>> {
    let words = comment.split_whitespace().filter(|word| word.len() <= TEXT_BYTES_MAX);
    let words = words.filter(|word| *word != "(null)").take(TYPES_MAX).map(Into::into);
    Some(words.collect()).filter(|words: &Vec<_>| !words.is_empty())
}

/// A user's text, cut to the limit.
pub(super) fn cut(text: Box<str>) -> Box<str> {
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let mut end = TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().into()
}

/// The display ID of an array task (`4_1`) or a component of a heterogeneous job (`6+1`), and the ID of the whole.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Part {
    pub(super) display_id: Box<str>,
    pub(super) of: Option<i64>,
    pub(super) index: Option<i64>,
}

impl Part {
    /// From the IDs of the array and of the heterogeneous job; 0 or missing means neither.
    pub(super) fn of(array: Number, task: Number, het: Number, offset: Number) -> Self {
        match (array.positive(), task.below_no_value(), het.positive(), offset.below_no_value()) {
            (Some(array), Some(task), ..) => Self {
                display_id: format!("{array}_{task}").into(),
                of: Some(array),
                index: Some(task),
            },
            // The waiting tasks of an array are one record until they start.
            (Some(array), None, ..) => Self { of: Some(array), ..Self::default() },
            (_, _, Some(het), Some(offset)) => {
                Self { display_id: format!("{het}+{offset}").into(), of: Some(het), index: None }
            }
            _ => Self::default(),
        }
    }

    /// From the display ID: `4_1`, `4_[2-9%1]`, `6+1`.
    pub(super) fn from_display_id(text: &str) -> Self {
        if let Some((array, task)) = text.split_once('_') {
            let (of, index) = (array.parse().ok(), task.parse().ok());
            let display_id = if index.is_some() { text.into() } else { Box::default() };
            return Self { display_id, of, index };
        }
        match text.split_once('+') {
            Some((het, _)) => Self { display_id: text.into(), of: het.parse().ok(), index: None },
            None => Self::default(),
        }
    }
}

/// The end of a job or step: an exit code, or 128 plus a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Exit(pub(super) Option<i32>);

impl Exit {
    /// From a status of `wait(2)`.
    fn of_status(status: i64) -> Self {
        let Ok(status) = i32::try_from(status) else { return Self(None) };
        let (code, signal) = (status >> 8 & 0xff, status & 0x7f);
        Self(Some(if signal == 0 { code } else { 128 + signal }))
    }

    /// From `CODE:SIGNAL`.
    pub(super) fn of_text(text: &str) -> Self {
        let read = |number: &str| number.parse::<u8>().ok().map(i32::from);
        let parts =
            text.split_once(':').and_then(|(code, signal)| Some((read(code)?, read(signal)?)));
        Self(parts.map(|(code, signal)| if signal == 0 { code } else { 128 + signal }))
    }

    /// The accounting's JSON of 22.05 reports 0 for every job that was not killed. A failed job did not end
    /// with 0, so the value is ignored there.
    pub(super) fn of_failed(self, has_failed: bool) -> Option<i32> {
        self.0.filter(|code| *code != 0 || !has_failed)
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ExitObject {
    return_code: Number,
    signal: Object<Signal>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Signal {
    id: Number,
    signal_id: Number,
}

struct ExitVisitor;

impl<'de> Visitor<'de> for ExitVisitor {
    type Value = Exit;

    ignored! { visit_bool: bool, visit_f64: f64 }

    fn visit_i64<E>(self, status: i64) -> Result<Exit, E> {
        Ok(Exit::of_status(status))
    }

    fn visit_u64<E>(self, status: u64) -> Result<Exit, E> {
        Ok(i64::try_from(status).map_or(Exit(None), Exit::of_status))
    }

    fn visit_str<E>(self, text: &str) -> Result<Exit, E> {
        Ok(Exit::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Exit, A::Error> {
        skip_all(seq)?;
        Ok(Exit(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Exit, A::Error> {
        let exit = ExitObject::deserialize(MapAccessDeserializer::new(map))?;
        let signal = exit.signal.0.id.positive().or(exit.signal.0.signal_id.positive());
        let signal = signal.and_then(|signal| i32::try_from(signal).ok()).filter(|n| *n < 128);
        let code = exit.return_code.below_no_value().and_then(|code| i32::try_from(code).ok());
        Ok(Exit(signal.map(|signal| 128 + signal).or(code)))
    }
}

impl<'de> Deserialize<'de> for Exit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ExitVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_of_every_shape() {
        for (text, code) in [
            ("768", Some(3)),
            ("9", Some(137)),
            ("0", Some(0)),
            ("139", Some(139)),
            ("null", None),
            ("{\"status\": \"SUCCESS\", \"return_code\": 0}", Some(0)),
            (
                "{\"status\": \"SIGNALED\", \"return_code\": null, \"signal\": {\"signal_id\": 9}}",
                Some(137),
            ),
            (
                "{\"status\": [\"SIGNALED\"], \"return_code\": {\"set\": false, \"number\": 0}, \
                 \"signal\": {\"id\": {\"set\": true, \"infinite\": false, \"number\": 15}}}",
                Some(143),
            ),
            (
                "{\"status\": [\"ERROR\"], \"return_code\": {\"set\": true, \"number\": 3}, \
                 \"signal\": {\"id\": {\"set\": false, \"number\": 0}}}",
                Some(3),
            ),
            ("[]", None),
        ] {
            assert_eq!(serde_json::from_str::<Exit>(text).unwrap().0, code, "{text}");
        }
        assert_eq!(Exit::of_text("3:0").0, Some(3));
        assert_eq!(Exit::of_text("0:9").0, Some(137));
        assert_eq!(Exit::of_text("").0, None);
    }

    #[test]
    fn parts_and_their_display_ids() {
        let number = |number| Number(Some(number));
        let none = Number(None);
        let part = Part::of(number(4), number(1), number(0), none);
        assert_eq!(part, Part { display_id: "4_1".into(), of: Some(4), index: Some(1) });
        assert_eq!(part, Part::from_display_id("4_1"));
        let part = Part::of(number(0), number(0), number(6), number(1));
        assert_eq!(part, Part { display_id: "6+1".into(), of: Some(6), index: None });
        assert_eq!(part, Part::from_display_id("6+1"));
        let part = Part::of(number(4), none, none, none);
        assert_eq!(part, Part { display_id: "".into(), of: Some(4), index: None });
        assert_eq!(part, Part::from_display_id("4_[2-9%1]"));
        assert_eq!(Part::of(number(0), none, number(0), number(0)), Part::default());
        assert_eq!(Part::from_display_id("7"), Part::default());
    }

    #[test]
    fn nodes_are_devices() {
        let names = |nodes: &str| {
            devices(nodes).map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(names("n[1-2].site.example,m").unwrap(), ["n1", "n2", "m"]);
        assert_eq!(names("None assigned").unwrap(), Vec::<String>::new());
        assert!(names("n[1").is_err());
    }
}
