//! Slurm's recorded and documented answers, as the jobs that the registry receives.

use super::answer::AnswerError;
use super::lines::{self, Marks};
use super::{answer, job_cache::*, *};
use jobs::Resources;
use model::JobState;
use proptest::prelude::*;

mod requests;

const SQUEUE: &str = include_str!("../../../../testdata/schedulers/slurm-22.05/squeue.json");
const SQUEUE_LATER: &str =
    include_str!("../../../../testdata/schedulers/slurm-22.05/squeue-later.json");
const SQUEUE_TEXT: &str = include_str!("../../../../testdata/schedulers/slurm-22.05/squeue.txt");
const SACCT: &str = include_str!("../../../../testdata/schedulers/slurm-22.05/sacct.json");
const SACCT_TEXT: &str = include_str!("../../../../testdata/schedulers/slurm-22.05/sacct.txt");
const NOTHING: &str =
    include_str!("../../../../testdata/schedulers/slurm-22.05/nothing-found.json");
const JOBS_41: &str = include_str!("../../../../testdata/schedulers/slurm-rest-v0.0.41/jobs.json");
const UNCHANGED_41: &str =
    include_str!("../../../../testdata/schedulers/slurm-rest-v0.0.41/unchanged.json");
const ACCOUNTING_41: &str =
    include_str!("../../../../testdata/schedulers/slurm-rest-v0.0.41/accounting.json");

fn cluster() -> ClusterId {
    ClusterId::new("slurm").unwrap()
}

fn controller(text: &str) -> Vec<ParsedJob> {
    let mut parse_errors = ParseErrors::default();
    let answer = answer::of_controller(text.as_bytes(), &cluster(), &mut parse_errors).unwrap();
    assert_eq!(parse_errors.done(), Vec::<String>::new());
    answer.jobs
}

fn accounting(text: &str) -> Vec<ParsedJob> {
    let mut parse_errors = ParseErrors::default();
    let answer = answer::of_accounting(text.as_bytes(), &cluster(), &mut parse_errors).unwrap();
    assert_eq!(parse_errors.done(), Vec::<String>::new());
    answer.jobs
}

fn record(jobs: &[ParsedJob], id: i64) -> &JobRecord {
    &jobs.iter().find(|job| job.record.key.id.get() == id).unwrap().record
}

/// ID, display ID, state and word, start and stop relative to submission, exit code, nodes.
fn lines_of(jobs: &[ParsedJob]) -> Vec<String> {
    let line = |ParsedJob { record, .. }: &ParsedJob| {
        let since = |at: Option<Timestamp>| {
            at.map_or("-".to_owned(), |at| (at.since(record.submit) / 1_000_000).to_string())
        };
        let nodes: Vec<&str> = record.nodes.iter().map(|share| share.device.as_str()).collect();
        let exit = record.facts.exit_code.map_or("-".to_owned(), |code| code.to_string());
        format!(
            "{} {} {} {} {} {} {exit} {}",
            record.key.id,
            record.display_id,
            record.state.word(),
            record.facts.state_word.as_deref().unwrap(),
            since(record.start),
            since(record.stop),
            nodes.join(",")
        )
    };
    let mut all: Vec<_> = jobs.iter().map(line).collect();
    all.sort();
    all
}

