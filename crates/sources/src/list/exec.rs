//! Numbers printed by a site's own program, for values that no other source reads, such as those of a
//! vendor's power tool.
//!
//! The source is off until the agent's main configuration file names a program. Only root may be able to
//! change that file, and only root or `user` the program; the same holds for all directories above each:
//!
//! ```toml
//! [sources.exec]
//! command = ["/usr/sbin/ipmi-oem", "dell", "power-monitoring-over-interval", "5", "systempower"]
//! pattern = ".*: (\\d+) .*"
//! metric = "exec_value_watts"
//! user = "ipmi"
//! ```
//!
//! No shell is involved: the program receives the words unchanged. It runs as `user`, never as root, with
//! that user's groups, an empty environment, `/` as its directory and `/dev/null` as standard input. It must
//! end within `time_max` with exit code 0; after `time_max` it is killed with its whole process group. The
//! number is the group `value` of the pattern's first match, else its first group, else the whole match. A
//! pattern with a group `name` gives a sample for each match, with that label: one program can print many
//! numbers. To run several programs, write one that runs them.
//!
//! The source polls the running program and never waits for it, except at the first reading. Samples have the
//! time at which the source observed the end. On a recorded machine the program's output is in
//! `.jobmeter/exec`.

use crate::{Context, Every, Open, Options, PartState, Sink, Source, SourceError, SourceSpec};
use kernel::Root;
use kernel::child_program::{Ended, Killed, OUTPUT_BYTES_MAX, Running};
use kernel::login::{Login, login};
use kernel::trust::changed_by_others;
use kernel::user_files::accounts;
use model::setting::{Kind as Holds, OptionSpec, WORD_END, show_duration};
use model::{Kind, Metric, Timestamp, Unit, nearest};
use regex_lite::{Captures, Regex};
use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::time::Duration;

/// File with the program's output on a recorded machine.
const REPLY: &str = ".jobmeter/exec";
/// Maximum number of numbers per run; further ones are left out and reported.
const NUMBERS_MAX: usize = 64;
/// Maximum length of a number's name in characters; longer names are cut.
const NAME_CHARS_MAX: usize = 64;
/// Maximum time in which a killed program should disappear.
const DYING_MAX: Duration = Duration::from_millis(100);
/// Polling interval of a running program.
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "exec",
    help: "Numbers printed by a site's own program; off until the agent's configuration names one.",
    reads: &["the output of `command`"],
    cost: "the program's own cost, and about 1 ms to start it",
    every: Every::AtLeast(Duration::from_secs(30)),
    metrics: &[
        &PLAIN,
        &RATIO,
        &SECONDS,
        &BYTES,
        &JOULES,
        &WATTS,
        &CELSIUS,
        &HERTZ,
        &VOLTS,
        &AMPERES,
        &PLAIN_TOTAL,
        &SECONDS_TOTAL,
        &BYTES_TOTAL,
        &JOULES_TOTAL,
    ],
    options: &[
        OptionSpec {
            name: "command",
            kind: Holds::Command("WORD"),
            default: "",
            help: "The program and its arguments, a list of words that no shell interprets. Only root may be able to write \
                   this configuration file, and only root or `user` the program, including their directories.",
        },
        OptionSpec {
            name: "user",
            kind: Holds::Text("USER"),
            default: "nobody",
            help: "User that the program runs as, a name or number of /etc/passwd; never root.",
        },
        OptionSpec {
            name: "pattern",
            kind: Holds::TextOf("REGEX", is_pattern),
            default: r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?",
            help: "Finds the number in the output: group `value`, else the first group, else the whole match. With a \
                   group `name` each match counts, else only the first.",
        },
        OptionSpec {
            name: "metric",
            kind: Holds::Choice(&[
                "exec_value",
                "exec_value_ratio",
                "exec_value_seconds",
                "exec_value_bytes",
                "exec_value_joules",
                "exec_value_watts",
                "exec_value_celsius",
                "exec_value_hertz",
                "exec_value_volts",
                "exec_value_amperes",
                "exec_value_total",
                "exec_value_seconds_total",
                "exec_value_bytes_total",
                "exec_value_joules_total",
            ]),
            default: "exec_value",
            help: "Metric of the number, with its unit and kind; metrics in `_total` are counters.",
        },
        OptionSpec {
            name: "name",
            kind: Holds::TextOf("NAME", is_name),
            default: "command",
            help: "Label `name` of the number if the pattern has no group `name`.",
        },
        OptionSpec {
            name: "time_max",
            kind: Holds::Duration { min: Duration::from_millis(10), max: Duration::from_secs(600) },
            default: "10s",
            help: "Maximum run time; a longer run is killed.",
        },
    ],
    open,
    check,
    may_burst: false,
    ..SourceSpec::DEFAULT
};

