//! `jobmeter run`: `/jobmeter/job_N@SERVER` in every hierarchy in which it can create it, with the identity
//! of the server that assigned the ID; `run_N@SERVER` if `jobmeter run` reports the job itself. The directory
//! may belong to the caller, but only for a job ID that the server has registered for this user.

use super::{DirectoryKind, Name, job_id};

/// Classifies a directory below a hierarchy's root.
pub(super) fn step<'a>(parts: &[&'a str], runs: bool) -> DirectoryKind<'a> {
    match parts {
        ["jobmeter"] => DirectoryKind::Passage { own: false },
        ["jobmeter", name] => {
            let of_run = || name.strip_prefix("run_").filter(|_| runs);
            let rest = name.strip_prefix("job_").or_else(of_run);
            rest.and_then(job).map_or(DirectoryKind::No, DirectoryKind::Job)
        }
        _ => DirectoryKind::No,
    }
}

fn job(name: &str) -> Option<Name<'_>> {
    let (display_id, server) = match name.split_once('@') {
        Some((display_id, server)) => (display_id, Some(server)),
        None => (name, None),
    };
    let id = job_id(display_id)?;
    Some(Name { id, display_id, user: None, uid: None, server })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_others() {
        let named = |server| Name {
            id: "3".parse().unwrap(),
            display_id: "3",
            user: None,
            uid: None,
            server,
        };
        assert_eq!(step(&["jobmeter", "job_3"], false), DirectoryKind::Job(named(None)));
        assert_eq!(
            step(&["jobmeter", "job_3@3f2a"], false),
            DirectoryKind::Job(named(Some("3f2a")))
        );
        assert_eq!(step(&["jobmeter"], false), DirectoryKind::Passage { own: false });
        assert_eq!(
            step(&["jobmeter", "run_3@3f2a"], true),
            DirectoryKind::Job(named(Some("3f2a")))
        );
        assert_eq!(
            step(&["jobmeter", "run_3@3f2a"], false),
            DirectoryKind::No,
            "the run reports itself"
        );
        for parts in [
            &["jobmeter", "job_03"][..],
            &["jobmeter", "3"],
            &["job_3"],
            &["jobmeter", "job_3", "job_4"],
            &["jobmeter", "job_@3f2a"],
            &["jobmeter", "job_3x@3f2a"],
        ] {
            assert_eq!(step(parts, true), DirectoryKind::No, "{parts:?}");
        }
    }
}
