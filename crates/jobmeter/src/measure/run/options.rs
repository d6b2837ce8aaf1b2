//! The options of `jobmeter run`.

use super::job_cgroup::Limits;
use crate::output::options::JsonOption;
use anyhow::{Context as _, bail};
use clap::ValueHint;
use std::ffi::OsString;

/// Minimum memory limit: a smaller one kills every command at its start.
const MEMORY_MIN: u64 = 1 << 20;
/// Maximum length of a job name in bytes: the server's limit.
const NAME_BYTES_MAX: usize = 200;

/// Runs a command as a job and reports its resource use
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter run --name demo -- make -j2")]
pub(crate) struct RunArgs {
    /// Name of the job [default: the command's name]
    #[arg(long, value_name = "NAME")]
    pub(super) name: Option<String>,
    /// Processors that the command may use, such as 0-3,8
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Memory limit, such as 2G or 512MiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Name of this node in every sample [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(super) device: Option<String>,
    #[command(flatten)]
    pub(super) format: JsonOption,
    // Arguments before the command belong to `run`: an unknown option there is not a command.
    /// The command and its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

/// Rejects an invalid name before the command starts.
pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    if name.len() > NAME_BYTES_MAX {
        bail!("--name: it has {} bytes; {NAME_BYTES_MAX} at most", name.len());
    }
    if let Some(bad) = name.chars().find(|c| model::is_unprintable(*c)) {
        bail!("--name: it has the unprintable character {bad:?}; write one line of printable ones");
    }
    Ok(())
}

impl RunArgs {
    /// The limits of the options.
    pub(super) fn limits(&self) -> anyhow::Result<Limits> {
        let bytes = |text: &String| {
            let bytes = config::parse_bytes(text)
                .with_context(|| format!("--memory {text}: {}", why_no_size(text)))?;
            if bytes < MEMORY_MIN {
                bail!("--memory {text}: no program runs in {bytes} bytes; write 512MiB or 2GiB");
            }
            Ok(bytes)
        };
        Ok(Limits {
            cpus: self.cpus.clone(),
            memory_bytes: self.memory.as_ref().map(bytes).transpose()?,
        })
    }
}

/// Why a text is not a valid size.
fn why_no_size(text: &str) -> &'static str {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    // The unit is known, so the number is too large.
    let is_size = text != unit && config::parse_bytes(&format!("1{unit}")).is_some();
    match is_size {
        true => "it is more than 16 EiB, which no machine can address; write 512MiB or 2GiB",
        false => "it is no size; write 512MiB or 2GiB",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes_are_checked_before_the_command_starts() {
        assert!(check_name(&"x".repeat(NAME_BYTES_MAX)).is_ok());
        let error = check_name(&"é".repeat(101)).unwrap_err().to_string();
        assert_eq!(error, "--name: it has 202 bytes; 200 at most");
        let error = check_name("a\nb").unwrap_err().to_string();
        assert!(error.starts_with("--name: it has the unprintable character '\\n'"), "{error}");
        assert!(why_no_size("99999999999G").starts_with("it is more than 16 EiB"));
        assert!(
            why_no_size("12x").starts_with("it is no size")
                && why_no_size("G").starts_with("it is no")
        );
    }
}