static PLAIN: Metric = gauge("exec_value", Unit::Count);
static RATIO: Metric = gauge("exec_value_ratio", Unit::Ratio);
static SECONDS: Metric = gauge("exec_value_seconds", Unit::Seconds);
static BYTES: Metric = gauge("exec_value_bytes", Unit::Bytes);
static JOULES: Metric = gauge("exec_value_joules", Unit::Joules);
static WATTS: Metric = gauge("exec_value_watts", Unit::Watts);
static CELSIUS: Metric = gauge("exec_value_celsius", Unit::Celsius);
static HERTZ: Metric = gauge("exec_value_hertz", Unit::Hertz);
static VOLTS: Metric = gauge("exec_value_volts", Unit::Volts);
static AMPERES: Metric = gauge("exec_value_amperes", Unit::Amperes);
static PLAIN_TOTAL: Metric = counter("exec_value_total", Unit::Count);
static SECONDS_TOTAL: Metric = counter("exec_value_seconds_total", Unit::Seconds);
static BYTES_TOTAL: Metric = counter("exec_value_bytes_total", Unit::Bytes);
static JOULES_TOTAL: Metric = counter("exec_value_joules_total", Unit::Joules);

const fn gauge(name: &'static str, unit: Unit) -> Metric {
    Metric::gauge(name, unit, "Number printed by the site's program.")
}

const fn counter(name: &'static str, unit: Unit) -> Metric {
    let help = "Growth of the counter that the site's program prints, since the first reading or the last reset.";
    Metric::counter(name, unit, help)
}

struct Exec {
    words: Vec<String>,
    /// `None` on a recorded machine, where no program runs.
    login: Option<Login>,
    finder: Finder,
    time_max: Duration,
    running: Option<Running>,
    /// Error of the last run, until the next tick returns it.
    failed: Option<SourceError>,
    /// Whether the first run was waited for.
    is_begun: bool,
    counted: HashMap<Box<str>, Counted>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let words = open.options.command("command")?;
    if words.is_empty() {
        return Err(SourceError::absent("`command` in [sources.exec] names no program"));
    }
    let user = open.options.text("user");
    let login = if open.root.is_live() { Some(login_of(open.root, user)?) } else { None };
    let pattern = Regex::new(open.options.text("pattern"))
        .map_err(|e| SourceError::broken(format!("`pattern` in [sources.exec]: {e}")))?;
    let metric = SPEC.metrics.iter().find(|metric| metric.name == open.options.text("metric"));
    let finder = Finder::new(pattern, metric.unwrap_or(&&PLAIN), open.options.text("name"));
    let time_max = open.options.duration("time_max");
    Ok(Box::new(Exec {
        words,
        login,
        finder,
        time_max,
        running: None,
        failed: None,
        is_begun: false,
        counted: HashMap::new(),
    }))
}

/// Checks the option's text for its declaration.
fn is_pattern(text: &str) -> Result<(), String> {
    Regex::new(text).map(drop).map_err(|e| format!("not a regular expression: {e}"))
}

/// Checks a label value.
fn is_name(text: &str) -> Result<(), String> {
    let length = text.chars().count();
    match text.contains(model::is_unprintable) {
        false if (1..=NAME_CHARS_MAX).contains(&length) => Ok(()),
        _ => Err(format!("needs 1 to {NAME_CHARS_MAX} characters without control characters")),
    }
}

/// Errors in well-formed options that depend on this machine: option and message. Empty if no program
/// is configured.
fn check(root: &Root, options: &Options) -> Vec<(&'static str, String)> {
    let mut wrong = Vec::new();
    let command = options.text("command");
    let Some(program) = command.split_terminator(WORD_END).next() else { return wrong };
    let login = login_of(root, options.text("user"));
    let owners = [0, login.as_ref().map_or(0, |login| login.uid)];
    if let Err(error) = login {
        let text = error.to_string();
        let what = text.strip_prefix(error.state()).and_then(|rest| rest.strip_prefix(": "));
        wrong.push(("user", what.unwrap_or(&text).to_owned()));
    }
    // A missing program is not an error here: the source reports it as absent.
    if let Ok(Some(why)) = changed_by_others(Path::new(program), &owners) {
        wrong.push(("command", why));
    }
    wrong
}

