//! The rights of a user in `/etc/passwd` and `/etc/group`.
//!
//! These files lack users of a directory service; only entries for their numbers can name them.

use crate::users::user_files::{accounts, groups};
use crate::{ReadError, Root};

/// Most groups of a user, as in the kernel (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// A user's rights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Its user ID.
    pub uid: u32,
    /// The ID of its own group.
    pub gid: u32,
    /// The IDs of all its groups, its own first.
    pub groups: Vec<u32>,
}

/// The rights of a user by name or number; `None` if the files lack it.
///
/// # Errors
/// A file cannot be read.
pub fn login(root: &Root, user: &str) -> Result<Option<Login>, ReadError> {
    let (mut passwd, mut group) = (Vec::new(), Vec::new());
    root.read("etc/passwd", &mut passwd)?;
    match root.read("etc/group", &mut group) {
        Err(error) if !error.is_absent() => Err(error),
        _ => Ok(parse(&passwd, &group, user)),
    }
}

/// The rights of a user by name or number, from both files' bytes. Malformed lines are skipped.
pub fn parse(passwd: &[u8], group: &[u8], user: &str) -> Option<Login> {
    let number = user.parse().ok().filter(|_| user.bytes().all(|byte| byte.is_ascii_digit()));
    let account =
        accounts(passwd).find(|account| account.name == user || Some(account.uid) == number)?;
    let mut all = vec![account.gid];
    for group in groups(group).filter(|group| group.members().any(|name| name == account.name)) {
        if !all.contains(&group.gid) && all.len() < GROUPS_MAX {
            all.push(group.gid);
        }
    }
    Some(Login { uid: account.uid, gid: account.gid, groups: all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASSWD: &[u8] = b"root:x:0:0:root:/root:/bin/sh\n\n+::::::\nbad:x:4294967295:1\n\
                            ipmi:x:990:980::/:/usr/sbin/nologin\nnobody:x:65534:65534\n";
    const GROUP: &[u8] = b"ipmi:x:980:\nvideo:x:44:hpc, ipmi\nadm:x:4:ipmi2\nno:x:-1:ipmi\nnone\n";

    #[test]
    fn a_user_has_its_own_group_and_those_that_name_it() {
        let ipmi = Some(Login { uid: 990, gid: 980, groups: vec![980, 44] });
        assert_eq!(parse(PASSWD, GROUP, "ipmi"), ipmi);
        assert_eq!(parse(PASSWD, GROUP, "990"), ipmi);
        assert_eq!(parse(PASSWD, GROUP, "root").map(|login| login.uid), Some(0));
        let login = Login { uid: 65_534, gid: 65_534, groups: vec![65_534] };
        assert_eq!(parse(PASSWD, b"", "nobody"), Some(login));
        for none in ["", "x", "+", "bad", "4294967295", "1"] {
            assert_eq!(parse(PASSWD, GROUP, none), None, "{none}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            passwd in "([a-z]{0,3}|:|\n|[0-9]{1,11}|,){0,40}",
            group in prop::collection::vec(any::<u8>(), 0..200),
            user in "[a-z0-9]{0,3}",
        ) {
            parse(passwd.as_bytes(), &group, &user);
            parse(&group, passwd.as_bytes(), &user);
        }
    }
}
