//! Default paths.

use crate::settings::small_file::{FILE_BYTES_MAX, as_text, read_small};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Default file of an agent's settings.
pub const AGENT_FILE: &str = "/etc/jobmeter/agent.toml";
/// Default file of a server's settings.
pub const SERVER_FILE: &str = "/etc/jobmeter/server.toml";

/// Folder of the store in a server's data folder.
pub const SAMPLES_DIR: &str = "samples";
/// The registry of jobs, in the same folder.
pub const JOBS_FILE: &str = "jobs.sqlite";
/// On-demand requests to agents, in the same folder.
pub const DEMAND_FILE: &str = "demand.sqlite";

/// Which batches were acknowledged, beside a database with the samples, in the same folder.
pub const ACKNOWLEDGED_FILE: &str = "acknowledged.json";
/// Audit of writes and of reads of other users' data, in the same folder.
pub const AUDIT_FILE: &str = "audit.log";
/// Folder with a folder for each output.
pub const OUTPUTS_DIR: &str = "outputs";
/// The audit of ordinary users, in the same folder.
pub const AUDIT_OF_USERS_FILE: &str = "audit-users.log";

/// Default file of a poller's settings.
pub const POLLER_FILE: &str = "/etc/jobmeter/poller.toml";

/// Default file of the settings of the command `jobmeter`.
pub const CLIENT_FILE: &str = "/etc/jobmeter/client.toml";

/// Bundles of the certificates of authorities in Linux distributions.
const SYSTEM_AUTHORITIES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The file with the certificates of authorities: the setting `ca`, or else the system's bundle.
///
/// # Errors
/// The setting is absent, and the system has no bundle. The text names the searched files.
pub fn authorities(ca: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(ca) = ca {
        return Ok(ca.to_owned());
    }
    let exists = |path: &&&str| Path::new(path).try_exists().unwrap_or(false);
    SYSTEM_AUTHORITIES.iter().find(exists).map(PathBuf::from).ok_or_else(|| {
        let searched = SYSTEM_AUTHORITIES.join(", ");
        format!("no CA certificates to verify the server: none of {searched} exists; set `ca`")
    })
}

/// The state folder of a program: `/var/lib/jobmeter` as root, else `jobmeter` in the XDG state
/// folder (`$XDG_STATE_HOME`, `~/.local/state`). `None` for a user without a home.
pub fn state_dir(root: bool, environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from(ROOT_STATE));
    }
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("jobmeter"))
}

/// The state folder of root's programs.
const ROOT_STATE: &str = "/var/lib/jobmeter";
/// Folder of the server's store in the state folder, beside the agent's spool.
pub const STORE_DIR: &str = "store";
/// The store of servers with a systemd unit from before that layout.
const EARLIER_STORE: &str = "/var/lib/jobmeter-server";

/// Most entries beside a missing data folder that are searched for a store.
const BESIDE_MAX: usize = 10_000;

/// Whether this folder contains a server's store.
fn has_store(dir: &Path) -> bool {
    dir.join(SAMPLES_DIR).is_dir() || dir.join(JOBS_FILE).is_file()
}

/// What a data folder has of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplesIn {
    /// Files of the embedded store.
    pub folder: bool,
    /// The record of batches that were acknowledged and are in a database. A folder that had both stores has both.
    pub database: bool,
}

/// Finds out where the samples of a data folder are. A folder with neither counts as that of an embedded store.
///
/// # Errors
/// The folder cannot be read.
pub fn samples_in(data: &Path) -> std::io::Result<SamplesIn> {
    let database = data.join(ACKNOWLEDGED_FILE).symlink_metadata().map(|_| true);
    let database = database.or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(false),
        _ => Err(error),
    })?;
    Ok(SamplesIn { folder: !database || data.join(SAMPLES_DIR).try_exists()?, database })
}

/// The folder with the store of `data`: a server's `--data`, or a state folder that contains one. `None`:
/// there is no store.
pub fn store_in(data: &Path) -> Option<PathBuf> {
    [data.to_owned(), data.join(STORE_DIR)].into_iter().find(|dir| has_store(dir))
}

