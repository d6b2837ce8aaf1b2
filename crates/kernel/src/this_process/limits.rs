//! Limits of this process.

use rustix::process::{Resource, getrlimit};

/// How many files this process may have open at once (`RLIMIT_NOFILE`, getrlimit(2)); `None` if
/// there is no limit.
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_may_open_some_files() {
        assert!(open_files_max().is_none_or(|files| files > 3));
    }
}
