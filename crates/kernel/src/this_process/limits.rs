//! Limits of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// How many files this process may have open at once (`RLIMIT_NOFILE`, getrlimit(2)); `None` if
/// there is no limit.
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Lets this process have as many files open at once as its hard limit allows.
///
/// # Errors
/// The kernel denies it.
pub fn raise_open_files() -> io::Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_may_open_some_files() {
        assert!(open_files_max().is_none_or(|files| files > 3));
        raise_open_files().unwrap();
        assert_eq!(open_files_max(), getrlimit(Resource::Nofile).maximum);
    }
}
