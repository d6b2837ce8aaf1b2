//! Users: number of login sessions, and optionally each session.
//!
//! Reads `/var/run/utmp` (any Linux; utmp(5)) or, on machines without it, `/run/systemd/sessions/ID`
//! (systemd), see [`kernel::utmp`]. These are logins, by ssh or at a console, not a job's processes. The
//! option `sessions` reports each one with the labels `user`, `terminal`, `host` and `process`, at most
//! [`REPORTED_MAX`]. It is off by default, because names of persons and hosts are personal data.
//!
//! On a machine that does not record logins the source is absent, instead of reporting 0. In a container, or
//! without systemd-logind, both paths may exist but be empty, as created by packages. A maintained `utmp`
//! contains at least the boot record (utmp(5), `BOOT_TIME`); systemd-logind writes `/run/systemd/seats/seat0`
//! at its start and never removes it.

use crate::reading::file::broken;
use crate::{Context, Every, Open, PartState, SampleWriter, Sink, Source, SourceError, SourceSpec};
use kernel::utmp::{Session, logind, utmp};
use kernel::{OpenFile, ReadError, Root};
use model::setting::{Kind, OptionSpec};
use model::{Metric, Unit};
use std::fmt::Write;
use std::time::Duration;

const UTMP: &str = "var/run/utmp";
const SESSIONS: &str = "run/systemd/sessions";
const SEAT: &str = "run/systemd/seats/seat0";
/// Maximum number of sessions reported individually, and of users counted separately.
const REPORTED_MAX: usize = 1000;

pub(super) static SPEC: SourceSpec = SourceSpec {
    name: "users",
    help: "Number of login sessions, and optionally each session.",
    reads: &["/var/run/utmp", "/run/systemd/sessions/*", "/run/systemd/seats/seat0"],
    cost: "about 2 µs on 2 virtual cores, Linux 6.18, with no session; grows with them",
    every: Every::AtLeast(Duration::from_secs(30)),
    metrics: &[&COUNT, &USERS, &SINCE],
    options: &[OptionSpec {
        name: "sessions",
        kind: Kind::Switch,
        default: "false",
        help: "Also each single session, with its user's name, terminal and host.",
    }],
    open,
    ..SourceSpec::DEFAULT
};

static COUNT: Metric = Metric::gauge("users_sessions", Unit::Count, "Login sessions.");
static USERS: Metric =
    Metric::gauge("users_logged_in", Unit::Count, "Distinct users with a session.");
static SINCE: Metric = Metric::gauge(
    "users_session_since_seconds",
    Unit::Seconds,
    "Login time of a session, in seconds since 1970.",
);

struct Users {
    files: Files,
    one_by_one: bool,
    buf: Vec<u8>,
    seen: Seen,
}

enum Files {
    Utmp(OpenFile),
    /// The buffer in which the path is written.
    Systemd(String),
}

/// Result of one reading.
#[derive(Default)]
struct Seen {
    sessions: usize,
    users: usize,
    /// The names, in reused memory.
    names: Vec<Vec<u8>>,
}

fn open(open: &Open<'_>) -> Result<Box<dyn Source>, SourceError> {
    let mut buf = Vec::new();
    let files = match open.root.open(UTMP) {
        Ok(file) => {
            file.read(&mut buf).map_err(|e| broken(UTMP, e))?;
            if buf.is_empty() { systemd(open.root)? } else { Files::Utmp(file) }
        }
        Err(ReadError::Absent { .. }) => systemd(open.root)?,
        Err(other) => return Err(other.into()),
    };
    let one_by_one = open.options.switch("sessions");
    Ok(Box::new(Users { files, one_by_one, buf, seen: Seen::default() }))
}

/// The sessions of systemd-logind, if it runs.
fn systemd(root: &Root) -> Result<Files, SourceError> {
    match root.stat(SEAT) {
        Ok(_) => Ok(Files::Systemd(String::new())),
        Err(ReadError::Absent { .. }) => {
            let why = "/var/run/utmp and /run/systemd/seats/seat0: logins are not recorded on this machine";
            Err(SourceError::absent(why))
        }
        Err(other) => Err(other.into()),
    }
}

