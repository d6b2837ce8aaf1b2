//! Slurm (<https://slurm.schedmd.com/cgroups.html>, <https://slurm.schedmd.com/cgroup_v2.html>).
//!
//! Version 1: `/slurm/uid_UID/job_JOB/step_STEP[/task_TASK]` in each hierarchy that it uses;
//! `slurm_NODE` instead of `slurm` if Slurm was built for several slurmd per machine, like Debian's.
//!
//! Version 2: `/system.slice/slurmstepd.scope/job_JOB/step_STEP/{slurm,user/task_TASK}`. In such a build the
//! scope's name is `NODE_slurmstepd.scope`; without systemd the scope is outside of `system.slice`. Another
//! slice (`CgroupSlice`) needs a configured root. From Slurm 26.05 the job's directory is named by its SLUID
//! (`src/common/sluid.h`: `s` and 13 digits of Crockford's base 32) unless `CgroupJobIdPaths=yes`.
//!
//! A SLUID does not contain the job ID. On the node, only one process of root shows it: each step's
//! slurmstepd, alone in `step_STEP/slurm`, with the title `slurmstepd: [JOB.STEP]`.

use super::{DirectoryKind, Name, job_id, uid};
use model::JobId;

/// Number of digits of a SLUID after its `s`.
const SLUID_DIGITS: usize = 13;

/// Classifies a directory below a hierarchy's root.
pub(super) fn step<'a>(parts: &[&'a str]) -> DirectoryKind<'a> {
    match parts {
        ["system.slice"] => DirectoryKind::Passage { own: false },
        [scope] | ["system.slice", scope] if is_scope(scope) => {
            DirectoryKind::Passage { own: true }
        }
        [scope, name] | ["system.slice", scope, name] if is_scope(scope) => job(name),
        [top] if is_top(top) => DirectoryKind::Passage { own: true },
        [top, rest @ ..] if is_top(top) => of_users(rest),
        _ => DirectoryKind::No,
    }
}

/// Classifies a directory below the directory of Slurm's users (version 1) or jobs (version 2).
pub(super) fn inside<'a>(parts: &[&'a str]) -> DirectoryKind<'a> {
    match parts {
        [name] => match of_users(parts) {
            DirectoryKind::No => job(name),
            step => step,
        },
        _ => of_users(parts),
    }
}

fn of_users<'a>(parts: &[&'a str]) -> DirectoryKind<'a> {
    match parts {
        [user] if user_number(user).is_some() => DirectoryKind::Passage { own: true },
        [user, name] => match (user_number(user), numbered(name)) {
            (Some(uid), Some(job)) => DirectoryKind::Job(Name { uid: Some(uid), ..job }),
            _ => DirectoryKind::No,
        },
        _ => DirectoryKind::No,
    }
}

fn job(name: &str) -> DirectoryKind<'_> {
    match numbered(name) {
        Some(job) => DirectoryKind::Job(job),
        None if is_sluid(name) => DirectoryKind::Sluid,
        None => DirectoryKind::No,
    }
}

fn numbered(name: &str) -> Option<Name<'_>> {
    let digits = name.strip_prefix("job_")?;
    Some(Name { id: job_id(digits)?, display_id: digits, user: None, uid: None, server: None })
}

fn user_number(name: &str) -> Option<u32> {
    uid(name.strip_prefix("uid_")?)
}

fn is_top(name: &str) -> bool {
    name == "slurm" || name.strip_prefix("slurm_").is_some_and(|node| !node.is_empty())
}

fn is_scope(name: &str) -> bool {
    match name.strip_suffix("slurmstepd.scope") {
        Some("") => true,
        Some(node) => node.len() > 1 && node.ends_with('_'),
        None => false,
    }
}

/// Matches `sEKNKTV3WPV500`: Slurm prints upper case and omits I, L, O and U.
fn is_sluid(name: &str) -> bool {
    let is_digit =
        |byte: u8| byte.is_ascii_digit() || (byte.is_ascii_uppercase() && !b"ILOU".contains(&byte));
    let digits = name.strip_prefix('s').map(str::as_bytes).unwrap_or_default();
    digits.len() == SLUID_DIGITS && digits.iter().copied().all(is_digit)
}

