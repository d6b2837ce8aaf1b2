//! Runs Slurm's programs without a shell, with a clean environment and limits on time and output.
//! A client waits 25 s by itself if the controller is down.

use crate::SchedulerError;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Folders searched for Slurm's programs if none is configured.
const PATH: &str = "/usr/bin:/usr/local/bin:/bin:/opt/slurm/bin:/usr/local/slurm/bin";
/// Most bytes of an error message.
const WORDS_BYTES_MAX: u64 = 64 << 10;

/// Location of the programs and their configuration.
#[derive(Clone, Debug)]
pub struct SlurmCommands {
    /// Folder of `squeue`, `sacct` and `scontrol`; `None`: the usual folders.
    pub folder: Option<PathBuf>,
    /// Slurm's own configuration, for `SLURM_CONF`; `None`: Slurm's default.
    pub conf: Option<PathBuf>,
}

/// Why a program returned nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// It does not support an argument.
    Unknown(SchedulerError),
    Other(SchedulerError),
}

impl Failure {
    pub(super) fn into_error(self) -> SchedulerError {
        match self {
            Self::Unknown(error) | Self::Other(error) => error,
        }
    }
}

impl SlurmCommands {
    /// Runs a program and returns its output.
    pub(super) async fn run(
        &self,
        program: &str,
        arguments: &[&str],
        time_max: Duration,
        bytes_max: u64,
    ) -> Result<Vec<u8>, Failure> {
        let path = self.folder.as_ref().map_or(program.into(), |folder| folder.join(program));
        let target = path.display().to_string();
        let mut command = Command::new(&path);
        command.args(arguments).env_clear().env("PATH", PATH).current_dir("/");
        // Text output uses the program's time zone.
        command.env("TZ", "UTC").env("LC_ALL", "C");
        if let Some(conf) = &self.conf {
            command.env("SLURM_CONF", conf);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(|error| {
            Failure::Other(SchedulerError::Unreachable {
                target: target.clone(),
                what: error.to_string(),
            })
        })?;
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        let reading = async { tokio::join!(read(out, bytes_max), read(errors, WORDS_BYTES_MAX)) };
        let running = tokio::time::timeout(time_max, async {
            let (out, words) = reading.await;
            // A program beyond the output limit may block on its pipe; do not wait for its end.
            let is_short = matches!(&out, Ok((_, true)));
            let status = if is_short { Some(child.wait().await) } else { None };
            (out, words, status)
        });
        let Ok((out, words, status)) = running.await else {
            end(&mut child, program).await;
            return Err(Failure::Other(SchedulerError::Silent { target, time: time_max }));
        };
        let broken = |what: String| SchedulerError::Unreachable { target: target.clone(), what };
        let (out, _) = out.map_err(|error| Failure::Other(broken(error.to_string())))?;
        let Some(status) = status else {
            end(&mut child, program).await;
            let what = format!("more than {bytes_max} bytes");
            return Err(Failure::Other(SchedulerError::Answer { target, what }));
        };
        let status = status.map_err(|error| Failure::Other(broken(error.to_string())))?;
        if status.success() {
            return Ok(out);
        }
        let words = words.map(|(words, _)| words).unwrap_or_default();
        Err(rejected(target, &words, &status.to_string()))
    }
}

/// Kills and reaps a program.
async fn end(child: &mut tokio::process::Child, program: &str) {
    if let Err(error) = child.kill().await {
        log::warn!("{program} cannot be killed: {error}");
    }
}

/// Reads the stream up to the limit. Also returns whether that is all.
async fn read(
    stream: Option<impl AsyncRead + Unpin>,
    bytes_max: u64,
) -> std::io::Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    let Some(stream) = stream else { return Ok((bytes, true)) };
    stream.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).await?;
    let is_short = bytes.len() as u64 <= bytes_max;
    Ok((bytes, is_short))
}

fn rejected(target: String, words: &[u8], status: &str) -> Failure {
    let words = String::from_utf8_lossy(words);
    let is_unknown = ["unrecognized option", "invalid option", "json", "serializer"]
        .iter()
        .any(|word| words.to_lowercase().contains(word));
    let what: String = words.trim().lines().last().unwrap_or(status).chars().take(300).collect();
    let what = if what.is_empty() { status.to_owned() } else { what };
    let error = SchedulerError::Rejected { target, what };
    if is_unknown { Failure::Unknown(error) } else { Failure::Other(error) }
}
