//! The poller that the server starts: a process of its own, so that it costs the server no ack and no answer, whatever
//! it does.

use rustix::process::{Pid, Signal, kill_process};
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

/// Runs a poller of this folder until `end` changes, and starts it again whenever it ends. `url` is the server's, which
/// counts the starts.
pub async fn supervise(
    dir: PathBuf,
    url: String,
    starts: Arc<AtomicU64>,
    mut end: watch::Receiver<bool>,
) {
    let (mut pause, mut logged) = (PAUSE_MIN, None);
    loop {
        let begun = Instant::now();
        starts.fetch_add(1, Ordering::Relaxed);
        let ended = match start(&dir, &url) {
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
                "the poller of {} (`poll.metrics_dir`) does not run: {why}; it starts again after a pause of 1 s, which \
                 doubles up to 60 s; jobmeter_poll_process_starts_total counts the starts",
                dir.display()
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

fn start(dir: &Path, url: &str) -> io::Result<Child> {
    check_dir(dir)?;
    let program = std::env::current_exe()?.with_file_name("jobmeter-poller");
    let mut command = Command::new(&program);
    command.args(["poll", "--end-with", &std::process::id().to_string()]);
    // The names of a certificate are known to the settings of the poller only.
    if url.starts_with("http:") {
        command.args(["--server", url]);
    }
    command.arg("--").arg(dir).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
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
        log::warn!("the poller did not end within {} s and is killed", END_TIME_MAX.as_secs());
        child.kill().await.ok();
    }
    None
}
