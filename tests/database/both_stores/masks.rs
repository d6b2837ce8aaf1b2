//! What differs between two servers by its nature: named values of answers, never a whole answer.

use super::pair::Answer;
use super::requests::Request;
use api::Operation;
use model::Timestamp;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// A value that is not compared.
enum Masked {
    /// The value of this key in JSON, wherever it is.
    Key(&'static str),
    /// The same, only in answers to requests that depend on the present time.
    KeyNow(&'static str),
    /// The word after this text in an error.
    After(&'static str),
    /// Values of the page's metrics with this prefix.
    Values(&'static str),
    /// Lines of the page about metrics with this prefix: one store has them alone.
    Lines(&'static str),
    /// Of an answer to batches the server's identity, the generation of settings, and when these end.
    Own,
}

use Masked::{After, Key, KeyNow, Lines, Own, Values};

/// Why each value differs.
const MASKS: &[(Operation, Masked, &str)] = &[
    (Operation::Health, Key("uptime_seconds"), "the servers start one after the other"),
    (Operation::Health, Key("now"), "the clock at the answer"),
    (Operation::Nodes, Key("last_seen"), "the time of receipt"),
    (Operation::Nodes, Key("clock_offset_seconds"), "the sender's clock minus the time of receipt"),
    (Operation::ForgetNode, Key("last_seen"), "the time of receipt"),
    (
        Operation::ForgetNode,
        Key("clock_offset_seconds"),
        "the sender's clock minus the time of receipt",
    ),
    (Operation::ForgetPoller, Key("last_seen"), "the time of receipt"),
    (Operation::Pollers, Key("last_seen"), "the time of receipt"),
    (Operation::Explain, Key("last_seen"), "the time of receipt"),
    (Operation::Range, KeyNow("start"), "without it, the clock at the request"),
    (Operation::Range, KeyNow("end"), "without it, the clock at the request"),
    (Operation::Report, KeyNow("wall_seconds"), "the job runs until the clock at the request"),
    (Operation::Report, KeyNow("cores_used"), "per second of the time until now"),
    (Operation::Jobs, KeyNow("wall_seconds"), "the job runs until the clock at the request"),
    (
        Operation::Batches,
        Own,
        "each server draws its identity; settings have their end, and a generation computed from it",
    ),
    (Operation::Register, Key("server"), "each server draws its identity"),
    (Operation::PollerPromotions, Key("version"), "computed from the times of changes"),
    (Operation::PollerPromotions, Key("until"), "counts from the time of the change"),
    (Operation::Promote, Key("created"), "the time of the change"),
    (Operation::Promote, Key("until"), "counts from the time of the change"),
    (Operation::Promotions, Key("created"), "the time of the change"),
    (Operation::Promotions, Key("until"), "counts from the time of the change"),
    (Operation::Settings, Key("created"), "the time of the change"),
    (Operation::Settings, Key("until"), "counts from the time of the change"),
    (Operation::Marks, Key("at"), "the time of the change"),
    (Operation::MakeToken, Key("token"), "random"),
    (Operation::MakeToken, Key("created"), "the time of the change"),
    (Operation::MakeToken, Key("expires"), "counts from the time of the change"),
    (Operation::RevokeToken, Key("created"), "the time of the change"),
    (Operation::RevokeToken, Key("expires"), "counts from the time of the change"),
    (Operation::RevokeToken, Key("revoked"), "the time of the change"),
    (Operation::Tokens, Key("created"), "the time of the change"),
    (Operation::Tokens, Key("expires"), "counts from the time of the change"),
    (Operation::Tokens, Key("revoked"), "the time of the change"),
    (Operation::Audit, Key("time"), "the time of the request"),
    (Operation::Audit, Key("created"), "the time of the change"),
    (Operation::Audit, Key("until"), "counts from the time of the change"),
    (Operation::InsertMetrics, KeyNow("timestamp"), "without it, the clock at the request"),
    (
        Operation::InsertMetrics,
        After("data before "),
        "a store without samples of a day settles it with the next one, so the two differ after midnight",
    ),
    (
        Operation::Metrics,
        Values("jobmeter_uptime_seconds"),
        "the servers start one after the other",
    ),
    (Operation::Metrics, Values("jobmeter_http_request_seconds_sum"), "a duration"),
    (Operation::Metrics, Values("jobmeter_ingest_seconds_sum"), "a duration"),
    (Operation::Metrics, Values("jobmeter_poll_last_batch_age_seconds"), "an age"),
    (
        Operation::Metrics,
        Values("process_"),
        "use of the processor, memory and files by the process",
    ),
    (Operation::Metrics, Lines("jobmeter_store_"), "statistics of the store"),
    (
        Operation::Metrics,
        Lines("jobmeter_runs_copied_total"),
        "of the copy of the jobs in the database",
    ),
    (
        Operation::Metrics,
        Lines("jobmeter_shared_tables_failed_total"),
        "of the copy of the jobs in the database",
    ),
    (
        Operation::Metrics,
        Lines("jobmeter_promotions_without_row"),
        "of the promotions in the database",
    ),
    (
        Operation::Metrics,
        Lines("jobmeter_promoted_rows_skipped"),
        "of the promotions in the database",
    ),
];

/// The masks that an answer had a value for, by their places.
static APPLIED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Reasons of masks that no answer had a value for.
pub(super) fn unused() -> BTreeSet<&'static str> {
    let applied = APPLIED.lock().unwrap();
    let of = |place: &usize| MASKS[*place].2;
    let used: BTreeSet<&str> = applied.iter().map(of).collect();
    MASKS.iter().map(|(_, _, why)| *why).filter(|why| !used.contains(why)).collect()
}

/// An answer without the values that are not compared.
pub(super) fn masked(request: &Request, mut answer: Answer) -> Answer {
    let mut text = String::from_utf8_lossy(&answer.body).into_owned();
    let before = text.clone();
    for (place, (operation, mask, _)) in MASKS.iter().enumerate() {
        if *operation != request.operation {
            continue;
        }
        let changed = match mask {
            Key(key) => without_values(&text, key),
            KeyNow(key) if request.is_now => without_values(&text, key),
            KeyNow(_) => continue,
            After(before) => without_word(&text, before),
            Values(prefix) => of_lines(&text, prefix, |line| {
                line.rsplit_once(' ').map(|(name, _)| format!("{name} masked"))
            }),
            Lines(prefix) => of_lines(&text, prefix, |_| None),
            Own => without_own(&answer.body).unwrap_or_else(|| text.clone()),
        };
        if changed != text {
            APPLIED.lock().unwrap().insert(place);
            text = changed;
        }
    }
    if !request.is_ordered {
        text = sorted(&text);
    }
    if text != before {
        answer.headers.retain(|(name, _)| name != "content-length");
        answer.body = text.into_bytes();
    }
    // The time of the answer in seconds.
    answer.headers.retain(|(name, _)| name != "date");
    answer
}

/// The lines of a text in alphabetical order: rows without an order.
pub(super) fn sorted(text: &str) -> String {
    let line = |line: &str| {
        let line = line.trim_start_matches(['[', ' ']).trim_end_matches(']');
        line.trim_end_matches([',', ' ']).to_owned()
    };
    let mut lines: Vec<String> = text.lines().map(line).collect();
    lines.sort();
    lines.join("\n")
}

/// A text in which each value of a key is `masked`.
fn without_values(text: &str, key: &str) -> String {
    let key = format!("\"{key}\":");
    let mut parts = text.split(key.as_str());
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let part = part.trim_start();
        let end = match part.strip_prefix('"') {
            Some(rest) => rest.find('"').map_or(part.len(), |end| end + 2),
            None => part.find([',', '}', ']']).unwrap_or(part.len()),
        };
        masked.push_str(&key);
        masked.push_str(if part.starts_with("null") { "null" } else { "masked" });
        masked.push_str(part.split_at(end).1);
    }
    masked
}

/// A text in which the word after another text is `masked`.
fn without_word(text: &str, before: &str) -> String {
    let mut parts = text.split(before);
    let mut masked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (_, rest) = part.split_once(' ').unwrap_or((part, ""));
        masked += &format!("{before}masked {rest}");
    }
    masked
}

/// Replaces or removes each line about a metric with this prefix.
fn of_lines(text: &str, prefix: &str, line: impl Fn(&str) -> Option<String>) -> String {
    let is_about = |one: &str| {
        let name = one.strip_prefix("# HELP ").or(one.strip_prefix("# TYPE ")).unwrap_or(one);
        name.starts_with(prefix)
    };
    let mut lines = String::new();
    for one in text.split_inclusive('\n') {
        if is_about(one) {
            match line(one.trim_end()) {
                Some(replaced) if !one.starts_with('#') => lines.push_str(&format!("{replaced}\n")),
                Some(_) => lines.push_str(one),
                None => {}
            }
        } else {
            lines.push_str(one);
        }
    }
    lines
}

/// An answer to batches as text, without what each server has of its own.
fn without_own(body: &[u8]) -> Option<String> {
    let answer = wire::Answer::decode(body).ok().filter(|answer| !answer.server.is_empty())?;
    let mut settings = wire::decode_settings(&answer.settings).unwrap();
    settings.promotions.values_mut().for_each(|until| *until = Timestamp::default());
    let overrides = settings.sources.values_mut().chain(settings.bursts.values_mut());
    overrides.for_each(|one| one.until = None);
    let bare =
        wire::Answer { server: String::new(), generation: 0, settings: Vec::new(), ..answer };
    Some(format!("{bare:?} {settings:?}"))
}

#[test]
fn only_the_values_of_a_key_are_masked() {
    let text = r#"[{"now":1.5,"a":"now"},{"now": "x,y","b":2},{"now":null}]"#;
    let want = r#"[{"now":masked,"a":"now"},{"now":masked,"b":2},{"now":null}]"#;
    assert_eq!(without_values(text, "now"), want);
    let page = "# HELP a_b x\na_b 1\na_c{l=\"x\"} 2\nb 3\n";
    assert_eq!(of_lines(page, "a_b", |_| None), "a_c{l=\"x\"} 2\nb 3\n");
    let value = |line: &str| line.rsplit_once(' ').map(|(name, _)| format!("{name} masked"));
    assert_eq!(of_lines(page, "a_", value), "# HELP a_b x\na_b masked\na_c{l=\"x\"} masked\nb 3\n");
}
