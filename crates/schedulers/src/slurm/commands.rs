//! Slurm's programs: each is run without a shell, with a clean environment and a limit to its time and its
//! output. A client of a controller that is down waits 25 s by itself.

use crate::SchedulerError;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// Where Slurm's programs are looked for, where no folder is given.
const PATH: &str = "/usr/bin:/usr/local/bin:/bin:/opt/slurm/bin:/usr/local/slurm/bin";
/// Most bytes of an error's words.
const WORDS_BYTES_MAX: u64 = 64 << 10;

/// Which programs, and how they are run.
#[derive(Clone, Debug)]
pub struct SlurmCommands {
    /// Folder of `squeue`, `sacct` and `scontrol`; `None`: where programs usually are.
    pub folder: Option<PathBuf>,
    /// Slurm's own configuration, for `SLURM_CONF`; `None`: where Slurm has it.
    pub conf: Option<PathBuf>,
}

/// Why a program gave nothing.
#[derive(Debug)]
pub(super) enum Failure {
    /// It does not know what it was asked for.
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
    /// What a program writes.
    pub(super) async fn run(
        &self,
        program: &str,
        arguments: &[&str],
        time_max: Duration,
        bytes_max: u64,
    ) -> Result<Vec<u8>, Failure> {
        let path = self.folder.as_ref().map_or(program.into(), |folder| folder.join(program));
        let whom = path.display().to_string();
        let mut command = Command::new(&path);
        command.args(arguments).env_clear().env("PATH", PATH).current_dir("/");
        // Text has its times in the zone of the program.
        command.env("TZ", "UTC").env("LC_ALL", "C");
        if let Some(conf) = &self.conf {
            command.env("SLURM_CONF", conf);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().map_err(|error| {
            Failure::Other(SchedulerError::Unreachable {
                whom: whom.clone(),
                what: error.to_string(),
            })
        })?;
        let (out, errors) = (child.stdout.take(), child.stderr.take());
        let reading = async { tokio::join!(read(out, bytes_max), read(errors, WORDS_BYTES_MAX)) };
        let running = tokio::time::timeout(time_max, async {
            let (out, words) = reading.await;
            // Who wrote too much may be waiting for somebody to read it.
            let is_short = matches!(&out, Ok((_, true)));
            let status = if is_short { Some(child.wait().await) } else { None };
            (out, words, status)
        });
        let Ok((out, words, status)) = running.await else {
            end(&mut child, program).await;
            return Err(Failure::Other(SchedulerError::Silent { whom, time: time_max }));
        };
        let broken = |what: String| SchedulerError::Unreachable { whom: whom.clone(), what };
        let (out, _) = out.map_err(|error| Failure::Other(broken(error.to_string())))?;
        let Some(status) = status else {
            end(&mut child, program).await;
            let what = format!("more than {bytes_max} bytes");
            return Err(Failure::Other(SchedulerError::Answer { whom, what }));
        };
        let status = status.map_err(|error| Failure::Other(broken(error.to_string())))?;
        if status.success() {
            return Ok(out);
        }
        let words = words.map(|(words, _)| words).unwrap_or_default();
        Err(refused(whom, &words, &status.to_string()))
    }
}

/// Ends a program that is not waited for any longer, and reaps it.
async fn end(child: &mut tokio::process::Child, program: &str) {
    if let Err(error) = child.kill().await {
        log::warn!("{program} could not be ended: {error}");
    }
}

/// All that comes, and whether that is all: what is beyond the limit is not read.
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

fn refused(whom: String, words: &[u8], status: &str) -> Failure {
    let words = String::from_utf8_lossy(words);
    let is_unknown = ["unrecognized option", "invalid option", "json", "serializer"]
        .iter()
        .any(|word| words.to_lowercase().contains(word));
    let what: String = words.trim().lines().last().unwrap_or(status).chars().take(300).collect();
    let what = if what.is_empty() { status.to_owned() } else { what };
    let error = SchedulerError::Refused { whom, what };
    if is_unknown { Failure::Unknown(error) } else { Failure::Other(error) }
}
