//! `jobmeter colmet-collector`: the server and the listener for Colmet's nodes, with the options of Colmet's collectors and a data
//! folder of their own.
//!
//! - `options`: the command line. `settings`: what it means for the server.

pub(crate) mod options;
mod settings;

use crate::client::plain::note;
use crate::measure::exec::Steps;
use crate::node::colmet_node::verbosity;
use anyhow::Context;
use clap::Parser as _;
use config::{ConfigFile, ConfigInputs};
use options::Options;
use std::ffi::OsString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The word of the command.
pub(crate) const COMMAND: &str = "colmet-collector";
/// The settings of the server, in the data folder.
const FILE: &str = "server.toml";
/// The folder of the listener's spool, in the data folder.
const SPOOL: &str = "spool";
/// The beginning of the variables of jobmeter's programs.
const VARIABLES: &str = "JOBMETER_";

/// Receives from Colmet's nodes and writes what Colmet's collector writes, with the options of its colmet-collector
///
/// `jobmeter colmet-collector --help` lists them.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter colmet-collector --zeromq-bind-uri tcp://10.1.0.1:5556 --hosts 'dahu-[1-32]' --networks 10.1.0.0/16 --hdf5-filepath /var/lib/colmet/hdf5/data"
)]
pub(crate) struct ColmetCollectorArgs {
    /// The options of colmet-collector
    #[arg(value_name = "OPTION", num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ColmetCollectorArgs {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        run(&self.arguments)
    }
}

/// Writes the settings, and becomes the server.
pub(crate) fn run(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let name = OsString::from("jobmeter colmet-collector");
    let words = verbosity::with_levels(words);
    let options = match Options::try_parse_from([name].iter().chain(&words)) {
        Ok(options) => options,
        Err(error) => return Ok(crate::rejected(error)),
    };
    let data = data_folder(&options)?;
    let text = settings::text(&options, &data)?;
    options.not_needed().iter().for_each(|line| drop(note(line)));
    let server = crate::operate::up::beside("jobmeter-server")?;
    config::paths::outside_of_stores(&data).map_err(anyhow::Error::msg)?;
    kernel::trust::check_way(&data).context("the data folder")?;
    new_folder(&data, 0o700)?;
    // As Colmet does; the folder of the files is open to whom the files are open.
    if let Some(dir) = options.hdf5_filepath.as_deref().and_then(Path::parent) {
        new_folder(dir, 0o755)?;
    }
    let file = write(&data, &text)?;
    check(&file)?;
    let mut command = Steps::default()
        .command(server.as_os_str(), &["--config".into(), file.into_os_string()])?;
    // The options alone state what this server does. Its listener has this spool, and not that of another server here.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with(VARIABLES) {
            command.env_remove(name);
        }
    }
    command.env("JOBMETER_SPOOL", data.join(SPOOL)).env("JOBMETER_POLLER_FILE", "/dev/null");
    Err(command.exec()).with_context(|| server.display().to_string())
}

/// The data folder: not that of a server of this machine.
fn data_folder(options: &Options) -> anyhow::Result<PathBuf> {
    if let Some(dir) = &options.own.data {
        return std::path::absolute(dir).with_context(|| dir.display().to_string());
    }
    let environment = |name: &str| std::env::var(name).ok();
    let root = rustix::process::geteuid().is_root();
    let state = config::state_dir(root, &environment)
        .context("no folder for the data; name one with --data")?;
    Ok(state.with_file_name("jobmeter-colmet"))
}

fn new_folder(dir: &Path, mode: u32) -> anyhow::Result<()> {
    if dir.as_os_str().is_empty() {
        return Ok(());
    }
    let created = DirBuilder::new().recursive(true).mode(mode).create(dir);
    created.with_context(|| format!("cannot create the folder {}", dir.display()))
}

/// Replaces the file of the settings as a whole: a server that starts or reloads reads the old or the new one.
fn write(data: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let (file, new) = (data.join(FILE), data.join(format!("{FILE}.new")));
    let written = || {
        // What an earlier start left; another mode would remain.
        std::fs::remove_file(&new).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
        let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        out.write_all(text.as_bytes())?;
        std::fs::rename(&new, &file)
    };
    written().with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Reports what the server would reject, before it starts.
fn check(file: &Path) -> anyhow::Result<()> {
    let given = ConfigInputs {
        file: ConfigFile::Given(file.to_owned()),
        environment: &|_| None,
        flags: Vec::new(),
    };
    config::load_server(&given, &outputs::kinds())
        .map(drop)
        .context("an option has a value that the server's settings cannot have")
}