fn login_of(root: &Root, user: &str) -> Result<Login, SourceError> {
    match login(root, user)? {
        None => {
            let mut passwd = Vec::new();
            root.read("etc/passwd", &mut passwd)?;
            let near = nearest(user, accounts(&passwd).map(|account| account.name));
            let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            Err(SourceError::broken(format!(
                "`user` in [sources.exec] is `{user}`, which is not in /etc/passwd{hint}"
            )))
        }
        Some(login) if login.uid == 0 => Err(SourceError::denied(
            format!("`user` in [sources.exec] is `{user}`; programs do not run as root"),
            "another user the rights that the program needs, and name that user",
        )),
        Some(login) => Ok(login),
    }
}

impl Source for Exec {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        if self.login.is_none() {
            let mut text = Vec::new();
            cx.root.read(REPLY, &mut text)?;
            return self.push(&text, cx, out);
        }
        self.poll(Duration::ZERO, cx, out);
        let failed = self.failed.take();
        if self.running.as_ref().is_some_and(|running| running.age() > self.time_max + DYING_MAX) {
            return Err(self.broken("timed out and was killed, but still runs"));
        }
        if self.running.is_none() {
            self.start()?;
            // Wait once, so that the first tick has a number; `--once` has no other tick.
            if !self.is_begun {
                self.is_begun = true;
                self.poll(self.time_max, cx, out);
            }
        }
        match failed.or_else(|| self.failed.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn drain(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        self.poll(Duration::ZERO, cx, out);
        Ok(())
    }

    fn drain_every(&self) -> Option<Duration> {
        self.running.as_ref().map(|_| LOOK_EVERY)
    }
}

impl Exec {
    fn start(&mut self) -> Result<(), SourceError> {
        let Some(login) = &self.login else { return Ok(()) };
        let program = self.words.first().map_or("", String::as_str);
        let rejected = |e: Error| match e.kind() {
            ErrorKind::NotFound => SourceError::absent(format!("{program}: not there")),
            ErrorKind::PermissionDenied => SourceError::denied(
                format!("{program} cannot be run as user {}", login.uid),
                "that user to execute it, and the agent CAP_SETUID, CAP_SETGID and CAP_KILL (or set \
                 `user` to the agent's own user)",
            ),
            _ => SourceError::broken(format!("{program}: {e}")),
        };
        // Check before each start, because a package update may replace the program.
        let others = changed_by_others(Path::new(program), &[0, login.uid]).map_err(rejected)?;
        if let Some(why) = others {
            let what = format!(
                "{program} is not run: users other than root and the configured one can change it"
            );
            return Err(SourceError::denied(what, format!("it to root alone; {why}")));
        }
        self.running = Some(Running::start(&self.words, login).map_err(rejected)?);
        Ok(())
    }

    /// Polls the running program: pushes its numbers if it has ended, and kills it after `time_max`.
    fn poll(&mut self, patience: Duration, cx: &Context<'_>, out: &mut Sink) {
        let Some(running) = &mut self.running else { return };
        let mut looked = running.look(patience);
        if matches!(looked, Ok(None)) && running.age() >= self.time_max {
            running.kill(Killed::Late);
            looked = running.look(if patience.is_zero() { patience } else { DYING_MAX });
        }
        match looked {
            Ok(None) => {}
            Ok(Some(ended)) => {
                self.running = None;
                let result = self.output(ended).and_then(|output| {
                    if cx.root.is_recording() {
                        cx.root.note_reply(REPLY, &output);
                    }
                    self.push(&output, cx, out)
                });
                self.failed = result.err();
            }
            Err(e) => {
                self.running = None;
                self.failed = Some(self.broken(&e.to_string()));
            }
        }
    }