impl Source for Users {
    fn collect(&mut self, cx: &Context<'_>, out: &mut Sink) -> Result<(), SourceError> {
        let Self { files, one_by_one, buf, seen } = self;
        (seen.sessions, seen.users) = (0, 0);
        let mut of = out.of_device();
        let mut add = |session: &Session<'_>| {
            seen.add(session);
            if *one_by_one && seen.sessions <= REPORTED_MAX {
                push(session, &mut of);
            }
        };
        match files {
            Files::Utmp(file) => {
                file.read(buf).map_err(|e| broken(UTMP, e))?;
                utmp(buf).for_each(|session| add(&session));
            }
            Files::Systemd(path) => sessions(cx.root, path, buf, &mut add)?,
        }
        of.gauge(&COUNT, &[], seen.sessions as f64);
        of.gauge(&USERS, &[], seen.users as f64);
        let state = match seen.sessions > REPORTED_MAX {
            true => PartState::Not(SourceError::broken(format!(
                "{} sessions; only {REPORTED_MAX} are reported individually",
                seen.sessions
            ))),
            false => PartState::Ok,
        };
        out.part("sessions", state);
        Ok(())
    }
}

/// Calls `add` for every session of systemd, except those that end meanwhile.
fn sessions(
    root: &Root,
    path: &mut String,
    buf: &mut Vec<u8>,
    add: &mut impl FnMut(&Session<'_>),
) -> Result<(), SourceError> {
    let mut failed = None;
    root.list(SESSIONS, |entry| {
        // `ID.ref` is a pipe that keeps the session open.
        if entry.name.contains('.') {
            return;
        }
        path.clear();
        // Writing into a `String` cannot fail.
        write!(path, "{SESSIONS}/{}", entry.name).unwrap_or_default();
        match root.read(path, buf) {
            Ok(()) => logind(buf).iter().for_each(&mut *add),
            Err(ReadError::Absent { .. }) => {}
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

impl Seen {
    fn add(&mut self, session: &Session<'_>) {
        self.sessions += 1;
        let known = self.names.get(..self.users).unwrap_or_default();
        if self.users >= REPORTED_MAX || known.iter().any(|name| name == session.user) {
            return;
        }
        if self.names.len() == self.users {
            self.names.push(Vec::new());
        }
        if let Some(name) = self.names.get_mut(self.users) {
            name.clear();
            name.extend_from_slice(session.user);
            self.users += 1;
        }
    }
}

fn push(session: &Session<'_>, of: &mut SampleWriter<'_>) {
    // A name that is not UTF-8 is not valid.
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or("?");
    let mut digits = [0; 10];
    let labels = [
        ("user", text(session.user)),
        ("terminal", text(session.terminal)),
        ("host", text(session.host)),
        ("process", decimal(session.process, &mut digits)),
    ];
    of.gauge(&SINCE, &labels, session.since as f64);
}

/// Formats a number in decimal digits without allocation.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &str {
    let mut start = digits.len();
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        (number, start) = (number / 10, place);
        if number == 0 {
            break;
        }
    }
    std::str::from_utf8(digits.get(start..).unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_digits() {
        for number in [0, 7, 10, 4711, u32::MAX] {
            assert_eq!(decimal(number, &mut [0; 10]), number.to_string());
        }
    }

    #[test]
    fn unmaintained_files_are_absent_not_0() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::recorded(dir.path()).unwrap();
        let write = |path: &str, bytes: &[u8]| {
            let file = dir.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, bytes).unwrap();
        };
        let options = crate::Options::defaults(SPEC.options);
        let state = || {
            let opened =
                (SPEC.open)(&Open { root: &root, options: &options, boot: model::Timestamp(0) });
            opened.err().map_or("ok", |error| error.state())
        };
        assert_eq!(state(), "absent");
        // Empty, as created by packages.
        std::fs::create_dir_all(dir.path().join(SESSIONS)).unwrap();
        std::fs::create_dir_all(dir.path().join("run/systemd/seats")).unwrap();
        assert_eq!(state(), "absent");
        write(UTMP, b"");
        assert_eq!(state(), "absent");
        write(SEAT, b"IS_SEAT0=1\n");
        assert_eq!(state(), "ok");
        std::fs::remove_file(dir.path().join(SEAT)).unwrap();
        write(UTMP, &[2; kernel::utmp::RECORD_BYTES]);
        assert_eq!(state(), "ok");
    }

    #[test]
    fn a_user_counts_once() {
        let mut seen = Seen::default();
        for user in ["ann", "bob", "ann"] {
            let user = user.as_bytes();
            seen.add(&Session { user, terminal: b"", host: b"", since: 0, process: 1 });
        }
        assert_eq!((seen.sessions, seen.users), (3, 2));
    }
}
