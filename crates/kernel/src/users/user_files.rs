//! The lines of `/etc/passwd` and `/etc/group` (passwd(5), group(5)).
//!
//! ```text
//! nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
//! video:x:44:nobody,hpc
//! ```
//!
//! These files lack users of a directory service; `getent` prints those in the same notation.

use crate::parse::{lines, number};

/// A user in `/etc/passwd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// Its login name.
    pub name: &'a str,
    /// Its user ID.
    pub uid: u32,
    /// The ID of its own group.
    pub gid: u32,
}

/// A group in `/etc/group`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its ID.
    pub gid: u32,
    members: &'a [u8],
}

/// The users in a text. Malformed lines are skipped.
pub fn accounts(passwd: &[u8]) -> impl Iterator<Item = Account<'_>> {
    lines(passwd).filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, _password) = (name(fields.next()?)?, fields.next()?);
        Some(Account { name, uid: id(fields.next()?)?, gid: id(fields.next()?)? })
    })
}

/// The user ID of a login name.
pub fn uid_of(passwd: &[u8], name: &str) -> Option<u32> {
    accounts(passwd).find(|account| account.name == name).map(|account| account.uid)
}

/// The groups in a text. Malformed lines are skipped.
pub fn groups(group: &[u8]) -> impl Iterator<Item = Group<'_>> {
    lines(group).filter_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let (name, _password) = (name(fields.next()?)?, fields.next()?);
        Some(Group { name, gid: id(fields.next()?)?, members: fields.next()? })
    })
}

impl<'a> Group<'a> {
    /// The login names that the group lists. Users with it as their own group are not among them.
    pub fn members(self) -> impl Iterator<Item = &'a str> {
        self.members.split(|byte| *byte == b',').filter_map(|member| name(member.trim_ascii()))
    }
}

fn name(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|name| !name.is_empty())
}

/// A number that the kernel accepts: all bits set mean "unchanged".
fn id(text: &[u8]) -> Option<u32> {
    number(text).and_then(|number| u32::try_from(number).ok()).filter(|number| *number != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_lines_are_skipped() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\n# comment\n\n+::::::\nbad:x:a:1\nbad:x:1\n\
            bad:x:4294967295:1\n\xff:x:2:2::/:\nann:x:1000:50:\xff:/:";
        let found: Vec<_> = accounts(passwd).collect();
        let account = |name, uid, gid| Account { name, uid, gid };
        assert_eq!(found, [account("root", 0, 0), account("ann", 1000, 50)]);
        assert_eq!((uid_of(passwd, "ann"), uid_of(passwd, "bad")), (Some(1000), None));
        let group = b"ops:x:50:bob, ann,\xff,\nempty:x:70:\nno:x:-1:bob\nbad:x:1\n";
        let found: Vec<_> = groups(group)
            .map(|group| (group.name, group.gid, group.members().collect::<Vec<_>>()))
            .collect();
        assert_eq!(found, [("ops", 50, vec!["bob", "ann"]), ("empty", 70, vec![])]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            accounts(&bytes).count();
            groups(&bytes).flat_map(|group| group.members()).count();
        }
    }
}
