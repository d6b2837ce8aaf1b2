//! Suggests the closest known name.

/// The name closest to the written one, if at most a third of its letters differ.
pub fn nearest<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = written.chars().count();
    let far = |name: &str| name.chars().count().max(length) / 3;
    names
        .into_iter()
        // The lengths alone exclude most names. Otherwise a text of megabytes would take seconds.
        .filter(|name| name.chars().count().abs_diff(length) <= far(name).max(1))
        .map(|name| (distance(written, name), name))
        .filter(|(distance, name)| *distance <= far(name).max(1))
        .min()
        .map(|(_, name)| name)
}

/// Number of letters to insert, remove, change or swap with their neighbour to get `b` from `a`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let (mut before_last, mut last) = (Vec::new(), (0..=b.len()).collect::<Vec<_>>());
    for (i, x) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX - 1);
            let changed = at(&last, j) + usize::from(x != y);
            let mut least = changed.min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                least = least.min(at(&before_last, j - 1) + 1);
            }
            row.push(least);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn closest_names() {
        let names = ["period", "server", "spool", "spool_sync"];
        for (written, closest) in [
            ("perod", Some("period")),
            ("preiod", Some("period")),
            ("Spool", Some("spool")),
            ("spool_snyc", Some("spool_sync")),
            ("x", None),
            ("listen", None),
        ] {
            assert_eq!(nearest(written, names), closest, "{written}");
        }
    }

    #[test]
    fn a_long_text_resembles_no_short_name() {
        #[expect(clippy::disallowed_methods, reason = "the duration is tested")]
        let begun = std::time::Instant::now();
        assert_eq!(nearest(&"x".repeat(8 << 20), ["period"; 16]), None);
        assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
    }

    proptest! {
        #[test]
        fn distance_is_one(a in ".{0,12}", b in ".{0,12}") {
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert!(distance(&a, &b) <= a.chars().count().max(b.chars().count()));
        }
    }
}