/// The job ID in a slurmstepd's title: `slurmstepd: [3385.0]`, `[3385.extern]`, `[3385.0
/// stepmgr]`, and `[3385]` of old versions. Titles of helpers (`[3385:namespace]`) and others have none.
pub(crate) fn title_job(title: &[u8]) -> Option<JobId> {
    let title = std::str::from_utf8(title).ok()?.trim_end_matches(['\0', ' ']);
    let inner = title.strip_prefix("slurmstepd: [")?.strip_suffix(']')?;
    job_id(inner.split_once('.').map_or(inner, |(job, _)| job))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn found(parts: &[&str]) -> Option<(i64, Option<u32>)> {
        match step(parts) {
            DirectoryKind::Job(name) => Some((name.id.get(), name.uid)),
            _ => None,
        }
    }

    #[test]
    fn version_1() {
        assert_eq!(found(&["slurm", "uid_1000", "job_7"]), Some((7, Some(1000))));
        assert_eq!(found(&["slurm_vm", "uid_0", "job_1"]), Some((1, Some(0))));
        assert_eq!(step(&["slurm", "system"]), DirectoryKind::No);
        for parts in [
            &["slurm", "uid_", "job_7"][..],
            &["slurm", "uid_1000", "job_0"],
            &["slurm", "job_7"],
            &["slurm_", "uid_1", "job_7"],
            &["slurmx", "uid_1", "job_7"],
            &["slurm", "uid_1000", "job_7", "step_0"],
        ] {
            assert_eq!(found(parts), None, "{parts:?}");
        }
    }

    #[test]
    fn version_2() {
        assert_eq!(found(&["system.slice", "slurmstepd.scope", "job_7"]), Some((7, None)));
        assert_eq!(found(&["n1_slurmstepd.scope", "job_7"]), Some((7, None)));
        assert_eq!(
            step(&["system.slice", "slurmstepd.scope", "sEKNKTV3WPV500"]),
            DirectoryKind::Sluid
        );
        assert_eq!(step(&["system.slice", "slurmstepd.scope", "system"]), DirectoryKind::No);
        assert_eq!(step(&["system.slice", "_slurmstepd.scope"]), DirectoryKind::No);
        assert_eq!(step(&["system.slice", "xslurmstepd.scope", "job_7"]), DirectoryKind::No);
        assert_eq!(inside(&["sEKNKTV3WPV500"]), DirectoryKind::Sluid);
    }

    #[test]
    fn sluids() {
        assert!(is_sluid("sFNDM35NQ39R00") && is_sluid("s5K1KKYAYG5D00"));
        for name in [
            "sFNDM35NQ39R0",
            "xFNDM35NQ39R00",
            "sFNDM35NQ39RI0",
            "sfndm35nq39r00",
            "s",
            "sFNDM35NQ39R000",
        ] {
            assert!(!is_sluid(name), "{name}");
        }
    }

    #[test]
    fn titles() {
        let job = |title: &str| title_job(title.as_bytes()).map(JobId::get);
        for title in [
            "slurmstepd: [3385.0]\0",
            "slurmstepd: [3385.extern]",
            "slurmstepd: [3385.0 stepmgr]\0\0 ",
            "slurmstepd: [3385]",
        ] {
            assert_eq!(job(title), Some(3385), "{title:?}");
        }
        for title in [
            "slurmstepd: [3385:namespace]",
            "/usr/sbin/slurmstepd\0infinity\0",
            "sleep\x00100\0",
            "slurmstepd: [sEKNKTV3WPV500.0]",
            "slurmstepd: [3385.0",
            "slurmstepd: []",
            "",
        ] {
            assert_eq!(job(title), None, "{title:?}");
        }
    }

    proptest! {
        #[test]
        fn no_title_panics(title in proptest::collection::vec(any::<u8>(), 0..40)) {
            title_job(&title);
        }
    }
}
