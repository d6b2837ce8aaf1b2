//! Polls stand-ins for Slurm's programs, and a service that replays recorded answers.

use super::*;
use crate::Endpoint;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const NOW: Timestamp = Timestamp::from_seconds(1_795_264_700);
const FROM: Timestamp = Timestamp::from_seconds(1_795_260_000);

fn program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn recorded(name: &str) -> String {
    format!("{}/../../testdata/schedulers/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn by_commands(folder: &Path, answer_bytes_max: u64) -> Slurm {
    let commands = SlurmCommands { folder: Some(folder.to_owned()), conf: None };
    slurm(SlurmAccess::Commands(commands), answer_bytes_max)
}

fn slurm(access: SlurmAccess, answer_bytes_max: u64) -> Slurm {
    let time_max = Duration::from_millis(1500);
    Slurm::new(SlurmConfig { cluster: cluster(), access, time_max, answer_bytes_max })
}

#[tokio::test]
async fn each_program_runs_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    for (name, answer) in
        [("squeue", "squeue.json"), ("sacct", "sacct.json"), ("scontrol", "scontrol.txt")]
    {
        let answer = recorded(&format!("slurm-22.05/{answer}"));
        let log = log.display();
        program(dir.path(), name, &format!("echo {name} \"$@\" \"$(env)\" >> {log}; cat {answer}"));
    }
    let mut slurm = by_commands(dir.path(), 1 << 20);
    let changes = slurm.changes(FROM, NOW).await.unwrap();
    assert_eq!((changes.calls, changes.has_more), (3, false));
    assert_eq!(changes.rejected, Vec::<String>::new());
    // Thirteen jobs, the cores of three, and the accounting of ten: it adds nothing about the eleventh.
    assert_eq!(changes.records.len(), 13 + 3 + 10);
    let last = changes.records.iter().rev().find(|record| record.key.id.get() == 5).unwrap();
    assert_eq!((last.state, &*last.nodes[0].cpu_list), (JobState::Ended, "0"));
    // The programs receive nothing of this process's environment.
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("--starttime=uts1795260000 --endtime=uts1795264701"), "{log}");
    assert!(log.contains("TZ=UTC") && !log.contains("CARGO") && !log.contains("HOME="), "{log}");
    // Nothing changed: one call, no record.
    let changes = slurm.changes(FROM, NOW.plus(5_000_000)).await.unwrap();
    assert_eq!((changes.calls, changes.records.len()), (1, 0));
}

