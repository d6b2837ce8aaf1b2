//! Queries the name service of this machine (NSS: files, LDAP, SSSD) through `getent`.

use kernel::child_program::Running;
use kernel::login::Login;
use std::io;
use std::time::Duration;

/// The program that is run.
pub(crate) const GETENT: &str = "/usr/bin/getent";
/// Time limit for a response.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Returns the output of `getent DATABASE KEY...` and its exit code. The code is 0, or 2 when the database
/// lacks one of the keys (getent(1)). Skips keys that getent would parse as an option.
///
/// # Errors
/// The program cannot run, takes longer than 5 s, or ends with another code.
pub(crate) fn getent(program: &str, database: &str, keys: &[&str]) -> io::Result<(i32, Vec<u8>)> {
    let is_key = |key: &&str| !(key.is_empty() || key.starts_with('-') || key.contains('\0'));
    let mut words = vec![program.to_owned(), database.to_owned()];
    words.extend(keys.iter().copied().filter(is_key).map(str::to_owned));
    if words.len() == 2 {
        // Without a key getent would print the whole database.
        return Ok((2, Vec::new()));
    }
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let own = Login { uid, gid, groups: Vec::new() };
    let mut running = Running::start(&words, &own)?;
    let Some(ended) = running.look(ANSWER_TIME_MAX)? else {
        let what = format!("{program} did not respond within {} s", ANSWER_TIME_MAX.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
    };
    match ended.code {
        Some(code @ (0 | 2)) => Ok((code, ended.output)),
        code => {
            let code = code.map_or("a signal".to_owned(), |code| format!("code {code}"));
            Err(io::Error::other(format!("{program} ended with {code}")))
        }
    }
}