#[test]
fn the_controllers_jobs() {
    assert_eq!(
        lines_of(&controller(SQUEUE)),
        [
            "1  ended COMPLETED 0 4 0 n1",
            "10  failed CANCELLED - 8 0 ",
            "11  waiting PENDING - - - ",
            "12 4_1 running RUNNING 3 - - n1",
            "13 4_2 running RUNNING 3 - - n2",
            "2  failed FAILED 0 0 3 n1",
            "3  failed FAILED 0 0 137 n2",
            "4 4_3 waiting PENDING - - - ",
            "5  running RUNNING 6 - - n1,n2,n3,n4",
            "6 6+0 waiting PENDING - - - ",
            "7 6+1 waiting PENDING - - - ",
            "8  waiting PENDING - - - ",
            "9  waiting PENDING - - - ",
        ]
    );
    let jobs = controller(SQUEUE);
    let job = record(&jobs, 5);
    assert_eq!(job.facts.user.as_deref(), Some("root"));
    assert_eq!((job.facts.uid, job.facts.account.as_deref()), (Some(0), Some("root")));
    assert_eq!(
        (job.facts.name.as_deref(), job.facts.queue.as_deref()),
        (Some("multi"), Some("main"))
    );
    let requested = Resources {
        nodes: Some(4),
        cpus: Some(4),
        gpus: Some(4),
        memory_bytes: Some(1200 << 20),
        wall_seconds: Some(26.0 * 3600.0),
        cpu_seconds: None,
    };
    assert_eq!(job.facts.requested, requested);
    let share = &job.nodes[3];
    assert_eq!((share.cpus, share.gpus, &*share.gpu_list), (Some(1), Some(1), "0"));
    assert_eq!(share.memory_bytes, Some(300 << 20));
    assert_eq!(record(&jobs, 1).facts.types.as_deref().unwrap(), ["monitor=perf_.*".into()]);
}

/// Most of an array waits as one record; a heterogeneous job has two.
#[test]
fn arrays_and_heterogeneous_jobs() {
    let jobs = controller(SQUEUE_LATER);
    let waiting = record(&jobs, 14);
    assert_eq!(
        (&*waiting.display_id, waiting.facts.part_of, waiting.facts.array_index),
        ("", Some(14), None)
    );
    let running = record(&jobs, 18);
    assert_eq!(&*running.display_id, "14_1");
    assert_eq!((running.facts.part_of, running.facts.array_index), (Some(14), Some(1)));
    assert_eq!(running.facts.types.as_deref().unwrap(), ["monitor=net_.*".into(), "quick".into()]);
    let second = record(&jobs, 16);
    assert_eq!((&*second.display_id, second.facts.part_of), ("15+1", Some(15)));
}

#[test]
fn the_accountings_jobs() {
    assert_eq!(
        lines_of(&accounting(SACCT)),
        [
            "1  ended COMPLETED 0 4 0 n1",
            "10  failed CANCELLED - 8 0 ",
            "12 4_1 ended COMPLETED 3 23 0 n1",
            "13 4_2 ended COMPLETED 3 23 0 n2",
            // This version reports 0 for a job that ended with 3; the reader ignores it.
            "2  failed FAILED 0 0 - n1",
            "3  failed FAILED 0 0 137 n2",
            "4 4_3 ended COMPLETED 24 44 0 n1",
            "5  ended COMPLETED 6 231 0 n1,n2,n3,n4",
            "6 6+0 ended COMPLETED 24 84 0 n2",
            "7 6+1 ended COMPLETED 24 84 0 n3",
            "9  failed TIMEOUT 24 84 0 n4",
        ]
    );
    let jobs = accounting(SACCT);
    let job = record(&jobs, 5);
    let steps: Vec<_> =
        job.steps.iter().map(|step| (&*step.id, &*step.name, step.exit_code)).collect();
    assert_eq!(
        steps,
        [("batch", "batch", Some(0)), ("0", "sleep", Some(0)), ("1", "sleep", Some(0))]
    );
    assert!((job.facts.used.cpu_seconds.unwrap() - 0.042_182).abs() < 1e-9);
    assert_eq!(job.facts.used.memory_bytes, Some(4_124_672));
    assert_eq!((job.facts.used.gpus, job.facts.used.wall_seconds), (Some(4), Some(225.0)));
    assert_eq!(record(&jobs, 9).facts.requested.wall_seconds, Some(60.0));
}

