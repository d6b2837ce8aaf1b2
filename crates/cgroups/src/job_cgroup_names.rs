//! Naming of the schedulers' job cgroups: one file per layout.
//!
//! A layout classifies a directory by its path from the hierarchy's root: it is a job's, may contain jobs, or
//! is irrelevant. The whole path decides, never a part of it: `…/user.slice/…/job_1` is not a Slurm job. The
//! ownership of directories is checked elsewhere, for all layouts.

mod local;
mod oar;
mod pattern;
mod slurm;
mod units;

pub use pattern::{Pattern, PatternError};
pub(crate) use slurm::title_job;

use model::{ClusterId, JobId};

/// Maximum depth of directories, counted from the hierarchy's root.
pub(crate) const DEPTH_MAX: usize = 16;

/// Classification of a directory by a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DirectoryKind<'a> {
    /// Irrelevant.
    No,
    /// May contain jobs; `own` if only its scheduler creates such a directory.
    Passage { own: bool },
    /// A job's directory.
    Job(Name<'a>),
    /// A Slurm job's directory, named by its SLUID.
    Sluid,
    /// A systemd service, scope or session.
    Unit,
}

/// Properties of a job in its directory's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    /// Job ID.
    pub(crate) id: JobId,
    /// Job ID as written.
    pub(crate) display_id: &'a str,
    /// Login name.
    pub(crate) user: Option<&'a str>,
    /// User ID.
    pub(crate) uid: Option<u32>,
    /// Identity of the server that assigned the ID.
    pub(crate) server: Option<&'a str>,
}

/// A layout with its start in the hierarchies.
#[derive(Clone, Debug)]
pub(crate) struct LayoutRoot {
    /// The cluster of the jobs.
    pub(crate) cluster: ClusterId,
    /// Path from each hierarchy's root to the start of the layout.
    pub(crate) prefix: Vec<Box<str>>,
    /// The layout.
    pub(crate) rule: Rule,
}

/// A layout.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// OAR. `stem`: in a slice, the prefix of the slices' names.
    Oar { stem: Option<Box<str>> },
    /// Slurm, from the hierarchy's root.
    Slurm,
    /// Slurm, from the directory of its users or jobs.
    SlurmInside,
    /// `jobmeter run`; `runs` includes the jobs that no agent reports.
    Local { runs: bool },
    /// A site's own layout.
    Pattern(Pattern),
    /// systemd's services and sessions, which are not jobs.
    Units,
}

impl LayoutRoot {
    /// Classifies a directory by its path from the hierarchy's root.
    pub(crate) fn step<'a>(&self, parts: &[&'a str]) -> DirectoryKind<'a> {
        let on_the_way = parts.iter().zip(&self.prefix).all(|(part, name)| **part == **name);
        if parts.is_empty() || !on_the_way {
            return DirectoryKind::No;
        }
        match parts.get(self.prefix.len()..) {
            None => DirectoryKind::Passage { own: false },
            Some([]) => DirectoryKind::Passage {
                own: !matches!(self.rule, Rule::Local { .. } | Rule::Units),
            },
            Some(rest) => match &self.rule {
                Rule::Oar { stem } => oar::step(stem.as_deref(), rest),
                Rule::Slurm => slurm::step(rest),
                Rule::SlurmInside => slurm::inside(rest),
                Rule::Local { runs } => local::step(rest, *runs),
                Rule::Pattern(pattern) => pattern.step(rest),
                Rule::Units => units::step(rest),
            },
        }
    }
}

/// Parses a job ID: digits without a leading 0, so that each ID has one form.
fn job_id(digits: &str) -> Option<JobId> {
    if digits.starts_with('0') { None } else { digits.parse().ok() }
}

/// Parses a user ID.
fn uid(digits: &str) -> Option<u32> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

