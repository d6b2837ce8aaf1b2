//! The folders of the groups' spools.

use config::{PollerConfig, Spool};
use delivery::{DeliveryError, environment};
use std::io;
use std::path::{Path, PathBuf};

/// Groups of a poller.
const GROUPS_MAX: usize = 65_536;

/// The folder of the groups' spools, which it creates; `None` for none. It is the folder of the settings, or the one
/// called `part` in it, else the one called `name` in the state folder.
pub(crate) fn spool_folder(
    config: &PollerConfig,
    name: &str,
    part: Option<&str>,
) -> Result<Option<PathBuf>, DeliveryError> {
    let folder = match &config.spool.spool {
        Some(Spool::None) => return Ok(None),
        Some(Spool::Folder(folder)) => {
            Some(part.map_or_else(|| folder.clone(), |part| folder.join(part)))
        }
        None => {
            let is_root = rustix::process::geteuid().is_root();
            config::state_dir(is_root, &environment).map(|state| state.join(name))
        }
    };
    let Some(folder) = folder else {
        log::warn!(
            "no folder for a spool; samples are lost while the server is unavailable; set `spool`"
        );
        return Ok(None);
    };
    // Files of BMCs are in it, too: nobody else may prepare any.
    let made = kernel::trust::make_own_folder(&folder, 0o700);
    made.map_err(|why| DeliveryError::Spool { dir: folder.clone(), why })?;
    Ok(Some(folder))
}

/// The number of groups of an earlier start: their spools are sent, too.
pub(crate) fn earlier_groups(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let number = |entry: io::Result<std::fs::DirEntry>| {
        entry.ok()?.file_name().to_str()?.strip_prefix("group-")?.parse::<usize>().ok()
    };
    entries
        .filter_map(number)
        .filter(|number| *number < GROUPS_MAX)
        .map(|number| number + 1)
        .max()
        .unwrap_or(0)
}
