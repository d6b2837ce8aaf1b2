//! Login names of this node's users, from `/etc/passwd`. Users of other name services appear as user IDs.

use kernel::Root;
use std::collections::HashMap;

/// Names by user ID.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<u32, String>);

impl Users {
    pub(super) fn of(root: &Root) -> Self {
        let mut text = Vec::new();
        match root.read("etc/passwd", &mut text) {
            Ok(()) => Self::parse(&String::from_utf8_lossy(&text)),
            // User IDs are shown instead.
            Err(_) => Self::default(),
        }
    }

    fn parse(text: &str) -> Self {
        let mut names = HashMap::new();
        for line in text.lines() {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok()));
            if let (Some(name), Some(uid)) = (name, uid) {
                // Of several names of a user ID the first counts, as in getpwuid(3).
                names.entry(uid).or_insert_with(|| name.to_owned());
            }
        }
        Self(names)
    }

    pub(super) fn name(&self, uid: u32) -> String {
        self.0.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        let users = Users::parse(
            "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\nbroken\nann:x:1000:1000:::\n",
        );
        assert_eq!([0, 1000, 7].map(|uid| users.name(uid)), ["root", "ann", "7"]);
    }
}