#[tokio::test]
async fn programs_without_json_write_text() {
    let dir = tempfile::tempdir().unwrap();
    let text = |recorded: &str| {
        // The arguments contain this run's separators, as with Slurm.
        format!(
            r#"case "$*" in *--json*) echo "$0: unrecognized option '--json'" >&2; exit 1;; esac
               for a in "$@"; do case "$a" in --format=\|R*) r=${{a#--format=}}; r=${{r%%%*}};
               f=${{a#*%A}}; f=${{f%%%i*}};; --delimiter=*) f=${{a#--delimiter=}};; esac; done
               sed -e "s/|R|/$r/g; s/|F|/$f/g" {recorded}"#
        )
    };
    program(dir.path(), "squeue", &text(&recorded("slurm-22.05/squeue.txt")));
    program(dir.path(), "sacct", &text(&recorded("slurm-22.05/sacct.txt")));
    program(dir.path(), "scontrol", "exit 1");
    let mut slurm = by_commands(dir.path(), 1 << 20);
    let changes = slurm.changes(FROM, NOW).await.unwrap();
    assert_eq!(changes.calls, 5);
    assert_eq!(changes.records.len(), 8 + 11);
    assert_eq!(changes.rejected.len(), 1, "scontrol: {:?}", changes.rejected);
    let changes = slurm.changes(FROM, NOW.plus(1)).await.unwrap();
    assert_eq!((changes.calls, changes.records.len()), (2, 0), "JSON is not tried again");
}

#[tokio::test]
async fn a_program_that_hangs_writes_too_much_or_fails() {
    let dir = tempfile::tempdir().unwrap();
    let pid = dir.path().join("pid");
    program(dir.path(), "squeue", &format!("echo $$ > {}; exec sleep 25", pid.display()));
    let mut slurm = by_commands(dir.path(), 1 << 20);
    let error = slurm.changes(FROM, NOW).await.unwrap_err();
    assert!(matches!(error, SchedulerError::Silent { .. }), "{error}");
    let pid = std::fs::read_to_string(pid).unwrap();
    let is_there = Path::new("/proc").join(pid.trim()).try_exists().unwrap();
    assert!(!is_there, "it was killed and reaped");
    program(dir.path(), "squeue", "exec cat /dev/zero");
    let error = slurm.changes(FROM, NOW).await.unwrap_err();
    assert!(matches!(&error, SchedulerError::Answer { what, .. } if what.contains("1048576")));
    program(dir.path(), "squeue", "echo 'slurm_load_jobs error: Unable to contact' >&2; exit 1");
    let error = slurm.changes(FROM, NOW).await.unwrap_err();
    assert!(error.to_string().ends_with("slurm_load_jobs error: Unable to contact"), "{error}");
    let error = by_commands(Path::new("/nowhere"), 1).changes(FROM, NOW).await.unwrap_err();
    assert!(matches!(error, SchedulerError::Unreachable { .. }), "{error}");
}

/// Without accounting, the controller's jobs are reported, and once a minute the reason for the missing rest.
#[tokio::test]
async fn a_site_without_accounting() {
    let dir = tempfile::tempdir().unwrap();
    program(dir.path(), "squeue", &format!("cat {}", recorded("slurm-22.05/squeue.json")));
    program(dir.path(), "scontrol", &format!("cat {}", recorded("slurm-22.05/scontrol.txt")));
    program(dir.path(), "sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1");
    let mut slurm = by_commands(dir.path(), 1 << 20);
    let changes = slurm.changes(FROM, NOW).await.unwrap();
    assert_eq!((changes.records.len(), changes.rejected.len()), (16, 1));
    assert!(changes.rejected[0].contains("disabled"), "{:?}", changes.rejected);
    let changes = slurm.changes(FROM, NOW.plus(30_000_000)).await.unwrap();
    assert_eq!((changes.calls, changes.rejected.len()), (1, 0));
}

/// A service that answers each path from a table and stores the requests.
async fn service(answers: &'static [(&'static str, u16, &'static str)]) -> (String, Requests) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let requests = Requests::default();
    let log = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let request = String::from_utf8(request).unwrap();
            let path = request.split(' ').nth(1).unwrap().to_owned();
            let found = answers.iter().find(|(prefix, ..)| path.starts_with(prefix));
            let (status, body) = found.map_or((404, "no such path"), |(_, s, body)| (*s, *body));
            log.lock().unwrap().push(request);
            let length = if status == 304 { 0 } else { body.len() };
            let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&body.as_bytes()[..length]).await.unwrap();
        }
    });
    (address, requests)
}

type Requests = Arc<Mutex<Vec<String>>>;

fn by_rest(address: String, token_file: Option<&Path>) -> Slurm {
    let rest = SlurmRest {
        endpoint: Endpoint::new("slurmrestd", &format!("http://{address}"), None).unwrap(),
        user: Some("monitor".to_owned()),
        token_file: token_file.map(Into::into),
    };
    slurm(SlurmAccess::Rest(rest), 1 << 20)
}

const OPENAPI_41: &str =
    include_str!("../../../../../testdata/schedulers/slurm-rest-v0.0.41/openapi.json");

