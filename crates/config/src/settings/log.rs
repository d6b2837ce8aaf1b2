//! The programs' log: to standard error, or to a file with limited size.
//!
//! A line is `2026-01-06T13:35:00.250112+00:00 warn agent::sender: what happened`. A repeated message is
//! written once; then its count is written once a minute.
//! Two messages are the same if they differ only in digits.

mod faults;
mod file;

use crate::settings::setting::{Kind, settings};
use crate::settings::text::Bytes;
use faults::Faults;
use file::RotatingFile;
use log::{Level, LevelFilter, Log, Metadata, Record};
use model::{Timestamp, is_unprintable};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

settings! {
    /// The log of a program.
    LogConfig, LOG, "Log" {
        /// Level of detail: `error`, `warn`, `info`, `debug` (every sample) or `trace`; each `-v` adds one step.
        "log.level" level: String = "warn", Kind::Choice(LEVELS);
        /// File to write to.
        "log.file" file: Option<PathBuf> = "" or "standard error", Kind::Text("FILE");
        /// Largest file; then the program renames it to `FILE.1`, and so on.
        "log.bytes_max" bytes_max: Bytes = "16MiB", Kind::Bytes { min: 4096, max: 1 << 40 };
        /// How many earlier files to keep.
        "log.backups" backups: u32 = "3", Kind::Number { min: 0, max: 1000 };
    }
}

/// The levels, from least to most detailed.
pub(crate) const LEVELS: &[&str] = &["error", "warn", "info", "debug", "trace"];

/// The settings of the log, for every program's list.
pub(crate) const fn log_settings() -> &'static [crate::Setting] {
    LOG
}

/// The level `steps` above another.
pub(crate) fn level_above(level: &str, steps: usize) -> &'static str {
    let at = LEVELS.iter().position(|known| *known == level).unwrap_or(1);
    LEVELS.get(at.saturating_add(steps)).or(LEVELS.last()).copied().unwrap_or("trace")
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Destination of lines.
enum Sink {
    Stderr,
    File(RotatingFile),
}

struct State {
    sink: Sink,
    faults: Faults,
    line: String,
}

/// The logger of the process.
struct Logger {
    state: Mutex<State>,
    clock: fn() -> Timestamp,
}

/// Starts or changes logging: at startup, and on SIGHUP. Each call reopens the file, for programs that rotate
/// it. `clock` gives the time of the lines.
///
/// # Errors
/// The file cannot be opened; logging continues as before.
pub fn set(config: &LogConfig, clock: fn() -> Timestamp) -> io::Result<()> {
    let sink = match &config.file {
        Some(path) => {
            Sink::File(RotatingFile::open(path.clone(), config.bytes_max.0, config.backups)?)
        }
        None => Sink::Stderr,
    };
    let mut new = Some(sink);
    let logger = LOGGER.get_or_init(|| {
        let sink = new.take().unwrap_or(Sink::Stderr);
        let state = State { sink, faults: Faults::default(), line: String::new() };
        Logger { state: Mutex::new(state), clock }
    });
    if let Some(sink) = new {
        logger.state().sink = sink;
    }
    // Another logger exists only if the program installed one before; it then keeps its own.
    log::set_logger(logger).ok();
    log::set_max_level(config.level.parse().unwrap_or(LevelFilter::Warn));
    Ok(())
}

/// Checks whether the log file can be opened, without creating it.
///
/// # Errors
/// As for [`set`].
pub fn check(config: &LogConfig) -> io::Result<()> {
    let Some(path) = &config.file else { return Ok(()) };
    file::check(path)
}

/// Writes how often messages of the last minute repeated; each program calls it regularly.
pub fn report_repeated() {
    let Some(logger) = LOGGER.get() else { return };
    let now = (logger.clock)();
    let State { sink, faults, line } = &mut *logger.state();
    faults.report_repeated(now, |fault| {
        line.clear();
        begin(line, now, fault.level, &fault.target);
        let FaultCount { text, again } = fault.count();
        // Writing to a string cannot fail.
        writeln!(line, "{text} (again, {again} times)").ok();
        sink.write(line);
    });
}

use faults::FaultCount;