/// Rejects a folder inside a store: the server of that store could delete its files, and a second store there
/// would seem empty.
///
/// # Errors
/// A folder above it has a store's files.
pub fn outside_of_stores(dir: &Path) -> Result<(), String> {
    let Ok(full) = std::path::absolute(dir) else { return Ok(()) };
    // Links lead into stores, too.
    let above = match full.canonicalize() {
        Ok(full) => full.parent().map(Path::to_owned),
        Err(_) => full.ancestors().skip(1).find_map(|above| above.canonicalize().ok()),
    };
    let has_samples =
        |dir: &Path| dir.join(SAMPLES_DIR).is_dir() || dir.join(ACKNOWLEDGED_FILE).is_file();
    let is_store = |dir: &&Path| has_samples(dir) && dir.join(JOBS_FILE).is_file();
    match above.as_deref().and_then(|above| above.ancestors().find(is_store)) {
        None => Ok(()),
        Some(store) => Err(format!(
            "{} lies inside the store {}; name that store, or a folder outside of it",
            dir.display(),
            store.display()
        )),
    }
}

/// The data folder of a server: `--data`, or `store` in the state folder. If `--data` is a state folder with
/// a store, that store is used, so that `up` and a server share it.
///
/// # Errors
/// No folder is set or known; or the server would create an empty store inside an existing one, or beside one: in the
/// state folder, or in a folder beside one with a store, unless that folder exists.
pub fn store_dir(
    data: Option<&Path>,
    root: bool,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<PathBuf, String> {
    let wanted = match data {
        Some(data) => data.to_owned(),
        None => state_dir(root, environment)
            .ok_or("no folder for the data; set --data")?
            .join(STORE_DIR),
    };
    if let Some(store) = store_in(&wanted) {
        outside_of_stores(&store)?;
        return Ok(store);
    }
    let state = wanted.parent().filter(|_| wanted.ends_with(STORE_DIR));
    let earlier =
        state.filter(|state| *state == Path::new(ROOT_STATE)).map(|_| Path::new(EARLIER_STORE));
    let other = [state, earlier].into_iter().flatten().find(|dir| has_store(dir));
    match other.map(Path::to_owned) {
        None => match data.and_then(store_beside) {
            None => outside_of_stores(&wanted).map(|()| wanted),
            Some(other) => Err(format!(
                "{dir} does not exist, and beside it {} contains a store; if {dir} is not mistyped, and a new store is \
                 to begin there, create it first: mkdir {dir}",
                other.display(),
                dir = wanted.display(),
            )),
        },
        Some(other) => Err(format!(
            "{} contains a store, and a new one in {} would hide it; move the old store there, or use --data {}",
            other.display(),
            wanted.display(),
            other.display()
        )),
    }
}

/// A folder with a store beside a folder that does not exist, whose name may be mistyped.
fn store_beside(data: &Path) -> Option<PathBuf> {
    if data.try_exists().unwrap_or(true) {
        return None;
    }
    let parent =
        data.parent().map(|dir| if dir.as_os_str().is_empty() { Path::new(".") } else { dir });
    let beside = std::fs::read_dir(parent?).ok()?.take(BESIDE_MAX);
    let mut stores: Vec<PathBuf> = beside
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|dir| store_in(dir).is_some())
        .collect();
    stores.sort();
    stores.into_iter().next()
}

/// Folder of the runtime file of root's server, readable by everyone.
const ROOT_FOLDER: &str = "/run/jobmeter";
/// Parent of the folder that systemd creates for the unit `jobmeter-server.service`.
const RUN: &str = "/run";
/// Name of that folder. Its owner is the server's user.
const UNIT_FOLDER: &str = "jobmeter-server";
/// Name of the runtime file.
const SERVER_NAME: &str = "server";

