//! The server ID. `jobmeter run` puts it into the names of the cgroups that it creates. An agent thus
//! distinguishes the jobs of its own server from those of another server on the same node.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file beside the registry that holds the server ID.
pub const SERVER_ID_FILE: &str = "server_id";
/// Length of a server ID in hexadecimal digits.
const DIGITS: usize = 12;

/// Returns the ID of the server that owns this registry. The first call creates it at random.
///
/// # Errors
/// The file cannot be read or created.
pub(crate) fn of(registry: &Path) -> io::Result<Box<str>> {
    let path = registry.with_file_name(SERVER_ID_FILE);
    match fs::read_to_string(&path) {
        Ok(text) if is_one(text.trim()) => return Ok(text.trim().into()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut bytes = [0_u8; DIGITS / 2];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
    file?.write_all(format!("{text}\n").as_bytes())?;
    Ok(text.into())
}

fn is_one(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_differs_from_others() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let identity = |dir: &tempfile::TempDir| of(&dir.path().join("jobs.sqlite")).unwrap();
        let first = identity(&one);
        assert!(is_one(&first), "{first}");
        assert_eq!(identity(&one), first);
        assert_ne!(identity(&other), first);
        fs::write(one.path().join(SERVER_ID_FILE), "../..\n").unwrap();
        assert!(is_one(&identity(&one)), "what is none is made again");
    }
}