/// Both formats agree on the same jobs.
#[test]
fn text_and_json_agree() {
    let mut parse_errors = ParseErrors::default();
    let text = lines::of_sacct(SACCT_TEXT, &Marks::recorded(), &cluster(), &mut parse_errors);
    let json = accounting(SACCT);
    let with_exit = |lines: Vec<String>| {
        lines.iter().map(|line| line.replace("FAILED 0 0 3", "FAILED 0 0 -")).collect::<Vec<_>>()
    };
    assert_eq!(with_exit(lines_of(&text)), lines_of(&json));
    for job in &json {
        let same = record(&text, job.record.key.id.get());
        assert_eq!(same.facts.requested, job.record.facts.requested, "{}", same.key);
        assert_eq!(same.facts.types, job.record.facts.types);
        assert_eq!(
            same.facts.used.memory_bytes.unwrap_or(0),
            job.record.facts.used.memory_bytes.unwrap_or(0)
        );
        let [text, json] =
            [same, &job.record].map(|record| record.facts.used.cpu_seconds.unwrap_or(0.0));
        // sacct writes thousandths, truncated.
        assert!((text - json).abs() < 0.0011, "{text} {json}");
        assert_eq!(same.steps.len(), job.record.steps.len());
    }
    let jobs = lines::of_squeue(SQUEUE_TEXT, &Marks::recorded(), &cluster(), &mut parse_errors);
    assert_eq!(
        lines_of(&jobs),
        [
            "11  waiting PENDING - - - ",
            "14 14_9 running RUNNING 125 - - n1",
            "21 14_4 ended COMPLETED 48 63 - n1",
            "22 14_5 ended COMPLETED 63 78 - n1",
            "23 14_6 ended COMPLETED 79 95 - n1",
            "24 14_7 ended COMPLETED 95 110 - n1",
            "25 14_8 ended COMPLETED 110 125 - n1",
            "8  waiting PENDING - - - ",
        ]
    );
    assert_eq!(parse_errors.done(), Vec::<String>::new());
}

/// A name with line breaks, and with the field separators of the recorded answers.
#[test]
fn text_with_breaks_in_names_is_read() {
    let marks = Marks::recorded();
    let first = SACCT_TEXT.lines().next().unwrap();
    let text = format!("a\nb\n{first}\n{first}\n");
    let mut parse_errors = ParseErrors::default();
    let jobs = lines::of_sacct(&text, &marks, &cluster(), &mut parse_errors);
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs[0].record.facts.name.as_deref(), Some("a\nb\ngood"));
    assert_ne!(Marks::random().delimiter(), Marks::random().delimiter());
}

#[test]
fn the_shapes_of_v0_0_41() {
    let jobs = controller(JOBS_41);
    assert_eq!(
        lines_of(&jobs),
        [
            "100  running RUNNING 10 - - dahu-1,dahu-2",
            "101  running COMPLETING 10 - - dahu-3",
            "102  waiting PENDING - - - ",
            "103 102_0 failed OUT_OF_MEMORY 10 20 137 dahu-3",
            "104  waiting PENDING - - - ",
        ]
    );
    let job = record(&jobs, 100);
    assert_eq!(job.facts.requested.gpus, Some(4));
    let share = &job.nodes[1];
    assert_eq!((share.cpus, share.gpus, &*share.gpu_list), (Some(4), Some(2), "2,3"));
    assert_eq!(share.memory_bytes, Some(4 << 30));
    assert_eq!(record(&jobs, 102).facts.requested.wall_seconds, None);
    let jobs = accounting(ACCOUNTING_41);
    assert_eq!(
        lines_of(&jobs),
        [
            "101  ended COMPLETED 10 100 0 dahu-3",
            "105 105+0 failed FAILED 10 100 3 dahu-3",
            "7  ended COMPLETED 10 100 0 dahu-3",
        ]
    );
    let job = record(&jobs, 101);
    assert_eq!(
        (job.facts.used.cpu_seconds, job.facts.used.memory_bytes),
        (Some(91.5), Some(2 << 20))
    );
    assert_eq!(job.steps.iter().map(|step| &*step.id).collect::<Vec<_>>(), ["batch", "0"]);
}

