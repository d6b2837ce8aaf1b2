//! OAR.
//!
//! OAR 2 (`job_resource_manager_cgroups.pl`) creates `/oar/USER_JOB` in every version 1 hierarchy that it
//! uses. Its path is `/sys/fs/cgroup/CONTROLLER/oar`, `/dev/cpuset/oar` or
//! `/dev/oar_cgroups_links/CONTROLLER/oar`; the last two are links or, if the system mounts no
//! cgroups, OAR's own mount. The directories belong to the account `oar`. `oar` is OAR's
//! `CPUSET_PATH`, which a site may change.
//!
//! OAR with systemd (`job_resource_manager_systemd.pl`, OAR 3 and OAR 2.5's branch for version 2)
//! creates `/oar.slice/oar-uUID.slice/oar-uUID-jJOB.slice`, containing a scope `oar-uUID-jJOB-s….scope`
//! for each connection. OAR 3 on NixOS creates `/oar.slice/USER_JOB.scope`.

use super::{DirectoryKind, Name, job_id, uid, unit_stem};

/// Maximum number of slices between `oar.slice` and the job's own.
const SLICES_MAX: usize = 2;

/// Classifies a directory below `oar` or `oar.slice`; `stem` is the prefix of the slices' names,
/// if the root is itself a slice.
pub(super) fn step<'a>(stem: Option<&str>, parts: &[&'a str]) -> DirectoryKind<'a> {
    let Some((name, slices)) = parts.split_last() else { return DirectoryKind::No };
    if slices.is_empty()
        && let Some(job) = named(name)
    {
        return DirectoryKind::Job(job);
    }
    let Some(stem) = stem else { return DirectoryKind::No };
    let passed = |slice: &&str| slice.ends_with(".slice") && numbered(stem, slice).is_none();
    if slices.len() > SLICES_MAX || !slices.iter().all(passed) {
        return DirectoryKind::No;
    }
    match numbered(stem, name) {
        Some(job) => DirectoryKind::Job(job),
        None if name.ends_with(".slice") && slices.len() < SLICES_MAX => {
            DirectoryKind::Passage { own: true }
        }
        None => DirectoryKind::No,
    }
}

/// Parses `oar-u1000-j42.slice` and `oar-u1000-j42-s7.scope`.
fn numbered<'a>(stem: &str, name: &'a str) -> Option<Name<'a>> {
    let (name, unit) = unit_stem(name);
    let rest = name.strip_prefix(stem)?.strip_prefix("-u")?;
    let (user, rest) = rest.split_once("-j")?;
    let (job, connection) = rest.split_once('-').map_or((rest, None), |(job, c)| (job, Some(c)));
    let known = unit && connection.is_none_or(|connection| connection.starts_with('s'));
    let (id, uid) = (job_id(job)?, Some(uid(user)?));
    let name = Name { id, display_id: job, user: None, uid, server: None };
    known.then_some(name)
}

/// Parses `alice_42`; login names may contain `_`.
fn named(name: &str) -> Option<Name<'_>> {
    let (name, _) = unit_stem(name);
    let (user, job) = name.rsplit_once('_')?;
    let id = job_id(job)?;
    (!user.is_empty()).then_some(Name {
        id,
        display_id: job,
        user: Some(user),
        uid: None,
        server: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(parts: &[&str]) -> Option<(i64, Option<String>, Option<u32>)> {
        match step(Some("oar"), parts) {
            DirectoryKind::Job(name) => {
                Some((name.id.get(), name.user.map(str::to_owned), name.uid))
            }
            _ => None,
        }
    }

    #[test]
    fn oar_2() {
        assert_eq!(job(&["alice_1234"]), Some((1234, Some("alice".into()), None)));
        assert_eq!(job(&["a_b.c-1_7"]), Some((7, Some("a_b.c-1".into()), None)));
        for name in ["alice", "alice_", "_12", "alice_0", "alice_12x", "alice_-1", ""] {
            assert_eq!(job(&[name]), None, "{name}");
        }
        assert_eq!(job(&["x.slice", "alice_12"]), None);
        assert!(matches!(step(None, &["alice_12"]), DirectoryKind::Job(_)));
        assert_eq!(step(None, &["oar-u1.slice"]), DirectoryKind::No);
        assert_eq!(step(None, &["oar-u1-j2.slice"]), DirectoryKind::No);
    }

    #[test]
    fn oar_with_systemd() {
        let slices = ["oar-u1000.slice", "oar-u1000-j45670.slice"];
        assert_eq!(job(&slices), Some((45670, None, Some(1000))));
        assert_eq!(job(&["oar-u1000-j45670-s3.scope"]), Some((45670, None, Some(1000))));
        assert_eq!(job(&["alice_12.scope"]), Some((12, Some("alice".into()), None)));
        assert_eq!(step(Some("oar"), &["oar-u1000.slice"]), DirectoryKind::Passage { own: true });
        let scope = [slices[0], slices[1], "oar-u1000-j45670-s3.scope"];
        assert_eq!(step(Some("oar"), &scope), DirectoryKind::No);
        for name in [
            "oar-u1000-j0.slice",
            "oar-u-j1.slice",
            "oar-u1-j1-x.scope",
            "oar-u1-j1",
            "site-u1-j1.slice",
        ] {
            assert_eq!(job(&["oar-u1.slice", name]), None, "{name}");
        }
    }

    #[test]
    fn another_prefix_of_the_slices() {
        let parts = ["site-u1.slice", "site-u1-j2.slice"];
        assert!(matches!(step(Some("site"), &parts), DirectoryKind::Job(_)));
        assert_eq!(step(Some("oar"), &parts), DirectoryKind::Passage { own: true });
    }
}
