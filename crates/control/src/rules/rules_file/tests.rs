//! Tests of the rules.

use super::*;

/// The rules, or the errors, one per line.
fn parsed(text: &str) -> Result<Rules, String> {
    let (rules, errors) = parse(text, DAY);
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    if errors.is_empty() { Ok(rules) } else { Err(errors.join("\n")) }
}

#[test]
fn every_error_of_every_rule_is_reported_with_its_line() {
    let text = "[[rule]]\nname = \"a\"\nmetric = \"(\"\nqueue = \"q\"\njobs = 1\n\
                [[when]]\nname = \"hot\"\nmetric = \"load_1m\"\nabove = \"x\"\nfor = 30\nflush = \"cpu\"\n\
                [[when]]\nname = \"good\"\nmetric = \"load_1m\"\nabove = 1\nflush = \"cpu\"\n[other]\n";
    let (rules, errors) = parse(text, DAY);
    let mut lines: Vec<_> = errors.iter().filter_map(|error| error.line).collect();
    lines.sort_unstable();
    assert_eq!(lines, [3, 4, 5, 9, 10, 17], "{errors:?}");
    assert_eq!((rules.promoting.len(), rules.when.len()), (0, 1), "the valid one remains");
    let syntax = parsed("[[rule]]\nname = \n[[rule]]\nname = \"b\"\n").unwrap_err();
    assert!(syntax.contains("line 2") && syntax.contains("rule `b`"), "{syntax}");
}

#[test]
fn rules_are_read_and_checked() {
    let text = "[[rule]]\nname = \"a\"\nmetric = \"ipmi_.*\"\nnodes = \"gpu-*\"\n\
                [[rule]]\nname = \"b\"\nmetric = \"x\"\nclusters = [\"oar\"]\nqueues = [\"q\"]\n\
                [[rule]]\nname = \"c\"\nmetric = \"x\"\njobs = true\n";
    let rules = parsed(text).unwrap().promoting;
    assert_eq!(rules.len(), 3);
    assert!(!rules[0].is_of_jobs() && rules[1].is_of_jobs() && rules[2].is_of_jobs());
    assert_eq!(parsed("").unwrap(), Rules::default());
    for (bad, why) in [
        ("[[rule]]\nname = \"a\"\n", "metric"),
        ("[[rule]]\nname = \"a\"\nmetric = \"(\"\nnodes = \"n1\"\n", "at byte 1"),
        ("[[rule]]\nname = \"a\"\nmetric = \"x\"\nnodes = \"n[\"\n", "list of nodes"),
        ("[[rule]]\nname = \"a\"\nmetric = \"x\"\n", "`jobs = true`"),
        ("[[rule]]\nname = \"a\"\nmetric = \"x\"\nqueue = \"q\"\n", "queue"),
    ] {
        let error = parsed(bad).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn rules_about_values_are_read_and_checked() {
    let hot = "[[when]]\nname = \"hot\"\nmetric = \"hwmon_temperature_celsius\"\n";
    let text = format!(
        "{hot}labels = {{ chip = \"core\", sensor = \"1\" }}\nnodes = \"gpu-*\"\nabove = 95\n\
         back = 90.5\nfor = \"30s\"\nflush = \"cpu\"\npromote = \"perf_.*\"\npromote_for = \"5m\"\n\
         again_after = \"1h\"\n[[when]]\nname = \"idle\"\nmetric = \"load_1m\"\nbelow = 1_000\n\
         flush = \"load\"\n[[rule]]\nname = \"a\"\nmetric = \"x\"\njobs = true\n"
    );
    let Rules { promoting, when } = parsed(&text).unwrap();
    assert_eq!((promoting.len(), when.len()), (1, 2));
    let [first, second] = &when[..] else { panic!("{when:?}") };
    assert_eq!((first.beyond, first.back), (Threshold::Above(95.0), 90.5));
    assert_eq!((second.beyond, second.back), (Threshold::Below(1000.0), 1000.0));
    assert_eq!((first.lasts_us, first.promote_us), (30_000_000, 300_000_000));
    assert_eq!((first.again_us, second.again_us), (3_600_000_000, 600_000_000));
    assert_eq!(first.labels.len(), 2);
    assert_eq!((first.flush.as_deref(), second.promote.as_deref()), (Some("cpu"), None));
    for (more, why) in [
        ("flush = \"cpu\"", "`above` or `below`"),
        ("above = 1\nbelow = 2\nflush = \"cpu\"", "`above` or `below`"),
        ("above = 1", "`flush`, `promote`"),
        ("above = \"1\"\nflush = \"cpu\"", "`above` must be a number"),
        ("above = nan\nflush = \"cpu\"", "`above` must be a number"),
        ("above = 1\nback = 2\nflush = \"cpu\"", "`back`"),
        ("above = 1\nflush = \"CPU 7\"", "`flush` must be a source name"),
        ("above = 1\npromote = \"a(\"", "`promote` is not a regular expression"),
        ("above = 1\nflush = \"cpu\"\nfor = 30", "`for` must be a duration"),
        ("above = 1\nflush = \"cpu\"\nfor = \"2d\"", "`for` must be a duration up to 1d"),
        ("above = 1\npromote = \"a\"\npromote_for = \"2d\"", "`promote_for`"),
        ("above = 1\nflush = \"cpu\"\nnodes = \"n[\"", "list of nodes"),
        ("above = 1\nflush = \"cpu\"\nlabels = { a = 1 }", "must be a string"),
        ("above = 1\nflush = \"cpu\"\nabowe = 1", "did you mean `above`?"),
    ] {
        let error = parsed(&format!("{hot}{more}\n")).unwrap_err();
        assert!(error.contains(why) && error.contains("rule `hot`"), "{more}: {error}");
    }
    let twice = format!("{hot}above = 1\nflush = \"cpu\"\n").repeat(2);
    assert!(parsed(&twice).unwrap_err().contains("named `hot`"));
}
