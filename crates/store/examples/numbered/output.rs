//! A follower that delivers to a file, for tests that kill the program.
//!
//! Each slice is a line of its samples (`series@instant`) and lost samples (`lost NUMBER`) that begins with `slice`, and is followed by a
//! line `confirmed` once the store has confirmed it. A last line without it is confirmed or not.

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use storage::{FollowFrom, FollowSlice, Followers, Storage as _};
use store::Store;

const NAME: &str = "file";
/// Rows of a slice.
const ROWS: usize = 60;

/// The file, and the follower of that name.
pub(crate) struct Output {
    path: PathBuf,
    file: File,
}

fn followers(store: &Store) -> Result<&dyn Followers, Box<dyn Error>> {
    Ok(store.followers().ok_or("the store has no followers")?)
}

impl Output {
    /// Continues the file of `RECEIVED`, if it is set.
    pub(crate) fn open(store: &Store) -> Result<Option<Self>, Box<dyn Error>> {
        let Some(path) = std::env::var_os("RECEIVED").map(PathBuf::from) else { return Ok(None) };
        followers(store)?.follow(NAME, FollowFrom::All)?;
        let mut file = File::options().create(true).append(true).open(&path)?;
        // A line that a kill cut short ends here.
        writeln!(file)?;
        Ok(Some(Self { path, file }))
    }

    /// Delivers some slices: fewer than arrive for a while, then more.
    pub(crate) fn deliver(&mut self, store: &Store, round: u64) -> Result<(), Box<dyn Error>> {
        let slices = if round % 200 < 120 { round % 2 } else { 8 };
        for _ in 0..slices {
            if !self.one(store)? {
                break;
            }
        }
        Ok(())
    }

    /// Delivers all that is left.
    pub(crate) fn finish(&mut self, store: &Store) -> Result<(), Box<dyn Error>> {
        while self.one(store)? {}
        Ok(())
    }

    fn one(&mut self, store: &Store) -> Result<bool, Box<dyn Error>> {
        let Some(slice) = followers(store)?.next(NAME, ROWS)? else { return Ok(false) };
        let FollowSlice { number, samples, lost, .. } = &slice;
        let mut line = "slice".to_owned();
        for (place, at) in samples.places.iter().zip(&samples.times) {
            let series = samples.series.get(*place as usize).ok_or("a row without a series")?;
            let series = &series.series;
            let labels = series.labels.to_string().replace(' ', "");
            line.push_str(&format!(" {}/{}/{labels}@{at}", series.device, series.metric));
        }
        if let Some(lost) = lost {
            line.push_str(&format!(" lost {}", lost.samples));
        }
        writeln!(self.file, "{line}")?;
        followers(store)?.confirm(NAME, *number)?;
        writeln!(self.file, "confirmed")?;
        Ok(true)
    }

    /// Checks that each of so many samples was delivered once or is lost.
    pub(crate) fn check(&self, samples: u64) -> Result<(), Box<dyn Error>> {
        let text = std::fs::read_to_string(&self.path)?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
        let (mut delivered, mut maybe) = (BTreeSet::new(), BTreeSet::new());
        let (mut lost, mut maybe_lost) = (0, 0);
        for (line, next) in lines.iter().zip(lines.iter().skip(1).chain([&""])) {
            let Some(slice) = line.strip_prefix("slice") else { continue };
            let is_confirmed = *next == "confirmed";
            let (rows, of_slice) = slice.split_once(" lost ").unwrap_or((slice, "0"));
            // A kill may cut an unconfirmed line short.
            let of_slice: u64 = of_slice.parse().unwrap_or(0);
            if is_confirmed {
                lost += of_slice;
            } else {
                maybe_lost += of_slice;
            }
            for row in rows.split_whitespace() {
                if !is_confirmed {
                    maybe.insert(row);
                } else if !delivered.insert(row) {
                    return Err(format!("{row} is delivered twice").into());
                }
            }
        }
        let sure = delivered.len() as u64 + lost;
        let most = delivered.union(&maybe).count() as u64 + lost + maybe_lost;
        // A slice of a killed program counts once: delivered again or confirmed.
        if sure > samples || most < samples {
            return Err(format!("{sure} to {most} of {samples} samples, {lost} lost").into());
        }
        Ok(())
    }
}
