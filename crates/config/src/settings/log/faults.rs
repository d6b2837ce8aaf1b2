//! Repeated messages: written once, then counted per minute.

use log::Level;
use model::Timestamp;

/// Most messages remembered at a time; a new one replaces the oldest.
const FAULTS_MAX: usize = 256;
/// How long repetitions are counted before the count is written.
const QUIET: i64 = 60 * Timestamp::SECOND;

/// The messages of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Faults {
    known: Vec<Fault>,
}

#[derive(Debug)]
pub(super) struct Fault {
    pub(super) level: Level,
    pub(super) target: String,
    /// The text, each run of digits as one `#`.
    key: String,
    text: String,
    logged: Timestamp,
    again: u64,
}

/// The count of a repeated message.
pub(super) struct FaultCount<'a> {
    pub(super) text: &'a str,
    pub(super) again: u64,
}

impl Fault {
    pub(super) fn count(&self) -> FaultCount<'_> {
        FaultCount { text: &self.text, again: self.again }
    }
}

impl Faults {
    /// Whether the message should be written now; otherwise it is counted.
    pub(super) fn is_new(
        &mut self,
        now: Timestamp,
        level: Level,
        target: &str,
        text: &str,
    ) -> bool {
        let key = key(text);
        let known = self.known.iter_mut().find(|fault| fault.key == key && fault.target == target);
        if let Some(fault) = known {
            fault.again += 1;
            fault.text.clear();
            fault.text.push_str(text);
            return false;
        }
        if self.known.len() >= FAULTS_MAX
            && let Some(oldest) =
                (0..self.known.len()).min_by_key(|i| self.known.get(*i).map(|f| f.logged))
        {
            self.known.swap_remove(oldest);
        }
        let (target, text) = (target.to_owned(), text.to_owned());
        self.known.push(Fault { level, target, key, text, logged: now, again: 0 });
        true
    }

    /// Shows every repeated message whose count was last written a minute ago or more, and removes messages
    /// that did not repeat.
    pub(super) fn report_repeated(&mut self, now: Timestamp, mut show: impl FnMut(&Fault)) {
        self.known.retain_mut(|fault| {
            // A clock set back would otherwise silence a message for as long.
            if (0..QUIET).contains(&now.since(fault.logged)) {
                return true;
            }
            let repeated = fault.again > 0;
            if repeated {
                show(fault);
            }
            (fault.logged, fault.again) = (now, 0);
            repeated
        });
    }
}

/// Messages with other numbers are the same message. The numbers of a URL and of FILE:LINE count, because they name what
/// fails. So do those of the names that follow it: a target has many devices and metrics.
fn key(text: &str) -> String {
    let mut key = String::with_capacity(text.len());
    let mut has_place = false;
    for word in text.split_inclusive(char::is_whitespace) {
        let is_place = word.contains("://") || is_line_of_file(word);
        if is_place || (has_place && is_name(word)) {
            key.push_str(word);
            has_place = true;
            continue;
        }
        for c in word.chars() {
            match c {
                c if !c.is_ascii_digit() => key.push(c),
                _ if !key.ends_with('#') => key.push('#'),
                _ => {}
            }
        }
    }
    key
}

/// Whether a word is FILE:LINE, with a colon behind it or not.
fn is_line_of_file(word: &str) -> bool {
    let word = word.trim_end();
    let parts = word.strip_suffix(':').unwrap_or(word).rsplit_once(':');
    parts.is_some_and(|(file, line)| {
        file.contains(|c: char| c.is_alphabetic())
            && !line.is_empty()
            && line.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Whether a word is a name with digits, and no number with a unit (`10ms`).
fn is_name(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    let has_letter = word.contains(|c: char| c.is_alphabetic());
    let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    has_letter && (unit.len() == word.len() || !unit.chars().all(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn once_then_counted_each_minute_then_removed() {
        let mut faults = Faults::default();
        assert!(faults.is_new(at(0), Level::Warn, "t", "pid 17 is gone"));
        assert!(!faults.is_new(at(1), Level::Warn, "t", "pid 4 is gone"));
        assert!(faults.is_new(at(1), Level::Warn, "t", "another"));
        let reported = |faults: &mut Faults, now| {
            let mut reported = Vec::new();
            faults.report_repeated(now, |fault| {
                reported.push((fault.count().text.to_owned(), fault.count().again))
            });
            reported
        };
        assert_eq!(reported(&mut faults, at(59)), []);
        assert_eq!(reported(&mut faults, at(60)), [("pid 4 is gone".to_owned(), 1)]);
        assert!(!faults.is_new(at(61), Level::Warn, "t", "pid 5 is gone"));
        assert_eq!(reported(&mut faults, at(121)).len(), 1);
        assert_eq!(reported(&mut faults, at(182)), []);
        assert!(faults.is_new(at(183), Level::Warn, "t", "pid 6 is gone"));
    }

    #[test]
    fn each_url_is_a_message_of_its_own() {
        let mut faults = Faults::default();
        for host in ["10.0.0.1", "10.0.0.2"] {
            let text = |errno: u32| format!("snmp://{host}:161: no response, errno {errno}");
            assert!(faults.is_new(at(0), Level::Warn, "t", &text(1)));
            assert!(!faults.is_new(at(0), Level::Warn, "t", &text(2)));
        }
    }

    #[test]
    fn names_of_a_target_and_lines_of_a_file_are_messages_of_their_own() {
        let mut faults = Faults::default();
        let mut is_new = |text: &str| faults.is_new(at(0), Level::Warn, "t", text);
        assert!(is_new("snmp://pdu:161: outlet_1 of pdu-1: no row after 10ms, errno 1"));
        assert!(is_new("snmp://pdu:161: outlet_2 of pdu-1: no row after 10ms, errno 1"));
        assert!(is_new("snmp://pdu:161: outlet_2 of pdu-2: no row after 10ms, errno 1"));
        assert!(!is_new("snmp://pdu:161: outlet_2 of pdu-2: no row after 12ms, errno 7"));
        assert!(is_new("/etc/metrics.d/pdu.conf:1: warning: metric_1"));
        assert!(is_new("/etc/metrics.d/pdu.conf:2: warning: metric_1"));
        assert!(is_new("/proc/17/stat: gone, 3 of 4"));
        assert!(!is_new("/proc/18/stat: gone, 4 of 5"), "no FILE:LINE");
    }

    #[test]
    fn bounded() {
        let mut faults = Faults::default();
        for i in 0..2 * FAULTS_MAX {
            let name: String =
                i.to_string().chars().map(|d| if d == '0' { 'o' } else { 'x' }).collect();
            faults.is_new(at(0), Level::Warn, &format!("{i}"), &name);
        }
        assert_eq!(faults.known.len(), FAULTS_MAX);
    }
}
