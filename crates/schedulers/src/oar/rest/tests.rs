//! Against recorded answers of the real API, replayed by a server of the test.

use super::*;
use model::JobState;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const JOBS: &str = include_str!("../../../../../testdata/schedulers/oar-2.5.9/jobs.json");
const OVER_JOBS: &str = include_str!("../../../../../testdata/schedulers/oar-2.5.9/over.json");
const DETAILS: &str = include_str!("../../../../../testdata/schedulers/oar-2.5.9/details.json");

/// The time of the recording.
const NOW: Timestamp = Timestamp(1_795_266_235_000_000);

/// A server that replays the recording and stores the heads of requests.
async fn recorded(listener: TcpListener, heads: Arc<Mutex<Vec<String>>>) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
        while !head.ends_with(b"\r\n\r\n") {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "{}", head.escape_ascii());
            head.extend_from_slice(&buffer[..count]);
        }
        let head = String::from_utf8(head).unwrap();
        let (status, body) = match head.split(' ').nth(1).unwrap() {
            path if path.starts_with("/oarapi/jobs/details.json?ids=") => ("200 OK", DETAILS),
            path if path.contains("state=Terminated,Error&from=") => ("200 OK", OVER_JOBS),
            path if path.starts_with("/oarapi/jobs.json?state=Waiting,") => ("200 OK", JOBS),
            _ => ("404 Not Found", "{\"title\":\"Not found\"}"),
        };
        heads.lock().unwrap().push(head);
        let length = body.len();
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn site() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Arc::default();
    tokio::spawn(recorded(listener, Arc::clone(&heads)));
    (format!("http://{address}"), heads)
}

fn oar(url: &str, login: Option<(&str, &str)>) -> OarRest {
    let cluster = ClusterId::new("oar").unwrap();
    OarRest::new(cluster, url, None, login, Duration::from_secs(5)).unwrap()
}

#[tokio::test]
async fn jobs_of_every_kind() {
    let (url, heads) = site().await;
    let mut oar = oar(&format!("{url}/oarapi"), Some(("reader", "secret")));
    let from = NOW.plus(-3600 * Timestamp::SECOND);
    let changes = oar.changes(from, NOW).await.unwrap();
    assert_eq!((changes.calls, changes.has_more, changes.rejected.len()), (3, false, 0));
    let jobs = &changes.records;
    let listed_jobs: Vec<(i64, JobState, &str)> = jobs
        .iter()
        .map(|job| (job.key.id.get(), job.state, job.facts.state_word.as_deref().unwrap()))
        .collect();
    use JobState::{Failed, Running, Waiting};
    let want = [
        (1, Failed, "Error"),
        (2, Failed, "Terminated"),
        (3, Running, "Finishing"),
        (4, Waiting, "Waiting"),
        (5, Waiting, "Waiting"),
        (6, Waiting, "Waiting"),
        (7, Waiting, "Waiting"),
    ];
    assert_eq!(listed_jobs, want);
    let [_, second, third, fourth, .., seventh] = &jobs[..] else { panic!("{jobs:?}") };
    assert_eq!((second.facts.exit_code, second.facts.used.wall_seconds), (Some(3), Some(5.0)));
    assert_eq!(
        second.facts.types.as_deref().unwrap(),
        ["besteffort".into(), "monitor=perf_.*".into()]
    );
    assert_eq!(
        (second.facts.user.as_deref(), second.facts.project.as_deref()),
        (Some("games"), Some("myproj"))
    );
    let node = &third.nodes[0];
    assert_eq!((node.device.as_str(), node.cpus, &*node.cpu_list), ("oarnode1", Some(1), "1"));
    assert_eq!((third.facts.requested.nodes, third.facts.requested.cpus), (Some(1), Some(1)));
    // It has a planned node, but no assigned one.
    assert_eq!((fourth.nodes.len(), fourth.start, fourth.facts.part_of), (0, None, Some(3)));
    assert_eq!(
        (seventh.facts.name.as_deref(), seventh.facts.requested.cpus),
        (Some("a name"), Some(2))
    );
    let heads = heads.lock().unwrap();
    assert!(
        heads.iter().all(|head| head.contains("authorization: Basic cmVhZGVyOnNlY3JldA==\r\n"))
    );
    assert!(heads[2].contains("?ids=1:2:3:4:5:6:7&"), "{}", heads[2]);
}