/// The file in which a server of this user records its address: in the folder that systemd created for its unit
/// (`$RUNTIME_DIRECTORY`), or `/run/jobmeter/server` as root. For other users, the first folder that they own:
/// `jobmeter` in `$XDG_RUNTIME_DIR`, `jobmeter` in `/run/user/UID`, or `/tmp/jobmeter-UID`, which the writer creates.
/// These folders are local to the machine; a home may be shared by many.
pub fn server_file(root: bool, environment: &dyn Fn(&str) -> Option<String>) -> PathBuf {
    let (below, owner) = (Path::new("/"), own_number());
    let of_unit = environment("RUNTIME_DIRECTORY").map(PathBuf::from);
    let of_user = || match root {
        true => PathBuf::from(ROOT_FOLDER),
        false => session_folders(below, owner, environment)
            .next()
            .unwrap_or_else(|| shared_folder(below, owner)),
    };
    let folder = of_unit.filter(|dir| dir.is_absolute() && is_private(dir, owner));
    folder.unwrap_or_else(of_user).join(SERVER_NAME)
}

/// The address of the server on this machine: from the caller's own runtime file, else from root's, else from
/// that of the systemd unit.
pub fn server_here(
    root: bool,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<crate::ServerUrl> {
    server_record(root, environment).map(|(_, url)| url)
}

/// The same with the path of the runtime file. The file of a killed server remains.
pub fn server_record(
    root: bool,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<(PathBuf, crate::ServerUrl)> {
    let (below, owner) = (Path::new("/"), own_number());
    let own = || {
        let folders = session_folders(below, owner, environment);
        recorded_in(folders.chain([shared_folder(below, owner)]), owner)
    };
    let of_root = || recorded_at(Path::new(ROOT_FOLDER).join(SERVER_NAME));
    let of_unit = || {
        unit_owner()?;
        recorded_at(Path::new(RUN).join(UNIT_FOLDER).join(SERVER_NAME))
    };
    if root { of_root().or_else(of_unit) } else { own().or_else(of_root).or_else(of_unit) }
}

/// The user of the server that the systemd unit runs.
pub fn unit_owner() -> Option<u32> {
    folder_owner(Path::new(RUN), 0)
}

/// Owner of the unit's folder, if only root can have created it: root owns `run`, and others cannot write to it.
fn folder_owner(run: &Path, root: u32) -> Option<u32> {
    let about = std::fs::symlink_metadata(run.join(UNIT_FOLDER)).ok()?;
    (about.is_dir() && is_private(run, root)).then(|| about.uid())
}

/// Whether a folder is private: not a link, owned by the user, and not writable by others. Then only the user
/// and root can have created files in it.
pub fn is_private(folder: &Path, owner: u32) -> bool {
    let about = std::fs::symlink_metadata(folder);
    about.is_ok_and(|about| about.is_dir() && about.uid() == owner && about.mode() & 0o022 == 0)
}

fn own_number() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The folders for the runtime file of a user with a session, the one to write to first.
fn session_folders(
    below: &Path,
    owner: u32,
    environment: &dyn Fn(&str) -> Option<String>,
) -> impl Iterator<Item = PathBuf> {
    let named = environment("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    // After `su`, the variable is missing or belongs to the previous user.
    let of_session = below.join(format!("run/user/{owner}"));
    let folders = named.into_iter().chain([of_session]);
    folders.filter(move |dir| is_private(dir, owner)).map(|dir| dir.join("jobmeter"))
}

/// The folder for the runtime file of a user without a session.
fn shared_folder(below: &Path, owner: u32) -> PathBuf {
    below.join(format!("tmp/jobmeter-{owner}"))
}

/// The first address recorded in these folders. Folders that the owner does not own are ignored: in `/tmp`
/// anyone could have created them.
fn recorded_in(
    folders: impl IntoIterator<Item = PathBuf>,
    owner: u32,
) -> Option<(PathBuf, crate::ServerUrl)> {
    let own = folders.into_iter().filter(|folder| is_private(folder, owner));
    own.map(|folder| folder.join(SERVER_NAME)).find_map(recorded_at)
}

fn recorded_at(file: PathBuf) -> Option<(PathBuf, crate::ServerUrl)> {
    let url = recorded_server(&file)?;
    Some((file, url))
}

/// The address recorded in a runtime file; `None` if the file is missing or has no address.
pub fn recorded_server(file: &Path) -> Option<crate::ServerUrl> {
    let text = as_text(read_small(file, FILE_BYTES_MAX).ok()?).ok()?;
    crate::ServerUrl::new(text.lines().next()?.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn default_paths() {
        let none = |_: &str| None;
        let user = |name: &str| match name {
            "HOME" => Some("/home/a".to_owned()),
            "XDG_STATE_HOME" => Some("relative".to_owned()),
            _ => None,
        };
        let shown = |path: Option<PathBuf>| path.map(|p| p.display().to_string());
        assert_eq!(shown(state_dir(true, &none)).unwrap(), "/var/lib/jobmeter");
        assert_eq!(shown(state_dir(false, &user)).unwrap(), "/home/a/.local/state/jobmeter");
        assert_eq!(state_dir(false, &none), None);
        assert_eq!(server_file(true, &none), Path::new("/run/jobmeter/server"));
    }

    #[test]
    fn a_unit_records_its_server_in_the_folder_that_systemd_created() {
        let dir = tempfile::tempdir().unwrap();
        let unit = dir.path().to_str().unwrap().to_owned();
        let environment = |name: &str| (name == "RUNTIME_DIRECTORY").then(|| unit.clone());
        for root in [false, true] {
            assert_eq!(server_file(root, &environment), dir.path().join("server"));
        }
        // A folder that others can change.
        folder(dir.path(), 0o777);
        assert_ne!(server_file(true, &environment), dir.path().join("server"));
    }

    #[test]
    fn the_units_folder_names_a_user_only_where_root_alone_could_make_it() {
        let (dir, own) = (tempfile::tempdir().unwrap(), own_number());
        assert_eq!(folder_owner(dir.path(), own), None, "no folder");
        std::fs::create_dir(dir.path().join(UNIT_FOLDER)).unwrap();
        assert_eq!(folder_owner(dir.path(), own), Some(own));
        assert_eq!(folder_owner(dir.path(), own.wrapping_add(1)), None, "of another user");
        folder(dir.path(), 0o1777);
        assert_eq!(folder_owner(dir.path(), own), None, "everybody writes there");
    }

    #[test]
    fn no_store_is_created_beside_another() {
        let dir = tempfile::tempdir().unwrap();
        let none = |_: &str| None;
        let home = dir.path().display().to_string();
        let environment = |name: &str| (name == "XDG_STATE_HOME").then(|| home.clone());
        let of = |data: &Path| store_dir(Some(data), false, &none);
        let state = dir.path().join("jobmeter");
        let store = state.join("store");
        assert_eq!(store_dir(None, false, &environment).unwrap(), store);
        assert_eq!(of(&state).unwrap(), state, "a server's own folder, still empty");
        std::fs::create_dir_all(store.join(SAMPLES_DIR)).unwrap();
        for data in [&state, &store] {
            assert_eq!(of(data).unwrap(), store, "the existing store");
            assert_eq!(store_in(data).unwrap(), store);
        }
        assert_eq!(store_dir(None, false, &environment).unwrap(), store);
        // A server used the state folder itself; `up` and the default use a folder below it.
        let old = dir.path().join("old");
        std::fs::create_dir(&old).unwrap();
        std::fs::write(old.join(JOBS_FILE), "").unwrap();
        let error = of(&old.join("store")).unwrap_err();
        assert!(error.contains(&format!("--data {}", old.display())), "{error}");
        assert_eq!(of(&old).unwrap(), old);
        assert!(store_dir(None, false, &none).unwrap_err().contains("--data"));
    }

    #[test]
    fn no_store_is_created_inside_another() {
        let dir = tempfile::tempdir().unwrap();
        let (store, link) = (dir.path().join("d"), dir.path().join("link"));
        let samples = store.join(SAMPLES_DIR);
        std::fs::create_dir_all(&samples).unwrap();
        std::os::unix::fs::symlink(&samples, &link).unwrap();
        let of = |data: &Path| store_dir(Some(data), false, &|_| None);
        let inner = [samples.clone(), samples.join("log"), store.join("new/deeper"), link];
        assert!(inner.iter().all(|data| of(data).is_ok()), "a folder of that name is no store");
        std::fs::write(store.join(JOBS_FILE), "").unwrap();
        for data in &inner {
            let error = of(data).unwrap_err();
            assert!(error.contains("lies inside the store"), "{}: {error}", data.display());
        }
        // A store that an earlier version created there.
        std::fs::create_dir_all(samples.join(SAMPLES_DIR)).unwrap();
        assert!(of(&samples).is_err());
        assert_eq!(of(&store).unwrap(), store);
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        assert_eq!(of(&other).unwrap(), other);
    }

    #[test]
    fn a_mistyped_folder_beside_a_store_is_rejected_until_it_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let (store, mistyped) = (dir.path().join("store"), dir.path().join("stor"));
        let of = |data: &Path| store_dir(Some(data), false, &|_| None);
        assert_eq!(of(&mistyped).unwrap(), mistyped, "no store is beside it");
        std::fs::create_dir_all(store.join(SAMPLES_DIR)).unwrap();
        let error = of(&mistyped).unwrap_err();
        for part in [&store, &mistyped].map(|path| path.display().to_string()) {
            assert!(error.contains(&part), "{error}");
        }
        assert!(error.ends_with(&format!("mkdir {}", mistyped.display())), "{error}");
        assert!(!mistyped.try_exists().unwrap());
        std::fs::create_dir(&mistyped).unwrap();
        assert_eq!(of(&mistyped).unwrap(), mistyped);
        assert_eq!(of(&store).unwrap(), store);
    }

    /// Creates a folder with this mode.
    fn folder(path: &Path, mode: u32) {
        std::fs::create_dir_all(path).unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_user_has_a_folder_with_and_without_a_session() {
        let dir = tempfile::tempdir().unwrap();
        let (below, own) = (dir.path(), own_number());
        let none = |_: &str| None;
        let folders = |owner, environment: &dyn Fn(&str) -> Option<String>| {
            session_folders(below, owner, environment).collect::<Vec<_>>()
        };
        assert_eq!(folders(own, &none), Vec::<PathBuf>::new());
        let session = below.join(format!("run/user/{own}"));
        folder(&session, 0o700);
        assert_eq!(folders(own, &none), [session.join("jobmeter")]);
        let named = below.join("named");
        folder(&named, 0o700);
        let environment =
            |name: &str| (name == "XDG_RUNTIME_DIR").then(|| named.to_str().unwrap().to_owned());
        let both = [named.join("jobmeter"), session.join("jobmeter")];
        assert_eq!(folders(own, &environment), both);
        // Another user's variable, which `su` kept.
        let other = own.wrapping_add(1);
        assert_eq!(folders(other, &environment), Vec::<PathBuf>::new());
        assert_eq!(shared_folder(below, 7), below.join("tmp/jobmeter-7"));
    }

    #[test]
    fn files_of_another_user_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let own = own_number();
        let [closed, open] = ["closed", "open"].map(|name| dir.path().join(name));
        for (path, mode) in [(&closed, 0o700), (&open, 0o777)] {
            folder(path, mode);
            std::fs::write(path.join(SERVER_NAME), "http://127.0.0.1:8791\n").unwrap();
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&closed, &link).unwrap();
        let url = |folder: &Path, owner| recorded_in([folder.to_owned()], owner);
        assert!(url(&closed, own).is_some());
        assert_eq!(url(&closed, own.wrapping_add(1)), None, "another user owns it");
        assert_eq!(url(&open, own), None, "others can write into it");
        assert_eq!(url(&link, own), None, "a link may lead anywhere");
        let (file, url) = recorded_in([open, closed.clone()], own).unwrap();
        assert_eq!((file, url.as_str()), (closed.join(SERVER_NAME), "http://127.0.0.1:8791"));
    }

    #[test]
    fn the_recorded_server() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server");
        assert_eq!(recorded_server(&file), None);
        std::fs::write(&file, "http://127.0.0.1:8791\n").unwrap();
        assert_eq!(recorded_server(&file).unwrap().as_str(), "http://127.0.0.1:8791");
        std::fs::write(&file, "").unwrap();
        assert_eq!(recorded_server(&file), None);
    }
}
