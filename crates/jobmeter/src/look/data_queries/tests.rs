//! Tests of the data queries.

use super::passed::BytesPassed;
use super::*;

#[test]
fn the_first_and_last_time_of_an_answer_are_shown() {
    let zone = TimeZone::get("Europe/Paris").unwrap();
    let times = Times::at(Timestamp::from_seconds(1_767_706_500), zone);
    let mut seen = AnswerEnds::default();
    let mut body = String::from("timestamp,device_id\n2026-01-06T13:00:00+00:00,n1\n");
    body.push_str(&"2026-01-06T13:10:00.5+00:00,n1\n".repeat(2000));
    body.push_str("2026-01-06T13:20:00+00:00,n1\n");
    let mut out = Vec::new();
    pass(EndsReader { body: body.as_bytes(), seen: &mut seen, progress: None }, &mut out).unwrap();
    assert_eq!(
        whole("7", "samples", &seen, None, &times),
        "all samples of job 7 from 14:00:00 to 14:20:00; restrict them with --since, --until \
         or --last"
    );
    let mut seen = AnswerEnds::default();
    seen.take(b"timestamp,value\n\"2026-01-06 13:00:00.5+00\",2026\n2026-01-06 13:10:00+00,20\n");
    let at = |text: &str| Timestamp::parse(text).ok();
    assert_eq!(seen.first(), at("2026-01-06T13:00:00.5Z"));
    assert_eq!(seen.last(), at("2026-01-06T13:10:00Z"));
}

#[test]
fn a_time_is_cut_to_that_of_the_job() {
    let at = Timestamp::from_seconds;
    let job = JobTimes { id: "7".to_owned(), from: at(100), to: at(200), runs_now: false };
    let span = |from: Option<i64>, to: Option<i64>| Span { from: from.map(at), to: to.map(at) };
    for (interval_wanted, cut) in [
        (span(Some(50), Some(300)), span(None, None)),
        (span(Some(120), None), span(Some(120), None)),
        (span(Some(50), Some(150)), span(None, Some(150))),
        (span(Some(120), Some(150)), span(Some(120), Some(150))),
    ] {
        assert!(!job.misses(interval_wanted));
        assert_eq!(job.within(interval_wanted), cut);
    }
    for interval_wanted in [span(Some(201), None), span(None, Some(99)), span(Some(300), Some(400))]
    {
        let Span { from, to } = job.within(interval_wanted);
        assert!(job.misses(interval_wanted) && from > to, "{interval_wanted:?}");
    }
    let times = Times::at(at(300), TimeZone::UTC);
    assert_eq!(job.text(&times), "job 7 ran from 00:01:40 to 00:03:20");
    let line = whole("7", WINDOWS, &AnswerEnds::default(), Some(&job), &times);
    assert_eq!(line, "five-minute windows of job 7; job 7 ran from 00:01:40 to 00:03:20");
}

#[test]
fn whether_an_answer_has_rows() {
    let passed = |text: &str| {
        let mut out = Vec::new();
        let passed = pass(text.as_bytes(), &mut out).unwrap();
        assert_eq!(out, text.as_bytes());
        passed
    };
    assert_eq!(passed("timestamp,device_id\n"), BytesPassed { lines: 1, marks: 19 });
    assert_eq!(passed("a\n1\n").lines, 2);
    assert_eq!(passed("[\n]\n").marks, 2);
    let mut out = Vec::new();
    let cell = |place: usize, text: &str| format!("{place}{text}");
    assert!(!print_table("a,b\n".as_bytes(), &mut out, cell).unwrap());
    assert!(print_table("a,b\n1,2\n".as_bytes(), &mut out, cell).unwrap());
    assert_eq!(String::from_utf8(out).unwrap(), "a  b\na   b\n01  12\n");
}

#[test]
fn a_zone_without_a_name_is_its_offset() {
    let now = Timestamp::from_seconds(1_767_706_500);
    let name = |zone: TimeZone| named_zone(zone, now).0;
    assert_eq!(name(TimeZone::get("Europe/Paris").unwrap()), "Europe/Paris");
    assert_eq!(name(TimeZone::UTC), "UTC");
    assert_eq!(name(TimeZone::posix("XYZ-5:30").unwrap()), "+05:30");
    assert_eq!(name(TimeZone::unknown()), "+00:00");
}
