//! Tests of the checks of followers: stores whose followers have one flaw each fail the check for it.

use super::flawed::Flawed;
use conformance::*;
use std::panic::catch_unwind;
use std::sync::atomic::Ordering;
use storage::{FollowError, FollowFrom, FollowSlice, FollowerInfo, Followers};

/// Omits the last sample of a slice.
const OMITTING: u8 = 20;
/// Delivers some slices twice: it does not move the position.
const DOUBLING: u8 = 21;
/// Delivers samples that the limits of series rejected.
pub(super) const UNSIEVED: u8 = 22;
/// Moves the position without a confirmation.
const HASTY: u8 = 23;
/// Delivers no gap.
const GAPLESS: u8 = 24;
/// Delivers all samples at once.
const GENEROUS: u8 = 25;
/// Gives all slices the same mark.
const UNMARKED: u8 = 27;
/// Does not state that samples are lost.
const DISCREET: u8 = 26;

impl<const FLAW: u8> Flawed<FLAW> {
    fn following(&self) -> &dyn Followers {
        self.followed.as_ref().unwrap_or(&self.of).followers()
    }
}

impl<const FLAW: u8> Followed for Flawed<FLAW> {
    fn followers(&self) -> &dyn Followers {
        self
    }
}

impl<const FLAW: u8> Followers for Flawed<FLAW> {
    fn follow(&self, name: &str, from: FollowFrom) -> Result<(), FollowError> {
        self.following().follow(name, from)
    }

    fn next(&self, name: &str, rows_max: usize) -> Result<Option<FollowSlice>, FollowError> {
        let rows_max = if FLAW == GENEROUS { 1000 } else { rows_max };
        let Some(mut slice) = self.following().next(name, rows_max)? else { return Ok(None) };
        match FLAW {
            OMITTING if slice.samples.times.len() > 1 => {
                slice.samples.places.pop();
                slice.samples.times.pop();
                slice.samples.values.pop();
                slice.samples.starts.pop();
            }
            HASTY => self.following().confirm(name, slice.number)?,
            UNMARKED => slice.at.confirmed = 0,
            GAPLESS => slice.gaps.clear(),
            DISCREET => slice.lost = None,
            _ => {}
        }
        Ok(Some(slice))
    }

    fn confirm(&self, name: &str, number: u64) -> Result<(), FollowError> {
        let calls = self.confirmed.fetch_add(1, Ordering::SeqCst);
        match FLAW {
            DOUBLING if calls % 5 == 4 => Ok(()),
            HASTY => Ok(()),
            _ => self.following().confirm(name, number),
        }
    }

    fn remove(&self, name: &str) -> Result<(), FollowError> {
        self.following().remove(name)
    }

    fn list(&self) -> Result<Vec<FollowerInfo>, FollowError> {
        self.following().list()
    }
}

#[test]
fn every_flaw_of_followers_is_found_by_the_check_of_its_rule() {
    let checks: [(&str, fn()); 8] = [
        ("omitting", a_follower_receives_each_stored_sample_once::<Flawed<OMITTING>>),
        ("doubling", a_follower_receives_each_stored_sample_once::<Flawed<DOUBLING>>),
        ("unsieved", rejected_samples_are_not_delivered::<Flawed<UNSIEVED>>),
        ("hasty", only_a_confirmation_moves_a_position::<Flawed<HASTY>>),
        ("unmarked", only_a_confirmation_moves_a_position::<Flawed<UNMARKED>>),
        ("gapless", reported_gaps_are_delivered_once::<Flawed<GAPLESS>>),
        ("generous", a_slice_is_bounded::<Flawed<GENEROUS>>),
        ("discreet", deleted_samples_are_an_output_gap::<Flawed<DISCREET>>),
    ];
    for (flaw, check) in checks {
        assert!(catch_unwind(check).is_err(), "nothing was noticed of {flaw} followers");
    }
}

/// The flaws are those of the stores alone: without one, the same store passes.
#[test]
fn without_a_flaw_the_checks_pass() {
    const NONE: u8 = 99;
    rejected_samples_are_not_delivered::<Flawed<NONE>>();
    reported_gaps_are_delivered_once::<Flawed<NONE>>();
}
