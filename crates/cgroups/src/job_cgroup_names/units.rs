//! systemd's services, scopes and sessions (systemd.slice(5), systemd-logind.service(8)) on a machine without
//! a scheduler. They are parts of the device, not jobs. The names are systemd's; a user cannot create them
//! outside of directories of their own.

use super::DirectoryKind;

/// Maximum number of slices between a top slice and a unit:
/// `system.slice/system-getty.slice/getty@tty1.service` has one.
const SLICES_MAX: usize = 2;

/// Classifies a directory below a hierarchy's root.
pub(super) fn step<'a>(parts: &[&'a str]) -> DirectoryKind<'a> {
    let is_unit = |name: &str| name.ends_with(".service") || name.ends_with(".scope");
    match parts {
        ["init.scope"] => DirectoryKind::Unit,
        ["system.slice" | "machine.slice" | "user.slice"] => DirectoryKind::Passage { own: false },
        ["user.slice", slice] if is_users(slice) => DirectoryKind::Passage { own: false },
        ["user.slice", slice, name] if is_users(slice) && is_unit(name) => DirectoryKind::Unit,
        ["system.slice" | "machine.slice", slices @ .., name]
            if slices.len() <= SLICES_MAX
                && slices.iter().all(|slice| slice.ends_with(".slice")) =>
        {
            if is_unit(name) {
                DirectoryKind::Unit
            } else if name.ends_with(".slice") && slices.len() < SLICES_MAX {
                DirectoryKind::Passage { own: false }
            } else {
                DirectoryKind::No
            }
        }
        _ => DirectoryKind::No,
    }
}

fn is_users(slice: &str) -> bool {
    let digits = slice.strip_prefix("user-").and_then(|rest| rest.strip_suffix(".slice"));
    digits.and_then(super::uid).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_and_sessions() {
        for parts in [
            &["system.slice", "ssh.service"][..],
            &["system.slice", "system-getty.slice", "getty@tty1.service"],
            &["user.slice", "user-1000.slice", "session-2.scope"],
            &["user.slice", "user-1000.slice", "user@1000.service"],
            &["machine.slice", "machine-vm.scope"],
            &["init.scope"],
        ] {
            assert_eq!(step(parts), DirectoryKind::Unit, "{parts:?}");
        }
    }

    #[test]
    fn directories_that_a_user_can_create_are_not_units() {
        for parts in [
            &["user.slice", "user-1000.slice", "user@1000.service", "app.slice"][..],
            &["user.slice", "user-1000.slice", "user@1000.service", "x.service"],
            &["user.slice", "x.scope"],
            &["user.slice", "user-x.slice", "session-2.scope"],
            &["system.slice", "ssh.service", "x.service"],
            &["system.slice", "dev-hugepages.mount"],
            &["ssh.service"],
        ] {
            assert_eq!(step(parts), DirectoryKind::No, "{parts:?}");
        }
    }
}
