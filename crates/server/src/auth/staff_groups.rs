//! Resolves the users and groups of `access.staff` through this machine's name service.
//!
//! `/etc/passwd` and `/etc/group` hold local names only. A site's directory (LDAP, SSSD) answers through
//! NSS. `getent` (glibc, getent(1)) queries NSS in a process of its own, with a time limit. The server
//! resolves the names at startup, on SIGHUP, and every 5 minutes, so that leaving a directory group takes
//! effect.

use crate::auth::access_settings::{Access, UserFiles};
use crate::auth::name_service::getent;
use config::AccessSettings;
use kernel::Root;
use kernel::user_files::{groups, uid_of};
use std::io;

/// Members of one group that the name service resolves; the server ignores further ones with a warning.
const MEMBERS_MAX: usize = 4096;
/// Names per call of `getent`.
const NAMES_A_CALL: usize = 200;

/// Resolves `access.staff`. An unknown name is an error when `strict`. If the name service fails, the name
/// is skipped with a warning until a later resolution finds it.
///
/// # Errors
/// Names that are in no file, and that do not exist by the answer of the name service.
pub(crate) fn resolve(
    settings: &AccessSettings,
    root: &Root,
    program: &str,
    strict: bool,
) -> Result<Access, Vec<String>> {
    let mut files = UserFiles::read(root);
    let failed = match add_directory(settings, &mut files, program) {
        Ok(()) => false,
        Err(error) => {
            log::warn!(
                "access.staff: the name service failed: {error}; directory groups are incomplete"
            );
            true
        }
    };
    Access::of(settings, &files, strict && !failed)
}

/// Prepends the directory's entries for the staff to the text of the files. NSS also lists local entries,
/// in the order of nsswitch.conf(5), so its answer comes first.
fn add_directory(
    settings: &AccessSettings,
    files: &mut UserFiles,
    program: &str,
) -> io::Result<()> {
    if !settings.name_service {
        return Ok(());
    }
    for name in &settings.staff {
        let Some(group) = name.strip_prefix('@') else {
            if name.parse::<u32>().is_err() && uid_of(&files.passwd, name).is_none() {
                let (_, found) = getent(program, "passwd", &[name])?;
                put_first(&mut files.passwd, &found);
            }
            continue;
        };
        let (_, found) = getent(program, "group", &[group])?;
        put_first(&mut files.group, &found);
        let missing = unresolved_members(&found, &files.passwd);
        if missing.len() > MEMBERS_MAX {
            log::warn!(
                "access.staff: group {group} has more than {MEMBERS_MAX} members; the rest is ignored"
            );
        }
        for names in missing.chunks(NAMES_A_CALL).take(MEMBERS_MAX / NAMES_A_CALL + 1) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let (_, found) = getent(program, "passwd", &names)?;
            put_first(&mut files.passwd, &found);
        }
    }
    Ok(())
}

/// Returns members that a line of group(5) lists and the text of passwd(5) lacks.
fn unresolved_members(group: &[u8], passwd: &[u8]) -> Vec<String> {
    let names = groups(group).flat_map(|group| group.members());
    names.filter(|name| uid_of(passwd, name).is_none()).map(str::to_owned).collect()
}

fn put_first(text: &mut Vec<u8>, lines: &[u8]) {
    let mut joined = lines.to_vec();
    if !joined.is_empty() && !joined.ends_with(b"\n") {
        joined.push(b'\n');
    }
    joined.append(text);
    *text = joined;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::access_settings::tests::settings;
    use crate::background::user_ids::tests::program;

    /// A directory with group `hpc` (members eva and local ann) and user eva.
    const DIRECTORY: &str = r#"case "$1 $2" in
        "group hpc") echo "hpc:*:7000:eva,ann,gone,-x" ;;
        "group slow") exit 3 ;;
        "passwd eva") echo "eva:*:7001:7100::/:/bin/sh"; [ $# = 2 ] || exit 2 ;;
        *) exit 2 ;; esac"#;

    fn staff(names: &[&str], getent: &str, strict: bool) -> Result<Vec<u32>, String> {
        let machine = tempfile::tempdir().unwrap();
        let etc = machine.path().join("etc");
        std::fs::create_dir(&etc).unwrap();
        std::fs::write(etc.join("passwd"), "ann:x:1000:50::/:\n").unwrap();
        std::fs::write(etc.join("group"), "ops:x:50:\n").unwrap();
        let root = Root::recorded(machine.path()).unwrap();
        let settings = settings(names);
        let access =
            resolve(&settings, &root, getent, strict).map_err(|errors| errors.join("; "))?;
        Ok(access.staff.into_iter().collect())
    }

    #[test]
    fn groups_and_users_of_the_directory_are_staff() {
        let dir = tempfile::tempdir().unwrap();
        let getent = program(&dir, DIRECTORY);
        assert_eq!(staff(&["@hpc"], &getent, true).unwrap(), [1000, 7001]);
        assert_eq!(staff(&["eva", "@ops"], &getent, true).unwrap(), [1000, 7001]);
        let error = staff(&["@nope"], &getent, true).unwrap_err();
        assert!(
            error.contains("no group `nope`") && error.contains("getent group nope"),
            "{error}"
        );
        assert_eq!(staff(&["@nope", "ann"], &getent, false).unwrap(), [1000], "it was deleted");
    }

    #[test]
    fn a_directory_that_fails_costs_its_groups_and_not_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let getent = program(&dir, DIRECTORY);
        assert_eq!(staff(&["@slow", "ann"], &getent, true).unwrap(), [1000]);
        assert_eq!(staff(&["@hpc", "@ops"], "/nowhere/getent", true).unwrap(), [1000]);
    }

    #[test]
    fn this_machines_name_service_resolves_groups() {
        let root = Root::live().unwrap();
        let settings = settings(&["@root", "root"]);
        let access = resolve(&settings, &root, crate::auth::name_service::GETENT, true).unwrap();
        assert!(access.staff.contains(&0));
    }
}