#[tokio::test]
async fn slurmrestd_receives_a_token_for_its_listed_paths() {
    let (address, requests) = service(&[
        ("/openapi/v3", 200, OPENAPI_41),
        ("/slurm/v0.0.41/jobs/?update_time=1700000101", 304, ""),
        ("/slurm/v0.0.41/jobs/", 200, JOBS_41),
        ("/slurmdb/v0.0.41/jobs/", 200, ACCOUNTING_41),
    ])
    .await;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, "SLURM_JWT=first\n").unwrap();
    let mut slurm = by_rest(address, Some(&token));
    let now = Timestamp::from_seconds(1_700_000_200);
    let changes = slurm.changes(now.plus(-3_600_000_000), now).await.unwrap();
    // Five of the controller, and two of the accounting's for this cluster.
    assert_eq!((changes.records.len(), changes.calls), (7, 3));
    assert_eq!(changes.rejected, Vec::<String>::new());
    let job = changes.records.iter().rfind(|record| record.key.id.get() == 101).unwrap();
    assert_eq!((job.state, job.facts.uid), (JobState::Ended, Some(1001)));
    std::fs::write(&token, "second").unwrap();
    let changes = slurm.changes(now, now.plus(1_000_000)).await.unwrap();
    assert_eq!((changes.records.len(), changes.calls), (0, 1));
    let requests = requests.lock().unwrap();
    let paths: Vec<_> = requests.iter().map(|text| text.split(' ').nth(1).unwrap()).collect();
    assert_eq!(
        paths,
        [
            "/openapi/v3",
            "/slurm/v0.0.41/jobs/",
            "/slurmdb/v0.0.41/jobs/?start_time=uts1699996600&end_time=uts1700000201\
             &state=BF%2CCA%2CCD%2CDL%2CF%2CNF%2COOM%2CPR%2CRQ%2CRV%2CTO",
            "/slurm/v0.0.41/jobs/?update_time=1700000101",
        ]
    );
    for (at, token) in [(0, "first"), (3, "second")] {
        assert!(requests[at].contains(&format!("x-slurm-user-token: {token}\r\n")));
        assert!(requests[at].contains("x-slurm-user-name: monitor\r\n"));
    }
}

/// If a service closes its listing, versions are tried from the newest.
#[tokio::test]
async fn a_version_is_found_without_a_listing() {
    let (address, requests) = service(&[
        ("/slurm/v0.0.38/ping", 200, "{}"),
        ("/slurm/v0.0.38/jobs", 200, SQUEUE),
        ("/slurmdb/v0.0.38/jobs", 200, SACCT),
    ])
    .await;
    let changes = by_rest(address, None).changes(FROM, NOW).await.unwrap();
    assert_eq!(changes.records.len(), 13 + 10);
    let requests = requests.lock().unwrap();
    assert!(!requests.iter().any(|request| request.contains("x-slurm-user")));
    assert_eq!(u32::try_from(requests.len()), Ok(changes.calls));
}

#[tokio::test]
async fn a_service_that_rejects_hangs_or_is_not_slurm() {
    let (address, _) = service(&[("/", 401, "Authentication failure")]).await;
    let error = by_rest(address, None).changes(FROM, NOW).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rejected the request: 401 Unauthorized: Authentication failure")
    );
    let (address, _) = service(&[("/openapi", 200, "<html>")]).await;
    let error = by_rest(address, None).changes(FROM, NOW).await.unwrap_err();
    assert!(error.to_string().contains("no jobs of version"), "{error}");
    let (address, _) = service(&[]).await;
    let missing = Path::new("/nowhere/token");
    let error = by_rest(address, Some(missing)).changes(FROM, NOW).await.unwrap_err();
    assert!(error.to_string().contains("the token in /nowhere/token"), "{error}");
    // A server that accepts the connection and never answers.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let error = by_rest(address, None).changes(FROM, NOW).await.unwrap_err();
    assert!(matches!(error, SchedulerError::Silent { .. }), "{error}");
    drop(listener);
    let rest = SlurmRest {
        endpoint: Endpoint::new("slurmrestd", "unix:/nowhere/rest.sock", None).unwrap(),
        user: None,
        token_file: None,
    };
    let error = slurm(SlurmAccess::Rest(rest), 1).changes(FROM, NOW).await.unwrap_err();
    assert!(error.to_string().starts_with("slurmrestd at /nowhere/rest.sock"), "{error}");
}
