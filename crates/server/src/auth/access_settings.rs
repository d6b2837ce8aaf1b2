//! Access control by the server's settings: anonymous readers, nodes and staff.

use config::{AccessSettings, Nodes};
use kernel::Root;
use kernel::user_files::{accounts, groups, uid_of};
use std::collections::BTreeSet;
use std::time::Duration;

/// Contents of the files that name this machine's users and groups: passwd(5) and group(5).
#[derive(Clone, Debug, Default)]
pub(crate) struct UserFiles {
    pub(crate) passwd: Vec<u8>,
    pub(crate) group: Vec<u8>,
}

impl UserFiles {
    /// Reads the files of this machine. A missing or unreadable file counts as empty: then only user IDs
    /// work.
    pub(crate) fn read(root: &Root) -> Self {
        let text = |file| {
            let mut text = Vec::new();
            if root.read(file, &mut text).is_err() {
                text.clear();
            }
            text
        };
        Self { passwd: text("etc/passwd"), group: text("etc/group") }
    }
}

/// Resolved access settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Whether unidentified callers may read node samples.
    pub(crate) anonymous: bool,
    /// Whether every reader may query nodes by the ID of any job.
    pub(crate) job_nodes: bool,
    /// Whether the kernel identifies the caller of a loopback connection.
    pub(crate) by_kernel: bool,
    /// Whether users see a node only while a job visible to them runs there.
    pub(crate) own_nodes: bool,
    /// IDs of the users who may read everything.
    pub(crate) staff: BTreeSet<u32>,
    /// How long users count as members of an account after their last job there.
    pub(crate) member_for: Duration,
    /// Longest validity of a token created by a user.
    pub(crate) token_age_max: Duration,
}

impl Access {
    /// Resolves the settings. Unknown users and groups are errors when `strict`, and warnings otherwise.
    pub(crate) fn of(
        settings: &AccessSettings,
        files: &UserFiles,
        strict: bool,
    ) -> Result<Self, Vec<String>> {
        let (mut staff, mut unknown) = (BTreeSet::new(), Vec::new());
        for name in &settings.staff {
            let found = match name.strip_prefix('@') {
                Some(group) => members(files, group),
                None => {
                    let uid = name.parse().ok().or_else(|| uid_of(&files.passwd, name));
                    uid.map(|uid| [uid].into()).ok_or_else(|| {
                        format!("no user `{name}` on this machine or in its directory; write the user ID")
                    })
                }
            };
            match found {
                Ok(uids) => staff.extend(uids),
                Err(why) if strict => unknown.push(why),
                Err(why) => log::warn!("access.staff: {why}"),
            }
        }
        if !unknown.is_empty() {
            return Err(unknown);
        }
        Ok(Self {
            anonymous: settings.anonymous != config::Anonymous::None,
            job_nodes: settings.anonymous == config::Anonymous::Jobs,
            by_kernel: settings.loopback == config::Loopback::User,
            own_nodes: settings.nodes == Nodes::Own,
            staff,
            member_for: settings.member_for,
            token_age_max: settings.token_age_max,
        })
    }
}

/// Returns the members of a group: users listed in group(5), and users with it as their primary group.
fn members(files: &UserFiles, group: &str) -> Result<BTreeSet<u32>, String> {
    let found = groups(&files.group).find(|one| one.name == group);
    let group = found.ok_or_else(|| {
        format!(
            "no group `{group}` on this machine or in its directory (`getent group {group}`); list its \
             users by name or ID"
        )
    })?;
    let named = group.members().filter_map(|name| uid_of(&files.passwd, name));
    let own = accounts(&files.passwd).filter(|account| account.gid == group.gid);
    Ok(named.chain(own.map(|account| account.uid)).collect())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn files() -> UserFiles {
        let passwd =
            b"root:x:0:0::/:/bin/sh\nann:x:1000:50::/:\nbob:x:1001:60::/:\neve:x:1002:61::/:\n";
        let group = b"ops:x:50:bob,gone\nempty:x:70:\nbad\n";
        UserFiles { passwd: passwd.to_vec(), group: group.to_vec() }
    }

    /// Settings with this staff.
    pub(crate) fn settings(staff: &[&str]) -> AccessSettings {
        let staff = staff.iter().map(|word| (*word).to_owned()).collect();
        let flags = [("access.staff".to_owned(), config::Raw::Many(staff))].into();
        let file = config::ConfigFile::None;
        let given = config::ConfigInputs { file, environment: &|_| None, flags };
        config::load_server(&given, &[]).unwrap().config.access
    }

    fn staff(words: &[&str]) -> Result<Vec<u32>, Vec<String>> {
        Access::of(&settings(words), &files(), true)
            .map(|access| access.staff.into_iter().collect())
    }

    #[test]
    fn staff_are_users_and_groups() {
        assert_eq!(staff(&["@ops", "eve", "77"]).unwrap(), [77, 1000, 1001, 1002]);
        assert_eq!(staff(&["@empty"]).unwrap(), [0_u32; 0]);
        assert!(staff(&["@nope"]).unwrap_err()[0].contains("no group `nope`"));
        let errors = staff(&["nope", "eve", "@nope"]).unwrap_err();
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors[0].contains("no user `nope`"), "{errors:?}");
    }

    proptest! {
        #[test]
        fn no_file_panics(bytes: Vec<u8>, name in "[a-z]{0,3}") {
            let files = UserFiles { passwd: bytes.clone(), group: bytes };
            members(&files, &name).ok();
        }
    }
}
