//! `jobmeter run`: `/jobmeter/job_N@SERVER` in every hierarchy that it could make it in, with the identity of the
//! server that numbered the job. The directory may belong to the caller, but only for a number that the server
//! registered for that very user.

use super::{Name, Step, job_id};

/// What a directory below a hierarchy's root is.
pub(super) fn step<'a>(parts: &[&'a str]) -> Step<'a> {
    match parts {
        ["jobmeter"] => Step::Passage { own: false },
        ["jobmeter", name] => name.strip_prefix("job_").and_then(job).map_or(Step::No, Step::Job),
        _ => Step::No,
    }
}

fn job(name: &str) -> Option<Name<'_>> {
    let (spelling, server) = match name.split_once('@') {
        Some((spelling, server)) => (spelling, Some(server)),
        None => (name, None),
    };
    let id = job_id(spelling)?;
    Some(Name { id, spelling, user: None, uid: None, server })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_others() {
        let named = |server| Name {
            id: "3".parse().unwrap(),
            spelling: "3",
            user: None,
            uid: None,
            server,
        };
        assert_eq!(step(&["jobmeter", "job_3"]), Step::Job(named(None)));
        assert_eq!(step(&["jobmeter", "job_3@3f2a"]), Step::Job(named(Some("3f2a"))));
        assert_eq!(step(&["jobmeter"]), Step::Passage { own: false });
        for parts in [
            &["jobmeter", "job_03"][..],
            &["jobmeter", "3"],
            &["job_3"],
            &["jobmeter", "job_3", "job_4"],
            &["jobmeter", "job_@3f2a"],
            &["jobmeter", "job_3x@3f2a"],
        ] {
            assert_eq!(step(parts), Step::No, "{parts:?}");
        }
    }
}
