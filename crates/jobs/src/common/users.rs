//! Users in `/etc/passwd`: login names and user IDs.

use kernel::user_files::{Account, accounts};
use std::collections::HashMap;

/// Maximum number of stored lines. A machine with more users has them in a directory service.
const USERS_MAX: usize = 100_000;

/// Login names by user ID, and user IDs by name. The first of two lines with the same user ID or name
/// counts, as in getpwuid(3) and getpwnam(3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    names: HashMap<u32, Box<str>>,
    numbers: HashMap<Box<str>, u32>,
}

impl Users {
    /// Parses the text of `/etc/passwd`. It skips invalid lines.
    pub fn parse(text: &[u8]) -> Self {
        let mut users = Self::default();
        for Account { name, uid, .. } in accounts(text) {
            users.numbers.entry(name.into()).or_insert(uid);
            users.names.entry(uid).or_insert(name.into());
            if users.numbers.len() >= USERS_MAX {
                break;
            }
        }
        users
    }

    /// Returns the login name of a user ID.
    pub fn name(&self, uid: u32) -> Option<&str> {
        self.names.get(&uid).map(|name| &**name)
    }

    /// Returns the user ID of a login name.
    pub fn uid(&self, name: &str) -> Option<u32> {
        self.numbers.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "root:x:0:0:root:/root:/bin/bash\n\
        # comment\n\nalice:x:1000:1000:Alice,,,:/home/alice:/bin/bash\nalias:x:1000:1::/:/x\nbad:x:a:1\n";

    #[test]
    fn names_by_number() {
        let users = Users::parse(TEXT.as_bytes());
        assert_eq!(users.name(0), Some("root"));
        assert_eq!(users.name(1000), Some("alice"));
        assert_eq!(users.name(1), None);
    }

    #[test]
    fn numbers_by_name() {
        let users = Users::parse(TEXT.as_bytes());
        assert_eq!(
            ["root", "alice", "alias", "bad"].map(|name| users.uid(name)),
            [Some(0), Some(1000), Some(1000), None]
        );
    }

    #[test]
    fn every_cut_is_read_without_a_wrong_name() {
        for cut in 0..TEXT.len() {
            let users = Users::parse(&TEXT.as_bytes()[..cut]);
            assert!(matches!(users.name(0), None | Some("root")), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            Users::parse(&bytes);
        }
    }
}
