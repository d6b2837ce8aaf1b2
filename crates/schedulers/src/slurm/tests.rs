//! Slurm's answers, recorded and documented, as the jobs that the registry gets.

use super::answer::Wrong;
use super::lines::{self, Marks};
use super::{answer, known::*, *};
use jobs::Resources;
use model::JobState;
use proptest::prelude::*;

mod asked;

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

fn controller(text: &str) -> Vec<AnsweredJob> {
    let mut refusals = Refusals::default();
    let answer = answer::of_controller(text.as_bytes(), &cluster(), &mut refusals).unwrap();
    assert_eq!(refusals.done(), Vec::<String>::new());
    answer.jobs
}

fn accounting(text: &str) -> Vec<AnsweredJob> {
    let mut refusals = Refusals::default();
    let answer = answer::of_accounting(text.as_bytes(), &cluster(), &mut refusals).unwrap();
    assert_eq!(refusals.done(), Vec::<String>::new());
    answer.jobs
}

fn record(jobs: &[AnsweredJob], id: i64) -> &Record {
    &jobs.iter().find(|told| told.record.key.id.get() == id).unwrap().record
}

/// Number, spelling, state and word, start and stop from submission on, exit code, nodes.
fn lines_of(jobs: &[AnsweredJob]) -> Vec<String> {
    let line = |AnsweredJob { record, .. }: &AnsweredJob| {
        let since = |at: Option<Timestamp>| {
            at.map_or("-".to_owned(), |at| (at.since(record.submit) / 1_000_000).to_string())
        };
        let nodes: Vec<&str> = record.nodes.iter().map(|share| share.device.as_str()).collect();
        let exit = record.exit_code.map_or("-".to_owned(), |code| code.to_string());
        format!(
            "{} {} {} {} {} {} {exit} {}",
            record.key.id,
            record.spelling,
            record.state.word(),
            record.state_word,
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
    assert_eq!(job.user.as_deref(), Some("root"));
    assert_eq!((job.uid, job.account.as_deref()), (Some(0), Some("root")));
    assert_eq!((job.name.as_deref(), job.queue.as_deref()), (Some("multi"), Some("main")));
    let requested = Resources {
        nodes: Some(4),
        cpus: Some(4),
        gpus: Some(4),
        memory_bytes: Some(1200 << 20),
        wall_seconds: Some(26.0 * 3600.0),
        cpu_seconds: None,
    };
    assert_eq!(job.requested, requested);
    let share = &job.nodes[3];
    assert_eq!((share.cpus, share.gpus, &*share.gpu_list), (Some(1), Some(1), "0"));
    assert_eq!(share.memory_bytes, Some(300 << 20));
    assert_eq!(*record(&jobs, 1).types, ["monitor=perf_.*".into()]);
}

/// Of an array most waits as one record; a heterogeneous job has two.
#[test]
fn arrays_and_heterogeneous_jobs() {
    let jobs = controller(SQUEUE_LATER);
    let waiting = record(&jobs, 14);
    assert_eq!((&*waiting.spelling, waiting.part_of, waiting.array_index), ("", Some(14), None));
    let running = record(&jobs, 18);
    assert_eq!(&*running.spelling, "14_1");
    assert_eq!((running.part_of, running.array_index), (Some(14), Some(1)));
    assert_eq!(*running.types, ["monitor=net_.*".into(), "quick".into()]);
    let second = record(&jobs, 16);
    assert_eq!((&*second.spelling, second.part_of), ("15+1", Some(15)));
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
            // This version says 0 of a job that ended with 3, which is no answer.
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
    assert!((job.used.cpu_seconds.unwrap() - 0.042_182).abs() < 1e-9);
    assert_eq!(job.used.memory_bytes, Some(4_124_672));
    assert_eq!((job.used.gpus, job.used.wall_seconds), (Some(4), Some(225.0)));
    assert_eq!(record(&jobs, 9).requested.wall_seconds, Some(60.0));
}

/// The same jobs by text: what both tell is the same.
#[test]
fn text_says_what_json_says() {
    let mut refusals = Refusals::default();
    let text = lines::of_sacct(SACCT_TEXT, &Marks::recorded(), &cluster(), &mut refusals);
    let json = accounting(SACCT);
    let with_exit = |lines: Vec<String>| {
        lines.iter().map(|line| line.replace("FAILED 0 0 3", "FAILED 0 0 -")).collect::<Vec<_>>()
    };
    assert_eq!(with_exit(lines_of(&text)), lines_of(&json));
    for told in &json {
        let same = record(&text, told.record.key.id.get());
        assert_eq!(same.requested, told.record.requested, "{}", same.key);
        assert_eq!(same.types, told.record.types);
        assert_eq!(same.used.memory_bytes.unwrap_or(0), told.record.used.memory_bytes.unwrap_or(0));
        let [text, json] =
            [same, &told.record].map(|record| record.used.cpu_seconds.unwrap_or(0.0));
        // sacct writes thousandths, cut off.
        assert!((text - json).abs() < 0.0011, "{text} {json}");
        assert_eq!(same.steps.len(), told.record.steps.len());
    }
    let jobs = lines::of_squeue(SQUEUE_TEXT, &Marks::recorded(), &cluster(), &mut refusals);
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
    assert_eq!(refusals.done(), Vec::<String>::new());
}

/// A name with line breaks, and with what separates fields in the recorded answers.
#[test]
fn text_with_breaks_in_names_is_read() {
    let marks = Marks::recorded();
    let first = SACCT_TEXT.lines().next().unwrap();
    let text = format!("a\nb\n{first}\n{first}\n");
    let mut refusals = Refusals::default();
    let jobs = lines::of_sacct(&text, &marks, &cluster(), &mut refusals);
    assert_eq!(jobs.len(), 2);
    assert_eq!(jobs[0].record.name.as_deref(), Some("a\nb\ngood"));
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
    assert_eq!(job.requested.gpus, Some(4));
    let share = &job.nodes[1];
    assert_eq!((share.cpus, share.gpus, &*share.gpu_list), (Some(4), Some(2), "2,3"));
    assert_eq!(share.memory_bytes, Some(4 << 30));
    assert_eq!(record(&jobs, 102).requested.wall_seconds, None);
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
    assert_eq!((job.used.cpu_seconds, job.used.memory_bytes), (Some(91.5), Some(2 << 20)));
    assert_eq!(job.steps.iter().map(|step| &*step.id).collect::<Vec<_>>(), ["batch", "0"]);
}

#[test]
fn answers_without_jobs() {
    let mut refusals = Refusals::default();
    let mut read = |text: &str| answer::of_controller(text.as_bytes(), &cluster(), &mut refusals);
    assert!(read(UNCHANGED_41).unwrap().is_unchanged);
    assert_eq!(read(JOBS_41).unwrap().last_update, Some(1_700_000_101));
    assert!(read(NOTHING).unwrap().jobs.is_empty());
    assert!(read("{\"jobs\": [], \"errors\": []}").unwrap().jobs.is_empty());
    let broken =
        "{\"jobs\": [], \"errors\": [{\"error\": \"Unable to contact\", \"error_number\": 7}]}";
    assert_eq!(read(broken).unwrap_err(), Wrong::Refused("Unable to contact (7)".to_owned()));
    assert_eq!(read("{}").unwrap_err(), Wrong::Shape("it has no `jobs`".to_owned()));
    assert!(read("").is_err() && read("[]").is_err() && read("{\"jobs\": 7}").is_err());
}

/// What is no job is named and left out; the others are read.
#[test]
fn one_bad_job_costs_itself() {
    let jobs = r#"{"jobs": [null, {"job_id": 1}, {"job_id": 2, "job_state": "DANCING"},
        {"job_id": 3, "job_state": "PENDING"},
        {"job_id": 4, "job_state": "RUNNING", "submit_time": 1, "nodes": "n[1"},
        {"job_id": 5, "job_state": "RUNNING", "submit_time": 1, "nodes": {"x": 1}, "name": 7}]}"#;
    let mut refusals = Refusals::default();
    let answer = answer::of_controller(jobs.as_bytes(), &cluster(), &mut refusals).unwrap();
    assert_eq!(answer.jobs.len(), 2);
    let refused = refusals.done();
    assert_eq!(refused.len(), 5, "{refused:?}");
    assert!(refused[2].contains("DANCING") && refused[4].contains("bracket"), "{refused:?}");
}

