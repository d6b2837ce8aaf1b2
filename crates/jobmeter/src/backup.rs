//! `jobmeter backup`: copies a server's data folder while the server runs.

use crate::verify::data_dir;
use anyhow::Context as _;
use clap::ArgMatches;
use config::place::{DEMAND_FILE, JOBS_FILE, SAMPLES_DIR};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;

/// Copies, and says what.
pub(crate) fn backup(matches: &ArgMatches) -> anyhow::Result<()> {
    let data = data_dir(matches)?;
    let to = matches.get_one::<String>("to").map(PathBuf::from).context("--to")?;
    if let Err(error) = std::fs::create_dir(&to) {
        let what = match error.kind() {
            ErrorKind::AlreadyExists => format!(
                "{} is there already, and nothing is written over; name a folder that is not there with --to",
                to.display()
            ),
            _ => format!("making {}", to.display()),
        };
        return Err(anyhow::Error::from(error).context(what));
    }
    // Jobs first: one that the samples name and the registry does not know is told again by its nodes,
    // while one that ended after its last sample is not.
    jobs::backup(&data.join(JOBS_FILE), &to.join(JOBS_FILE))?;
    // A server of an earlier version has none.
    let demand = data.join(DEMAND_FILE);
    if demand.try_exists().with_context(|| demand.display().to_string())? {
        jobs::backup(&demand, &to.join(DEMAND_FILE))?;
    }
    let copied = store::backup(&data.join(SAMPLES_DIR), &to.join(SAMPLES_DIR))?;
    let store::Copied { blocks, samples, archived, segments, bytes } = copied;
    writeln!(
        io::stdout().lock(),
        "{}: {blocks} blocks of {samples} samples and {segments} log segments, {bytes} bytes; \
         start a server with it as --data to use it",
        to.display()
    )?;
    if archived > 0 {
        writeln!(
            io::stdout().lock(),
            "{archived} blocks stay in the archive, which is not copied: the copy names them there"
        )?;
    }
    Ok(())
}