#[test]
fn answers_without_jobs() {
    let mut parse_errors = ParseErrors::default();
    let mut read =
        |text: &str| answer::of_controller(text.as_bytes(), &cluster(), &mut parse_errors);
    assert!(read(UNCHANGED_41).unwrap().is_unchanged);
    assert_eq!(read(JOBS_41).unwrap().last_update, Some(1_700_000_101));
    assert!(read(NOTHING).unwrap().jobs.is_empty());
    assert!(read("{\"jobs\": [], \"errors\": []}").unwrap().jobs.is_empty());
    let broken =
        "{\"jobs\": [], \"errors\": [{\"error\": \"Unable to contact\", \"error_number\": 7}]}";
    assert_eq!(
        read(broken).unwrap_err(),
        AnswerError::Rejected("Unable to contact (7)".to_owned())
    );
    assert_eq!(read("{}").unwrap_err(), AnswerError::Shape("it has no `jobs`".to_owned()));
    assert!(read("").is_err() && read("[]").is_err() && read("{\"jobs\": 7}").is_err());
}

/// An invalid job is named and skipped; the others are read.
#[test]
fn one_invalid_job_does_not_affect_others() {
    let jobs = r#"{"jobs": [null, {"job_id": 1}, {"job_id": 2, "job_state": "DANCING"},
        {"job_id": 3, "job_state": "PENDING"},
        {"job_id": 4, "job_state": "RUNNING", "submit_time": 1, "nodes": "n[1"},
        {"job_id": 5, "job_state": "RUNNING", "submit_time": 1, "nodes": {"x": 1}, "name": 7}]}"#;
    let mut parse_errors = ParseErrors::default();
    let answer = answer::of_controller(jobs.as_bytes(), &cluster(), &mut parse_errors).unwrap();
    assert_eq!(answer.jobs.len(), 2);
    let rejected = parse_errors.done();
    assert_eq!(rejected.len(), 5, "{rejected:?}");
    assert!(rejected[2].contains("DANCING") && rejected[4].contains("bracket"), "{rejected:?}");
}

/// For one job: the controller, its cores, the accounting, and the controller once more.
#[test]
fn each_report_is_merged_into_the_cached_job() {
    let now = Timestamp::from_seconds(1_795_264_700);
    let mut cache = JobCache::default();
    cache.begin_list();
    let take = |cache: &mut JobCache, jobs: Vec<ParsedJob>, reporter| -> Vec<JobRecord> {
        jobs.into_iter().filter_map(|job| cache.take(job, reporter, now)).collect()
    };
    assert_eq!(take(&mut cache, controller(SQUEUE), Reporter::Controller).len(), 13);
    assert!(cache.wants_details());
    let scontrol = include_str!("../../../../testdata/schedulers/slurm-22.05/scontrol.txt");
    let details = details::read(scontrol, &mut ParseErrors::default());
    assert_eq!(cache.take_details(details).len(), 3);
    assert!(!cache.wants_details());
    cache.end_list(now);
    assert_eq!(cache.awaited(), Some(Timestamp::from_seconds(1_795_264_439)));
    let changed = take(&mut cache, accounting(SACCT), Reporter::Accounting);
    let of = |id: i64| changed.iter().find(|record| record.key.id.get() == id).unwrap();
    // The accounting reports neither cores nor accelerators, and no exit code of job 2.
    assert_eq!((&*of(5).nodes[1].cpu_list, &*of(5).nodes[1].gpu_list), ("1", "0"));
    assert_eq!(of(5).state, JobState::Ended);
    assert_eq!(of(2).facts.exit_code, Some(3));
    assert_eq!(of(1).facts.uid, Some(0));
    // The controller's report of a completed and accounted job changes nothing more.
    cache.begin_list();
    assert_eq!(take(&mut cache, controller(SQUEUE), Reporter::Controller), []);
    // Jobs that it no longer lists stay cached for a while, for their accounting.
    cache.begin_list();
    cache.end_list(now);
    assert_eq!(cache.len(), 13);
    cache.begin_list();
    cache.end_list(now.plus(2 * 3600 * Timestamp::SECOND));
    assert_eq!(cache.len(), 2, "two never ended, and are awaited");
    cache.begin_list();
    cache.end_list(now.plus(2 * DAY_US));
    assert_eq!(cache.len(), 0);
}

