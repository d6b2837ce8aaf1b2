//! `jobmeter run`: `/jobmeter/job_N` in every hierarchy that it could make it in. The directory may
//! belong to the caller, but only for a number that the server registered for that very user.

use super::{Name, Step, job_id};

/// What a directory below a hierarchy's root is.
pub(super) fn step<'a>(parts: &[&'a str]) -> Step<'a> {
    match parts {
        ["jobmeter"] => Step::Passage { own: false },
        ["jobmeter", name] => {
            match name.strip_prefix("job_").map(|digits| (digits, job_id(digits))) {
                Some((spelling, Some(id))) => {
                    Step::Job(Name { id, spelling, user: None, uid: None })
                }
                _ => Step::No,
            }
        }
        _ => Step::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_others() {
        assert!(matches!(step(&["jobmeter", "job_3"]), Step::Job(name) if name.id.get() == 3));
        assert_eq!(step(&["jobmeter"]), Step::Passage { own: false });
        for parts in [
            &["jobmeter", "job_03"][..],
            &["jobmeter", "3"],
            &["job_3"],
            &["jobmeter", "job_3", "job_4"],
        ] {
            assert_eq!(step(parts), Step::No, "{parts:?}");
        }
    }
}