#[tokio::test]
async fn unchanged_jobs_are_not_reported_again() {
    let (url, heads) = site().await;
    let mut oar = oar(&format!("{url}/oarapi"), None);
    oar.changes(NOW, NOW).await.unwrap();
    let quiet = oar.changes(NOW, NOW).await.unwrap();
    assert_eq!((quiet.calls, quiet.records.len()), (2, 0));
    // Open jobs are refreshed after a while; the two completed jobs are not.
    oar.changes(NOW, NOW.plus(60 * Timestamp::SECOND)).await.unwrap();
    let heads = heads.lock().unwrap();
    assert!(heads[7].contains("?ids=3:4:5:6:7&"), "{}", heads[7]);
}

#[tokio::test]
async fn rejections_and_timeouts() {
    let (url, _) = site().await;
    let rejected = oar(&url, None).changes(NOW, NOW).await.unwrap_err();
    assert!(rejected.to_string().contains("rejected the request: 404 Not Found"), "{rejected}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let cluster = ClusterId::new("oar").unwrap();
    let url = format!("http://{address}");
    let mut silent = OarRest::new(cluster, &url, None, None, Duration::from_millis(100)).unwrap();
    let error = silent.changes(NOW, NOW).await.unwrap_err();
    assert!(matches!(error, SchedulerError::Silent { .. }), "{error}");
    drop(listener);
    let error = silent.changes(NOW, NOW).await.unwrap_err();
    assert!(matches!(error, SchedulerError::Unreachable { .. }), "{error}");
}

#[test]
fn every_truncated_answer_is_rejected() {
    let oar = oar("http://h", None);
    let whole = DETAILS.trim_end().as_bytes();
    let read = |bytes: &[u8]| oar.items::<Details>(&Bytes::copy_from_slice(bytes));
    assert_eq!(read(whole).unwrap().len(), 7);
    for end in (0..whole.len()).step_by(7) {
        assert!(read(&whole[..end]).is_err(), "{end}");
    }
}

#[test]
fn quoted_numbers_and_site_specific_columns() {
    let text = r#"{"items": [{"id": "7", "state": "Running", "submission_time": "1700000000",
        "start_time": 1700000001, "array_id": 7, "extra": {"a": [1]}, "resources": [
        {"network_address": "n1.site", "status": "assigned", "cpuset": 3, "gpu": 9, "core": null},
        {"network_address": "", "type": "licence", "status": "assigned"}]}]}"#;
    let oar = oar("http://h", None);
    let jobs: Vec<Details> = oar.items(&Bytes::from_static(text.as_bytes())).unwrap();
    let record = jobs.into_iter().next().unwrap().job().record(&oar.cluster).unwrap();
    assert_eq!((record.key.id.get(), record.facts.part_of), (7, None));
    let [node] = &record.nodes[..] else { panic!("{record:?}") };
    assert_eq!((node.device.as_str(), &*node.cpu_list, &*node.gpu_list), ("n1", "3", "9"));
}

proptest! {
    #[test]
    fn no_answer_panics(text in any::<String>(), at in 0..20_000_usize, byte in any::<u8>()) {
        let oar = oar("http://h", None);
        oar.items::<Details>(&Bytes::from(text.into_bytes())).ok();
        let mut bytes = DETAILS.as_bytes().to_vec();
        bytes[at] = byte;
        for details in oar.items::<Details>(&Bytes::from(bytes)).unwrap_or_default() {
            details.job().record(&oar.cluster).ok();
        }
    }
}