/// Of one job: the controller, its cores, the accounting, and the controller once more.
#[test]
fn what_each_tells_is_laid_over_what_is_known() {
    let now = Timestamp::from_seconds(1_795_264_700);
    let mut known = KnownJobs::default();
    known.begin_round();
    let take = |known: &mut KnownJobs, jobs: Vec<AnsweredJob>, teller| -> Vec<Record> {
        jobs.into_iter().filter_map(|told| known.take(told, teller, now)).collect()
    };
    assert_eq!(take(&mut known, controller(SQUEUE), Teller::Controller).len(), 13);
    assert!(known.wants_details());
    let scontrol = include_str!("../../../../testdata/schedulers/slurm-22.05/scontrol.txt");
    let details = details::read(scontrol, &mut Refusals::default());
    assert_eq!(known.take_details(details).len(), 3);
    assert!(!known.wants_details());
    known.end_round(now);
    assert_eq!(known.awaited(), Some(Timestamp::from_seconds(1_795_264_439)));
    let told = take(&mut known, accounting(SACCT), Teller::Accounting);
    let of = |id: i64| told.iter().find(|record| record.key.id.get() == id).unwrap();
    // The accounting tells neither cores nor accelerators, and no exit code of job 2.
    assert_eq!((&*of(5).nodes[1].cpu_list, &*of(5).nodes[1].gpu_list), ("1", "0"));
    assert_eq!(of(5).state, JobState::Ended);
    assert_eq!(of(2).exit_code, Some(3));
    assert_eq!(of(1).uid, Some(0));
    // What the controller says of a job that is over and accounted changes nothing more.
    known.begin_round();
    assert_eq!(take(&mut known, controller(SQUEUE), Teller::Controller), []);
    // Those that it no longer tells are known for a while, for their accounting.
    known.begin_round();
    known.end_round(now);
    assert_eq!(known.len(), 13);
    known.begin_round();
    known.end_round(now.plus(2 * 3600 * Timestamp::SECOND));
    assert_eq!(known.len(), 2, "two never ended, and are awaited");
    known.begin_round();
    known.end_round(now.plus(2 * DAY_US));
    assert_eq!(known.len(), 0);
}

