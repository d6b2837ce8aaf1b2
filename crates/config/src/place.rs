//! Where things lie when nobody says otherwise.

use std::path::{Path, PathBuf};

/// Where the settings of an agent are by default.
pub const AGENT_FILE: &str = "/etc/jobmeter/agent.toml";
/// Where the settings of a server are by default.
pub const SERVER_FILE: &str = "/etc/jobmeter/server.toml";

/// Folder of the store below a server's data folder.
pub const SAMPLES_DIR: &str = "samples";
/// File of the registry of jobs below it.
pub const JOBS_FILE: &str = "jobs.sqlite";

/// Where the settings of the command `jobmeter` are by default.
pub const CLIENT_FILE: &str = "/etc/jobmeter/client.toml";

/// The folder for what a program keeps: `/var/lib/jobmeter` as root, else `jobmeter` in the XDG state
/// folder (`$XDG_STATE_HOME`, `~/.local/state`). `None` for a user without a home.
pub fn state_dir(root: bool, environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from("/var/lib/jobmeter"));
    }
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))?;
    Some(state.join("jobmeter"))
}

/// The file in which `jobmeter up` records the address of its server: `$XDG_RUNTIME_DIR/jobmeter/server`,
/// or `/run/jobmeter/server` as root. `None` for a user without a runtime folder.
pub fn server_file(root: bool, environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from("/run/jobmeter/server"));
    }
    let dir =
        environment("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())?;
    Some(dir.join("jobmeter/server"))
}

/// The address of the server that runs here: the one in the caller's own runtime file, else the one in
/// root's.
pub fn server_here(
    root: bool,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<crate::ServerUrl> {
    let own = server_file(root, environment);
    own.as_deref()
        .and_then(recorded_server)
        .or_else(|| recorded_server(Path::new("/run/jobmeter/server")))
}

/// The address recorded in a runtime file, or none if there is no file or it holds none.
pub fn recorded_server(file: &Path) -> Option<crate::ServerUrl> {
    let text = std::fs::read_to_string(file).ok()?;
    crate::ServerUrl::new(text.lines().next()?.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places() {
        let none = |_: &str| None;
        let user = |name: &str| match name {
            "HOME" => Some("/home/a".to_owned()),
            "XDG_RUNTIME_DIR" => Some("/run/user/7".to_owned()),
            "XDG_STATE_HOME" => Some("relative".to_owned()),
            _ => None,
        };
        let shown = |path: Option<PathBuf>| path.map(|p| p.display().to_string());
        assert_eq!(shown(state_dir(true, &none)).unwrap(), "/var/lib/jobmeter");
        assert_eq!(shown(state_dir(false, &user)).unwrap(), "/home/a/.local/state/jobmeter");
        assert_eq!(state_dir(false, &none), None);
        assert_eq!(shown(server_file(false, &user)).unwrap(), "/run/user/7/jobmeter/server");
        assert_eq!(server_file(false, &none), None);
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