/// The name without systemd's suffix of a slice or scope, and whether it had one.
fn unit_stem(name: &str) -> (&str, bool) {
    let stem = name.strip_suffix(".slice").or_else(|| name.strip_suffix(".scope"));
    stem.map_or((name, false), |stem| (stem, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<LayoutRoot> {
        let cluster = ClusterId::local();
        let pattern = Pattern::new(cluster.clone(), r"pbs/(?<job>\d+)\.server").unwrap();
        let place = |prefix: &[&str], rule| LayoutRoot {
            cluster: cluster.clone(),
            prefix: prefix.iter().map(|part| (*part).into()).collect(),
            rule,
        };
        vec![
            place(&["oar"], Rule::Oar { stem: None }),
            place(&["oar.slice"], Rule::Oar { stem: Some("oar".into()) }),
            place(&[], Rule::Slurm),
            place(&["hpc.slice", "slurmstepd.scope"], Rule::SlurmInside),
            place(&[], Rule::Local { runs: true }),
            place(&[], Rule::Pattern(pattern)),
        ]
    }

    const JOBS: &[&str] = &[
        "oar/alice_12",
        "oar.slice/oar-u1000.slice/oar-u1000-j12.slice",
        "slurm/uid_1000/job_12",
        "slurm_n1/uid_1000/job_12",
        "slurmstepd.scope/job_12",
        "system.slice/n1_slurmstepd.scope/job_12",
        "hpc.slice/slurmstepd.scope/job_12",
        "jobmeter/job_12",
        "jobmeter/job_12@3f2a91bc0d1e",
        "pbs/12.server",
    ];

    fn is_job(path: &str) -> bool {
        let parts: Vec<_> = path.split('/').collect();
        all().iter().any(|place| matches!(place.step(&parts), DirectoryKind::Job(_)))
    }

    #[test]
    fn parents_of_a_job_are_passages_and_its_children_are_not_jobs() {
        for path in JOBS {
            assert!(is_job(path), "{path}");
            let parts: Vec<_> = path.split('/').collect();
            for length in 1..parts.len() {
                let passable = |place: &LayoutRoot| {
                    matches!(place.step(&parts[..length]), DirectoryKind::Passage { .. })
                };
                assert!(all().iter().any(passable), "{path} at {length}");
            }
            for below in ["job_1", "step_0", "alice_1", "oar-u1-j1.scope"] {
                assert!(!is_job(&format!("{path}/{below}")), "{path}/{below}");
            }
        }
    }

    #[test]
    fn a_path_elsewhere_is_not_a_job() {
        for path in JOBS {
            for before in
                ["user.slice", "user.slice/user-1000.slice/user@1000.service", "x", "oar", "slurm"]
            {
                assert!(!is_job(&format!("{before}/{path}")), "{before}/{path}");
            }
        }
        assert!(!is_job("job_12") && !is_job("alice_12") && !is_job("oar-u1-j12.slice"));
    }

    #[test]
    fn ids_have_one_notation() {
        for digits in ["", "0", "012", "+1", "-1", "1_0", "9223372036854775808", "x"] {
            assert_eq!(job_id(digits), None, "{digits}");
        }
        assert_eq!(
            (uid("0"), uid("4294967295"), uid("4294967296"), uid("+1")),
            (Some(0), Some(u32::MAX), None, None)
        );
    }

    proptest! {
        #[test]
        fn no_path_panics(parts in proptest::collection::vec(".{0,12}", 0..6)) {
            let parts: Vec<_> = parts.iter().map(String::as_str).collect();
            for place in all() {
                place.step(&parts);
            }
            units::step(&parts);
        }

        #[test]
        fn no_path_of_known_words_panics_or_is_two_jobs(
            words in proptest::collection::vec(0_usize..16, 1..6),
        ) {
            const WORDS: [&str; 16] = [
                "oar", "oar.slice", "oar-u1.slice", "oar-u1-j2.slice", "alice_3", "slurm", "slurm_n", "uid_1",
                "job_4", "system.slice", "slurmstepd.scope", "step_0", "jobmeter", "pbs", "5.server", "user.slice",
            ];
            let parts: Vec<_> = words.iter().map(|word| WORDS[*word]).collect();
            let places = all();
            let jobs = places.iter().filter(|place| matches!(place.step(&parts), DirectoryKind::Job(_)));
            prop_assert!(jobs.count() <= 1);
        }
    }
}