#[test]
fn when_the_accounting_is_asked() {
    let at = |seconds: i64| Timestamp::from_seconds(1_700_000_000 + seconds);
    let from = at(-3 * 86_400);
    let mut accounting = Accounting::default();
    // Three days at the start, day by day and at once.
    for day in -3..0 {
        let window = accounting.window(from, at(0), None).unwrap();
        let overlap = if day == -3 { 0 } else { 600 };
        assert_eq!(window, (at(day * 86_400 - overlap), at((day + 1) * 86_400)));
        accounting.asked = Some(at(0));
        accounting.until = Some(window.1);
    }
    assert_eq!(accounting.window(from, at(59), None), None);
    assert_eq!(accounting.window(from, at(60), None), Some((at(-600), at(60))));
    // A job ended whose accounting is awaited.
    assert_eq!(accounting.window(from, at(9), Some(at(5))), None);
    assert_eq!(accounting.window(from, at(10), Some(at(5))), Some((at(-600), at(10))));
    assert_eq!(accounting.window(from, at(60), Some(at(-5000))), Some((at(-5000), at(60))));
    // One that never comes is not asked for at each round.
    assert_eq!(accounting.window(from, at(20), Some(at(-5000))), None);
    accounting.refusal = Some("x".to_owned());
    assert_eq!(accounting.window(from, at(10), Some(at(5))), None);
    assert!(accounting.window(from, at(60), Some(at(5))).is_some());
    // A clock that was set back does not stop it.
    assert!(accounting.window(from, at(-60), None).is_some());
}

#[test]
fn every_cut_of_an_answer_is_an_error_and_no_panic() {
    for text in [SQUEUE_LATER, JOBS_41] {
        let text = text.trim_end();
        for end in (0..text.len()).step_by(7) {
            let mut refusals = Refusals::default();
            let cut = &text.as_bytes()[..end];
            assert!(answer::of_controller(cut, &cluster(), &mut refusals).is_err());
        }
    }
    for end in 0..SACCT_TEXT.len() {
        let mut refusals = Refusals::default();
        let cut = SACCT_TEXT.get(..end).unwrap();
        lines::of_sacct(cut, &Marks::recorded(), &cluster(), &mut refusals);
    }
}

proptest! {
    /// Values of an answer replaced by anything else.
    #[test]
    fn no_answer_panics(place in 0_usize..200, value in "[0-9]{1,20}|\"[a-z0-9\\[\\],:-]{0,9}\"|\\[\\]|\\{\\}|null|-1") {
        for (text, is_controller) in [(SQUEUE_LATER, true), (JOBS_41, true), (ACCOUNTING_41, false)] {
            let Some((at, _)) = text.match_indices(": ").nth(place) else { continue };
            let (before, rest) = text.split_at(at);
            let (_, after) = rest.split_at(rest.find(['\n', ',']).unwrap_or(rest.len()));
            let text = format!("{before}: {value}{after}");
            let mut refusals = Refusals::default();
            let read = if is_controller { answer::of_controller } else { answer::of_accounting };
            read(text.as_bytes(), &cluster(), &mut refusals).ok();
        }
    }

    #[test]
    fn no_text_panics(text in "([0-9a-z\\[\\]_+.:-]{0,5}|\\|F\\||\\|R\\||\n){0,60}") {
        let mut refusals = Refusals::default();
        lines::of_sacct(&text, &Marks::recorded(), &cluster(), &mut refusals);
        lines::of_squeue(&text, &Marks::recorded(), &cluster(), &mut refusals);
    }
}
