//! A site's own layout, such as `pbspro.slice/pbspro-(?<job>\d+)\..*\.slice`.
//!
//! The pattern is a path from the hierarchy's root. Each part between `/` is a regular expression
//! that must match a directory's whole name; none can match a `/`. The named group `job` must
//! occur once, `user` and `uid` at most once.

use super::{DirectoryKind, Name, job_id, uid};
use model::ClusterId;
use regex_lite::Regex;

/// Maximum number of parts of a pattern.
const PARTS_MAX: usize = 12;

/// A site's own layout.
#[derive(Clone, Debug)]
pub struct Pattern {
    cluster: ClusterId,
    text: String,
    parts: Vec<Regex>,
}

/// Why a pattern is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// An empty pattern, or nothing between two `/`.
    #[error(
        "pattern `{0}` has an empty path component; write the path from the hierarchy's root, such \
         as `pbs/(?<job>\\d+)`"
    )]
    Empty(String),
    /// Too many parts.
    #[error("pattern `{0}` has more than {PARTS_MAX} parts between `/`")]
    Deep(String),
    /// A part is not a regular expression.
    #[error("part `{part}` of pattern `{pattern}`: {why}; a part cannot contain `/`")]
    Regex {
        /// The whole pattern.
        pattern: String,
        /// The part.
        part: String,
        /// The error of the regular expression.
        why: String,
    },
    /// No group `job`, or a duplicate group.
    #[error(
        "pattern `{pattern}` has the group `{group}` {count} times; `job` must occur once, `user` and `uid` at most once"
    )]
    Group {
        /// The whole pattern.
        pattern: String,
        /// The group's name.
        group: String,
        /// Number of its occurrences.
        count: usize,
    },
    /// An unknown group.
    #[error("pattern `{pattern}` has an unknown group `{group}`; use only `job`, `user` and `uid`")]
    Unknown {
        /// The whole pattern.
        pattern: String,
        /// The group's name.
        group: String,
    },
}

impl Pattern {
    /// A layout for jobs of a cluster, by the path to them; a leading `/` is optional.
    ///
    /// # Errors
    /// The pattern is empty, too deep, not a regular expression, or has wrong groups.
    pub fn new(cluster: ClusterId, pattern: &str) -> Result<Self, PatternError> {
        let mut parts = Vec::new();
        for part in pattern.strip_prefix('/').unwrap_or(pattern).split('/') {
            if part.is_empty() {
                return Err(PatternError::Empty(pattern.to_owned()));
            }
            let regex =
                Regex::new(&format!("^(?:{part})$")).map_err(|error| PatternError::Regex {
                    pattern: pattern.to_owned(),
                    part: part.to_owned(),
                    why: error.to_string(),
                })?;
            parts.push(regex);
        }
        if parts.len() > PARTS_MAX {
            return Err(PatternError::Deep(pattern.to_owned()));
        }
        check_groups(pattern, &parts)?;
        Ok(Self { cluster, text: pattern.to_owned(), parts })
    }

    /// The cluster of the jobs.
    pub const fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The pattern as configured.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn step<'a>(&self, parts: &[&'a str]) -> DirectoryKind<'a> {
        if parts.len() > self.parts.len() {
            return DirectoryKind::No;
        }
        let (mut job, mut user, mut user_number) = (None, None, None);
        for (regex, part) in self.parts.iter().zip(parts) {
            let Some(captures) = regex.captures(part) else { return DirectoryKind::No };
            job = job.or(captures.name("job").map(|found| found.as_str()));
            user = user.or(captures.name("user").map(|found| found.as_str()));
            user_number = user_number.or(captures.name("uid").map(|found| found.as_str()));
        }
        if parts.len() < self.parts.len() {
            return DirectoryKind::Passage { own: parts.len() + 1 == self.parts.len() };
        }
        match job.and_then(|digits| Some((digits, job_id(digits)?))) {
            Some((display_id, id)) => {
                let user = user.filter(|user| !user.is_empty());
                DirectoryKind::Job(Name {
                    id,
                    display_id,
                    user,
                    uid: user_number.and_then(uid),
                    server: None,
                })
            }
            None => DirectoryKind::No,
        }
    }
}

fn check_groups(pattern: &str, parts: &[Regex]) -> Result<(), PatternError> {
    let names = || parts.iter().flat_map(|regex| regex.capture_names().flatten());
    for (group, at_least) in [("job", 1), ("user", 0), ("uid", 0)] {
        let count = names().filter(|name| *name == group).count();
        if count > 1 || count < at_least {
            let (pattern, group) = (pattern.to_owned(), group.to_owned());
            return Err(PatternError::Group { pattern, group, count });
        }
    }
    match names().find(|name| !matches!(*name, "job" | "user" | "uid")) {
        Some(group) => {
            Err(PatternError::Unknown { pattern: pattern.to_owned(), group: group.to_owned() })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Result<Pattern, PatternError> {
        Pattern::new(ClusterId::new("pbs").unwrap(), text)
    }

    #[test]
    fn a_sites_own_layout() {
        let pbs =
            pattern(r"/pbs.slice/(?<user>[a-z]+)-(?<uid>\d+)/job(?<job>\d+)(\.srv)?").unwrap();
        assert_eq!(pbs.step(&["pbs.slice"]), DirectoryKind::Passage { own: false });
        assert_eq!(pbs.step(&["pbs.slice", "ann-7"]), DirectoryKind::Passage { own: true });
        let DirectoryKind::Job(name) = pbs.step(&["pbs.slice", "ann-7", "job12.srv"]) else {
            panic!()
        };
        assert_eq!(
            (name.id.get(), name.display_id, name.user, name.uid),
            (12, "12", Some("ann"), Some(7))
        );
        for parts in [
            &["pbs.slice", "ann-7", "job12.srvx"][..],
            &["pbs.slice", "ann-7", "xjob12"],
            &["pbs.slice", "ann-7", "job12", "x"],
            &["x", "pbs.slice", "ann-7"],
            &["pbs.slice", "ann-7", "job0"],
        ] {
            assert_eq!(pbs.step(parts), DirectoryKind::No, "{parts:?}");
        }
    }

    #[test]
    fn alternations_are_anchored() {
        let either = pattern("a|b/job_(?<job>1|22)").unwrap();
        assert_eq!(either.step(&["ax"]), DirectoryKind::No);
        assert_eq!(either.step(&["b", "job_223"]), DirectoryKind::No);
        assert!(matches!(either.step(&["b", "job_22"]), DirectoryKind::Job(_)));
    }

    #[test]
    fn invalid_patterns_are_rejected() {
        for text in ["", "/", "a//(?<job>1)", "a/(?<job>1)/"] {
            assert!(matches!(pattern(text), Err(PatternError::Empty(_))), "{text}");
        }
        assert!(matches!(
            pattern(&format!("{}(?<job>1)", "a/".repeat(12))),
            Err(PatternError::Deep(_))
        ));
        assert!(matches!(pattern("[/](?<job>1)"), Err(PatternError::Regex { .. })));
        assert!(matches!(pattern("job_(\\d+)"), Err(PatternError::Group { count: 0, .. })));
        assert!(matches!(
            pattern("(?<job>1)/(?<job>2)"),
            Err(PatternError::Group { count: 2, .. })
        ));
        assert!(matches!(pattern("(?<jobs>1)(?<job>2)"), Err(PatternError::Unknown { .. })));
    }
}
