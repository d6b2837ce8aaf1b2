//! The programs that the server starts: a poller, and the inputs of other monitoring systems. Each is a process of its
//! own, so that it costs the server no ack and no answer, whatever it does.

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

/// Pause before the restart of a poller that ended; it doubles.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A poller that ran for this time starts again after the shortest pause.
const STEADY: Duration = Duration::from_secs(60);
/// Time for it to end.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// A part of `jobmeter-poller` that the server runs.
#[derive(Clone, Debug)]
pub enum Part {
    /// Polls the devices of this folder of descriptions.
    Poll(PathBuf),
    /// Receives the messages of Colmet's nodes.
    Colmet(Vec<OsString>),
}

impl Part {
    /// The settings that want it, for messages.
    fn setting(&self) -> String {
        match self {
            Self::Poll(dir) => format!("the poller of {} (`poll.metrics_dir`)", dir.display()),
            Self::Colmet(_) => "the input `colmet` (`inputs.colmet.listen`)".to_owned(),
        }
    }

    /// Its arguments. The names of a certificate are known to the settings of the poller only.
    fn arguments(&self, url: &str) -> Vec<OsString> {
        let command = if matches!(self, Self::Poll(_)) { "poll" } else { "colmet" };
        let pid = std::process::id().to_string();
        let mut all: Vec<OsString> = vec![command.into(), "--end-with".into(), pid.into()];
        if url.starts_with("http:") {
            all.extend(["--server".into(), url.into()]);
        }
        match self {
            Self::Poll(dir) => all.extend(["--".into(), dir.into()]),
            Self::Colmet(flags) => all.extend(flags.iter().cloned()),
        }
        all
    }
}

/// Runs a part until `end` changes, and starts it again whenever it ends. `url` is the server's, which counts the starts.
pub async fn supervise(
    part: Part,
    url: String,
    starts: Arc<AtomicU64>,
    mut end: watch::Receiver<bool>,
) {
    let (mut pause, mut logged) = (PAUSE_MIN, None);
    loop {
        let begun = Instant::now();
        starts.fetch_add(1, Ordering::Relaxed);
        let ended = match start(&part, &url) {
            Ok(child) => match until(child, &mut end).await {
                Some(ended) => ended.map(|status| status.to_string()),
                None => return,
            },
            Err(error) => Err(error),
        };
        if begun.elapsed() >= STEADY {
            (pause, logged) = (PAUSE_MIN, None);
        }
        let why = ended.unwrap_or_else(|error| error.to_string());
        // A poller that cannot start ends again and again, for one reason.
        if logged.as_ref() != Some(&why) {
            log::error!(
                "{} does not run: {why}; it starts again after a pause of 1 s, which doubles up to 60 s; \
                 jobmeter_poll_process_starts_total counts the starts",
                part.setting()
            );
            logged = Some(why);
        }
        tokio::select! {
            _ = end.changed() => return,
            () = sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Checks that a folder of descriptions exists.
///
/// # Errors
/// It does not, or cannot be read.
pub(crate) fn check_dir(dir: &Path) -> io::Result<()> {
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("cannot read the folder {}: {error}", dir.display()))
    };
    std::fs::read_dir(dir).map(drop).map_err(named)
}

fn start(part: &Part, url: &str) -> io::Result<Child> {
    if let Part::Poll(dir) = part {
        check_dir(dir)?;
    }
    let program = std::env::current_exe()?.with_file_name("jobmeter-poller");
    let mut command = Command::new(&program);
    command.args(part.arguments(url));
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))
}

/// Waits for the end of the poller. `None`: the server ends, and has ended it.
async fn until(
    mut child: Child,
    end: &mut watch::Receiver<bool>,
) -> Option<io::Result<ExitStatus>> {
    tokio::select! {
        status = child.wait() => return Some(status),
        _ = end.changed() => {}
    }
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended meanwhile.
        kill_process(pid, Signal::TERM).ok();
    }
    if timeout(END_TIME_MAX, child.wait()).await.is_err() {
        let seconds = END_TIME_MAX.as_secs();
        log::warn!("a program that the server runs did not end within {seconds} s and is killed");
        child.kill().await.ok();
    }
    None
}