    /// Output of a program that ended with success.
    fn output(&self, ended: Ended) -> Result<Vec<u8>, SourceError> {
        let time_max = show_duration(self.time_max);
        let why = match (ended.killed, ended.code, ended.signal) {
            (Some(Killed::Late), ..) => format!("timed out: it ran longer than {time_max}"),
            (Some(Killed::Full), ..) => format!("wrote more than {OUTPUT_BYTES_MAX} bytes"),
            (None, Some(0), _) => return Ok(ended.output),
            (None, Some(code), _) => format!("exit code {code}"),
            (None, None, Some(signal)) => format!("ended by signal {signal}"),
            (None, None, None) => "ended in an unknown way".to_owned(),
        };
        let errors = String::from_utf8_lossy(&ended.errors);
        let errors = errors.trim().replace('\n', "; ");
        Err(self.broken(&if errors.is_empty() { why } else { format!("{why}: {errors}") }))
    }

    fn broken(&self, why: &str) -> SourceError {
        let program = self.words.first().map_or("", String::as_str);
        SourceError::broken(format!("{program}: {why}"))
    }

    fn push(&mut self, output: &[u8], cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let text = String::from_utf8_lossy(output);
        let mut pushed = Vec::new();
        let mut left_out = 0;
        for (name, value) in self.finder.numbers(&text) {
            // Of several numbers with one name, the first counts.
            if pushed.len() >= NUMBERS_MAX || pushed.contains(&name) {
                left_out += 1;
                continue;
            }
            let labels = [("name", &*name)];
            if self.finder.metric.kind == Kind::Gauge {
                out.of_device().gauge(self.finder.metric, &labels, value);
            } else {
                let counted = self.counted.entry(name.as_str().into());
                let counted = counted.or_insert(Counted::new(cx.now, value));
                let (total, start) = counted.add(cx.now, value);
                out.of_device().counter(self.finder.metric, &labels, total, start);
            }
            pushed.push(name);
        }
        self.counted.retain(|_, counted| counted.at == cx.now);
        let state = match left_out {
            0 => PartState::Ok,
            _ => PartState::Not(self.broken(&format!(
                "{left_out} numbers are left out: more than {NUMBERS_MAX}, or duplicate names"
            ))),
        };
        out.part("numbers", state);
        if pushed.is_empty() {
            Err(self.broken("no number in its output matches `pattern`"))
        } else {
            Ok(())
        }
    }
}

/// Finds the numbers in a text.
struct Finder {
    pattern: Regex,
    is_named: bool,
    /// Index of the number's group; 0: the whole match.
    group: usize,
    metric: &'static Metric,
    name: Box<str>,
}

impl Finder {
    fn new(pattern: Regex, metric: &'static Metric, name: &str) -> Self {
        let names: Vec<_> = pattern.capture_names().collect();
        let place = |is_it: &dyn Fn(&Option<&str>) -> bool| names.iter().skip(1).position(is_it);
        let is_named = place(&|name| *name == Some("name")).is_some();
        let group = place(&|name| *name == Some("value"));
        let group = group.or_else(|| place(&|name| *name != Some("name")));
        let group = group.map_or(0, |place| place + 1);
        Self { pattern, is_named, group, metric, name: name.into() }
    }

    /// The numbers and their names. Matches that are not numbers are skipped.
    fn numbers<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (String, f64)> + 'a {
        let most = if self.is_named { usize::MAX } else { 1 };
        self.pattern.captures_iter(text).take(most).filter_map(|found| self.number(&found))
    }

    fn number(&self, found: &Captures<'_>) -> Option<(String, f64)> {
        let value: f64 = found.get(self.group)?.as_str().trim().parse().ok()?;
        let name = found.name("name").map_or(&*self.name, |name| name.as_str());
        value.is_finite().then(|| (name.chars().take(NAME_CHARS_MAX).collect(), value))
    }
}

/// A counter printed by the program. It may start at any value; if it falls, it was reset.
#[derive(Clone, Copy, Debug)]
struct Counted {
    first: f64,
    last: f64,
    start: Timestamp,
    at: Timestamp,
}

impl Counted {
    const fn new(now: Timestamp, value: f64) -> Self {
        Self { first: value, last: value, start: now, at: now }
    }

    /// Adds the next value; returns the growth and its start.
    fn add(&mut self, now: Timestamp, value: f64) -> (f64, Timestamp) {
        if value < self.last {
            *self = Self::new(now, value);
        }
        (self.last, self.at) = (value, now);
        (value - self.first, self.start)
    }
}

#[cfg(test)]
mod tests;