#[test]
fn the_schedule_of_accounting_queries() {
    let at = |seconds: i64| Timestamp::from_seconds(1_700_000_000 + seconds);
    let from = at(-3 * 86_400);
    let mut accounting = Accounting::default();
    // Three days at the start, day by day and at once.
    for day in -3..0 {
        let window = accounting.window(from, at(0), None).unwrap();
        let overlap = if day == -3 { 0 } else { 600 };
        assert_eq!(window, (at(day * 86_400 - overlap), at((day + 1) * 86_400)));
        accounting.last_poll = Some(at(0));
        accounting.until = Some(window.1);
    }
    assert_eq!(accounting.window(from, at(59), None), None);
    assert_eq!(accounting.window(from, at(60), None), Some((at(-600), at(60))));
    // A completed job lacks its accounting.
    assert_eq!(accounting.window(from, at(9), Some(at(5))), None);
    assert_eq!(accounting.window(from, at(10), Some(at(5))), Some((at(-600), at(10))));
    assert_eq!(accounting.window(from, at(60), Some(at(-5000))), Some((at(-5000), at(60))));
    // An accounting that never arrives is not queried at each round.
    assert_eq!(accounting.window(from, at(20), Some(at(-5000))), None);
    accounting.rejection = Some("x".to_owned());
    assert_eq!(accounting.window(from, at(10), Some(at(5))), None);
    assert!(accounting.window(from, at(60), Some(at(5))).is_some());
    // A clock that was set back does not stop the queries.
    assert!(accounting.window(from, at(-60), None).is_some());
}

#[test]
fn every_truncated_answer_is_an_error_and_no_panic() {
    for text in [SQUEUE_LATER, JOBS_41] {
        let text = text.trim_end();
        for end in (0..text.len()).step_by(7) {
            let mut parse_errors = ParseErrors::default();
            let cut = &text.as_bytes()[..end];
            assert!(answer::of_controller(cut, &cluster(), &mut parse_errors).is_err());
        }
    }
    for end in 0..SACCT_TEXT.len() {
        let mut parse_errors = ParseErrors::default();
        let cut = SACCT_TEXT.get(..end).unwrap();
        lines::of_sacct(cut, &Marks::recorded(), &cluster(), &mut parse_errors);
    }
}

proptest! {
    /// Replaces values of an answer by arbitrary ones.
    #[test]
    fn no_answer_panics(value_index in 0_usize..200, value in "[0-9]{1,20}|\"[a-z0-9\\[\\],:-]{0,9}\"|\\[\\]|\\{\\}|null|-1") {
        for (text, is_controller) in [(SQUEUE_LATER, true), (JOBS_41, true), (ACCOUNTING_41, false)] {
            let Some((at, _)) = text.match_indices(": ").nth(value_index) else { continue };
            let (before, rest) = text.split_at(at);
            let (_, after) = rest.split_at(rest.find(['\n', ',']).unwrap_or(rest.len()));
            let text = format!("{before}: {value}{after}");
            let mut parse_errors = ParseErrors::default();
            let read = if is_controller { answer::of_controller } else { answer::of_accounting };
            read(text.as_bytes(), &cluster(), &mut parse_errors).ok();
        }
    }

    #[test]
    fn no_text_panics(text in "([0-9a-z\\[\\]_+.:-]{0,5}|\\|F\\||\\|R\\||\n){0,60}") {
        let mut parse_errors = ParseErrors::default();
        lines::of_sacct(&text, &Marks::recorded(), &cluster(), &mut parse_errors);
        lines::of_squeue(&text, &Marks::recorded(), &cluster(), &mut parse_errors);
    }
}
