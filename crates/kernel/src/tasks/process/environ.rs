//! `/proc/PID/environ`: the environment that a process was started with (proc_pid_environ(5)). It is read
//! from the process's own memory, so the process may have overwritten it with anything. Entries end with a
//! zero byte, except possibly the last one:
//!
//! ```text
//! HOME=/home/alice\0SLURM_JOB_ID=7\0JOBMETER_MONITOR=perf_.*\0
//! ```
//!
//! Reading it needs permission to trace the process: its owner's, or `CAP_SYS_PTRACE` and `CAP_DAC_READ_SEARCH`.

/// The value of a variable; if it occurs twice, the first, like getenv(3).
pub fn variable<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut entries = text.split(|byte| *byte == 0);
    entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The complete entries of a truncated text.
pub fn whole_entries(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte == 0).map_or(0, |last| last + 1);
    text.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] =
        b"HOME=/home/alice\0EMPTY=\0JOBMETER_MONITOR=perf_.*=x\0EMPTY=later\0LAST=1\0";

    #[test]
    fn the_variables_of_an_environment() {
        let value = |name| variable(TEXT, name).map(|value| value.escape_ascii().to_string());
        assert_eq!(value("JOBMETER_MONITOR").as_deref(), Some("perf_.*=x"));
        assert_eq!(value("EMPTY").as_deref(), Some(""), "the first of two");
        for none in ["JOBMETER", "JOBMETER_MONITOR_X", "ERMETER_MONITOR", "/home/alice", "home"] {
            assert_eq!(value(none), None, "{none}");
        }
        assert_eq!(variable(b"A=1\0LAST=2", "LAST"), Some(&b"2"[..]), "no zero at the end");
    }

    #[test]
    fn only_complete_entries_of_a_truncated_text_count() {
        let whole = b"perf_.*=x";
        for cut in 0..=TEXT.len() {
            let found = variable(whole_entries(&TEXT[..cut]), "JOBMETER_MONITOR");
            assert!(found.is_none_or(|value| value == whole), "{cut}");
            assert_eq!(found.is_some(), cut >= 51, "{cut}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), name in ".{0,3}") {
            variable(whole_entries(&bytes), &name);
            variable(&bytes, &name);
        }

        #[test]
        fn a_set_variable_is_found(
            others in prop::collection::vec("[a-z]{1,4}=[^\u{0}]{0,9}", 0..5),
            value in prop::collection::vec(1_u8.., 0..40),
            place: prop::sample::Index,
        ) {
            let own = [b"WANTED=", &value[..]].concat();
            let mut entries: Vec<Vec<u8>> = others.into_iter().map(String::into_bytes).collect();
            entries.insert(place.index(entries.len() + 1), own);
            let text = [entries.join(&0), vec![0]].concat();
            prop_assert_eq!(variable(&text, "WANTED"), Some(&value[..]));
        }
    }
}