impl Logger {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // Libraries log a lot: below warnings only at the most detailed level, and never their own traces. The
        // HTTP client's traces are the bytes of each request, with its token.
        let own_targets = [
            "agent",
            "delivery",
            "config",
            "server",
            "store",
            "jobs",
            "query",
            "api",
            "sql",
            "jobmeter",
            "pollers",
            "control",
            "schedulers",
        ];
        let target = metadata.target().split("::").next().unwrap_or_default();
        let is_own = own_targets.iter().any(|name| target.starts_with(name))
            || matches!(target, "sources" | "cgroups" | "kernel" | "wire");
        let of_library = match log::max_level() {
            LevelFilter::Trace => Level::Debug,
            _ => Level::Warn,
        };
        metadata.level() <= log::max_level() && (is_own || metadata.level() <= of_library)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let now = (self.clock)();
        let State { sink, faults, line } = &mut *self.state();
        line.clear();
        begin(line, now, record.level(), record.target());
        let words = line.len();
        // Writing to a string cannot fail.
        write!(line, "{}", record.args()).ok();
        if record.level() <= Level::Warn {
            let text = line.get(words..).unwrap_or_default();
            if !faults.is_new(now, record.level(), record.target(), text) {
                return;
            }
        }
        one_line(line);
        line.push('\n');
        sink.write(line);
    }

    fn flush(&self) {}
}

fn begin(line: &mut String, now: Timestamp, level: Level, target: &str) {
    let level = match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    };
    // Writing to a string cannot fail.
    write!(line, "{now} {level} {target}: ").ok();
}

/// Escapes line ends and terminal controls of external text, which stay visible and harmless.
fn one_line(line: &mut String) {
    if line.contains(is_unprintable) {
        let safe = line.chars().flat_map(|c| {
            let escaped = is_unprintable(c).then(|| c.escape_default());
            let plain = escaped.is_none().then_some(c);
            escaped.into_iter().flatten().chain(plain)
        });
        *line = safe.collect();
    }
}

impl Sink {
    /// If the log cannot be written, there is no place to report it; the program continues.
    fn write(&mut self, line: &str) {
        match self {
            Self::Stderr => io::stderr().lock().write_all(line.as_bytes()).ok(),
            Self::File(file) => file.write(line.as_bytes()).ok(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_step_up() {
        assert_eq!(level_above("warn", 0), "warn");
        assert_eq!(level_above("warn", 1), "info");
        assert_eq!(level_above("warn", 3), "trace");
        assert_eq!(level_above("info", 9), "trace");
    }

    #[test]
    fn control_characters_are_escaped() {
        let mut line = "a\nb\x1b[31m\u{9b}\u{202e}é\u{200b}".to_owned();
        one_line(&mut line);
        assert_eq!(line, "a\\nb\\u{1b}[31m\\u{9b}\\u{202e}é\\u{200b}");
    }

    #[test]
    fn no_bytes_of_a_request_are_logged_at_any_level() {
        let logger = Logger {
            state: Mutex::new(State {
                sink: Sink::Stderr,
                faults: Faults::default(),
                line: String::new(),
            }),
            clock: || Timestamp(0),
        };
        let is_logged = |target: &str, level| {
            logger.enabled(&Metadata::builder().target(target).level(level).build())
        };
        // The level of the process is shared with the other tests of this program, which set lower ones.
        let _alone = LEVEL.lock().unwrap();
        log::set_max_level(LevelFilter::Trace);
        for library in ["ureq_proto::util", "ureq::run", "rustls::client", "hyper::proto"] {
            assert!(!is_logged(library, Level::Trace), "{library}");
            assert!(is_logged(library, Level::Debug), "{library}");
        }
        assert!(is_logged("delivery::sending", Level::Trace));
    }

    /// The level of the log is one for the whole process.
    static LEVEL: Mutex<()> = Mutex::new(());

    #[test]
    fn written_once_then_counted_into_the_file() {
        let _alone = LEVEL.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        let config = LogConfig {
            level: "info".to_owned(),
            file: Some(file.clone()),
            bytes_max: Bytes(1 << 20),
            backups: 1,
        };
        set(&config, || Timestamp(1_767_706_500_000_000)).unwrap();
        for pid in 0..3 {
            log::warn!(target: "agent::test", "process {pid} cannot be read");
        }
        log::info!(target: "agent::test", "logged");
        log::debug!(target: "agent::test", "not logged");
        log::info!(target: "rustls", "not own_targets");
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            text,
            "2026-01-06T13:35:00+00:00 warn agent::test: process 0 cannot be read\n\
             2026-01-06T13:35:00+00:00 info agent::test: logged\n"
        );
    }
}
