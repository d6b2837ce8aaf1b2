//! The program `jobmeter-server`: startup, requests, signals and kills.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests end at the first surprise, start the program, and take the time"
)]

mod program;
mod slow_queries;

use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, Timestamp};
use program::{
    BATCHES, JSON, NOBODY, Program, command, errors, frame, frame_reporting, noise, now, parts,
    request, root,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};
use wire::AckStatus;

#[test]
fn a_help_that_cannot_be_printed_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut help = std::process::Command::new(env!("CARGO_BIN_EXE_jobmeter-server"));
    let output = help.arg("--help").stdout(full).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let is_clear = error.starts_with("jobmeter-server: cannot write to standard output: ");
    assert!(output.status.code() == Some(2) && is_clear, "{error}");
}

#[test]
fn it_starts_answers_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let began = Instant::now();
    let data = dir.path().join("data");
    let program = Program::start(&data, &[]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(program.json("/api/v1/health")["ready"], true);
    let second = command(&data, &["--listen", "127.0.0.1:0"]).spawn().unwrap();
    let messages = errors(second);
    assert!(messages.contains("another server uses this data directory"), "{messages}");
    let other = dir.path().join("other");
    let messages = errors(command(&other, &["--listen", "127.0.0.1:0"]).spawn().unwrap());
    assert!(messages.contains("contains a store") && !other.try_exists().unwrap(), "{messages}");
    std::fs::create_dir(&other).unwrap();
    let messages = errors(command(&other, &["--listen", &program.address]).spawn().unwrap());
    assert!(messages.contains(&program.address) && messages.contains("in use"), "{messages}");
    assert!(messages.contains("choose another port with --listen"), "{messages}");
    let help = command(&other, &["--help"]).output().unwrap().stdout;
    assert!(String::from_utf8(help).unwrap().contains("Examples:"));
    let (code, messages) = program.end();
    assert_eq!(code, Some(0), "{messages}");
    let mode = |name: &str| std::fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o77;
    for name in ["", "jobs.sqlite", "demand.sqlite", "samples", "samples/FORMAT"] {
        assert_eq!(mode(name), 0, "{name}: what it keeps is its own");
    }
}

#[test]
fn errors_of_the_configuration_are_reported_at_startup() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    std::fs::write(&tokens, "admin 12345678\n").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o644)).unwrap();
    let tokens = tokens.to_str().unwrap();
    for (arguments, want) in [
        (&["--listen", "0.0.0.0:0"][..], "token_file"),
        (&["--listen", "0.0.0.0:0", "--plain"], "token_file"),
        (&["--listen", "0.0.0.0:0", "--token-file", tokens], "plain"),
        (&["--listen", "0.0.0.0:0", "--token-file", tokens, "--plain"], "chmod 600"),
        (&["--token-file", "/nonexistent"], "/nonexistent"),
        (&["--listne", "127.0.0.1:0"], "--listen"),
        (&["--config", "/nonexistent.toml"], "/nonexistent.toml"),
    ] {
        let output = command(&dir.path().join("data"), arguments).output().unwrap();
        let messages = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?} {messages}");
        assert!(messages.contains(want), "{arguments:?} {messages}");
        let why = want.starts_with('/').then(|| messages.matches("No such file").count());
        assert!(why.is_none_or(|times| times == 1), "said once: {messages}");
    }
    let output = command(std::path::Path::new("/proc/nope"), &[]).output().unwrap();
    let messages = String::from_utf8(output.stderr).unwrap();
    assert!(messages.contains("/proc/nope") && messages.contains("--data"), "{messages}");
    std::fs::set_permissions(tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let open = ["--listen", "0.0.0.0:0", "--token-file", tokens, "--plain"];
    let (code, messages) = Program::start(&dir.path().join("data"), &open).end();
    assert!(code == Some(0) && messages.contains("without TLS"), "{messages}");
}

#[test]
fn a_data_folder_that_another_user_could_have_prepared_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let (open, data) = (dir.path().join("open"), dir.path().join("open/data"));
    std::fs::create_dir_all(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
    let messages = errors(command(&data, &["--listen", "127.0.0.1:0"]).spawn().unwrap());
    assert!(messages.contains("can be written by other users"), "{messages}");
    assert!(messages.contains("chmod go-w") && messages.contains("--data"), "{messages}");
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "nothing is written there");
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Only root can give a folder to another user.
    if std::os::unix::fs::chown(&data, Some(65_534), None).is_ok() {
        let messages = errors(command(&data, &["--listen", "127.0.0.1:0"]).spawn().unwrap());
        assert!(messages.contains("belongs to user 65534"), "{messages}");
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let from = now();
    let mut acknowledged = 0;
    for round in 0..4 {
        let mut program = Program::start(dir.path(), &[]);
        let address = program.address.clone();
        // Sends as fast as batches are acknowledged, until the server is gone.
        let sender = std::thread::spawn(move || {
            let mut seq = acknowledged;
            while let Ok(mut stream) = TcpStream::connect(&address) {
                let at = from.plus(i64::try_from(seq).unwrap() * 1000);
                let sent = stream.write_all(&request("POST /v1/batches", BATCHES, &frame(seq, at)));
                let mut bytes = Vec::new();
                if sent.is_err() || stream.read_to_end(&mut bytes).is_err() {
                    break;
                }
                let Some((200, body)) = parts(&bytes) else { break };
                let acks = wire::Answer::decode(&body).unwrap().acks;
                assert!(matches!(acks[0].status, AckStatus::Stored | AckStatus::Duplicate));
                seq += 1;
            }
            seq
        });
        std::thread::sleep(Duration::from_millis(300 + 150 * round));
        program.child.kill().unwrap();
        let next = sender.join().unwrap();
        assert!(next > acknowledged, "round {round}: nothing was acknowledged");
        acknowledged = next;
    }
    let program = Program::start(dir.path(), &[]);
    let body = r#"{"query": "SELECT count(*) AS n, count(DISTINCT timestamp) AS d FROM metrics"}"#;
    let (status, rows) = program.send("POST /api/v1/sql", JSON, body.as_bytes());
    assert_eq!(status, 200);
    let rows: serde_json::Value = serde_json::from_slice(&rows).unwrap();
    let (stored, distinct) = (rows[0]["n"].as_u64().unwrap(), rows[0]["d"].as_u64().unwrap());
    // The last batch of a round may have been stored without an ack. The next round sends it again.
    assert!(stored == acknowledged || stored == acknowledged + 1, "{stored} of {acknowledged}");
    assert_eq!(stored, distinct, "none is there twice");
}

/// A limit of the file size simulates a full disk: the program sees the same behaviour.
#[test]
fn on_a_full_disk_batches_are_rejected_temporarily_and_queries_answered() {
    let dir = tempfile::tempdir().unwrap();
    let limited = "trap '' XFSZ; ulimit -f 512; exec \"$@\"";
    let program = Program::start_by(&["bash", "-c", limited, "bash"], dir.path(), &[]);
    let from = now();
    let mut acknowledged = Vec::new();
    let mut full = None;
    for seq in 0..400 {
        let at = from.plus(i64::try_from(seq).unwrap() * 1000);
        let body = noise(seq, at);
        let (status, body) = program.send("POST /v1/batches", BATCHES, &body);
        if status != 200 {
            full = Some((status, body));
            break;
        }
        let acks = wire::Answer::decode(&body).unwrap().acks;
        assert_eq!(acks[0].status, AckStatus::Stored);
        acknowledged.push(seq);
    }
    let (status, body) = full.expect("512 KiB are full before 400 batches of 8 KiB");
    assert_eq!(status, 507, "{}", body.escape_ascii());
    let problem: api::Problem = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem.code, "53100");
    assert!(acknowledged.len() > 5, "{acknowledged:?}");
    let count = |program: &Program| {
        let query = br#"{"query": "SELECT count(DISTINCT timestamp) AS n FROM metrics"}"#;
        let (status, rows) = program.send("POST /api/v1/sql", JSON, query);
        assert_eq!(status, 200, "{}", rows.escape_ascii());
        let rows: serde_json::Value = serde_json::from_slice(&rows).unwrap();
        usize::try_from(rows[0]["n"].as_u64().unwrap()).unwrap()
    };
    assert_eq!(count(&program), acknowledged.len());
    drop(program);
    let program = Program::start(dir.path(), &[]);
    assert_eq!(count(&program), acknowledged.len(), "what was acknowledged is there");
    let (status, _) = program.send("POST /v1/batches", BATCHES, &noise(400, from.plus(-1000)));
    assert_eq!(status, 200, "with room it goes on");
}

#[test]
fn another_user_of_the_machine_does_what_is_his() {
    if !root("another_user_of_the_machine_does_what_is_his") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::start(dir.path(), &[]);
    let register = r#"{"device": "n1", "name": "mine"}"#;
    let (status, body) = program.send_as(NOBODY, "POST /api/v1/jobs", JSON, register);
    assert_eq!(status, 200, "{}", body.escape_ascii());
    let own: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let (status, body) = program.send("POST /api/v1/jobs", JSON, register.as_bytes());
    assert_eq!(status, 200);
    let roots: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let path = |job: &serde_json::Value| format!("GET /api/v1/jobs/local:{}", job["id"]);
    assert_eq!(program.send_as(NOBODY, &path(&own), "", "").0, 200);
    assert_eq!(program.send_as(NOBODY, &path(&roots), "", "").0, 404);
    assert_eq!(program.send(&path(&own), "", b"").0, 200, "root sees everything");
    let jobs = program.json("/api/v1/jobs");
    let uids: Vec<_> = jobs.as_array().unwrap().iter().map(|job| job["uid"].as_u64()).collect();
    assert!(uids.contains(&Some(0)) && uids.contains(&Some(u64::from(NOBODY))), "{uids:?}");
    let (status, body) = program.send_as(NOBODY, "GET /api/v1/jobs", "", "");
    let seen: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, seen.as_array().unwrap().len()), (200, 1));
    // A user may not send an agent's batches.
    let batch = request("POST /v1/batches", BATCHES, &frame(0, now()));
    let (status, body) = parts(&program.shell_as(NOBODY, &batch, "cat <&3")).unwrap();
    let acks = wire::Answer::decode(&body).unwrap().acks;
    assert_eq!((status, acks[0].status), (200, AckStatus::RejectedTemporarily));
}

/// A scheduler's job as reported by its node.
fn on_n1((id, uid, start, stop): (i64, u32, Timestamp, Option<Timestamp>)) -> JobEvent {
    JobEvent {
        key: JobKey { cluster: ClusterId::new("slurm").unwrap(), id: JobId::new(id).unwrap() },
        display_id: id.to_string().into(),
        device: DeviceId::new("n1").unwrap(),
        user: None,
        uid: Some(uid),
        start,
        stop,
        monitor: None,
        oom_kills: Vec::new(),
    }
}

/// Two users of this machine share a node. Only the kernel identifies them.
#[test]
fn two_users_on_one_node_see_each_his_own_time_of_it() {
    if !root("two_users_on_one_node_see_each_his_own_time_of_it") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let staff = format!("{}", NOBODY - 2);
    let program = Program::start(dir.path(), &["--access-nodes", "own", "--access-staff", &staff]);
    let (ann, bob, carol) = (NOBODY, NOBODY - 1, NOBODY - 2);
    let as_user = |uid, line: &str, body: &str| program.send_as(uid, line, JSON, body);
    let begun = now();
    let start = begun.seconds();
    let register = |uid, device: &str| {
        let body = format!("{{\"device\": \"{device}\"}}");
        let (status, body) = as_user(uid, "POST /api/v1/jobs", &body);
        assert_eq!(status, 200, "{}", body.escape_ascii());
        let job: serde_json::Value = serde_json::from_slice(&body).unwrap();
        job["id"].as_i64().unwrap()
    };
    // Ann's job ran from 100 s to 50 s ago; bob's runs since 60 s ago. The node has a sample every 10 s.
    let ago = |seconds: i64| begun.plus(-seconds * Timestamp::SECOND);
    let messages = [(7, ann, ago(100), Some(ago(50))), (8, bob, ago(60), None)].map(on_n1);
    for tick in 0..15_u32 {
        let at = ago(145 - 10 * i64::from(tick));
        let jobs = if tick == 0 { messages.to_vec() } else { Vec::new() };
        program.send("POST /v1/batches", BATCHES, &frame_reporting(u64::from(tick), at, jobs));
    }
    // A start long ago is rejected. A registered job counts as verified only on the server's own node.
    let long_ago = format!("{{\"device\": \"n1\", \"start\": {}}}", start - 200.0);
    assert_eq!(as_user(ann, "POST /api/v1/jobs", &long_ago).0, 400);
    let of_bob = register(bob, "n1");
    register(ann, "n1");
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let own = own.trim().split('.').next().unwrap();
    let promote = |node: &str| {
        let body = format!("{{\"nodes\": \"{node}\", \"metric\": \"x\"}}");
        as_user(ann, "POST /api/v1/promotions", &body).0
    };
    assert_eq!((promote("n1"), promote(own)), (404, 404));
    register(ann, own);
    assert_eq!((promote("n1"), promote(own)), (404, 200));
    let path = format!("/api/v1/range?device=n1&start={}&end={start}", start - 200.0);
    let ages = |uid| {
        let (status, body) = as_user(uid, &format!("GET {path}"), "");
        let range: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let times = range["series"][0]["times"].as_array().cloned().unwrap_or_default();
        let age = |at: &serde_json::Value| (start - at.as_f64().unwrap()).round();
        (status, times.iter().map(age).collect::<Vec<f64>>())
    };
    assert_eq!(ages(ann), (200, vec![95.0, 85.0, 75.0, 65.0, 55.0]));
    assert_eq!(ages(bob), (200, vec![55.0, 45.0, 35.0, 25.0, 15.0, 5.0]));
    assert_eq!(ages(carol).1.len(), 15, "staff sees all");
    let of = |uid, id| as_user(uid, &format!("GET /api/v1/jobs/local:{id}"), "").0;
    assert_eq!([of(ann, of_bob), of(bob, of_bob), of(carol, of_bob)], [404, 200, 200]);
    let line = format!("POST /api/v1/jobs/local:{of_bob}/end");
    assert_eq!(as_user(carol, &line, "{}").0, 403, "staff ends no job of others");
    let (status, body) = as_user(ann, "POST /api/v1/tokens", "{\"scope\": \"read\"}");
    assert_eq!(status, 200, "{}", body.escape_ascii());
    let made: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(made["info"]["scope"], format!("read:{ann}"));
    // With ann's token, root has only ann's rights.
    let token = format!("Authorization: Bearer {}\r\n", made["token"].as_str().unwrap());
    let (status, body) = program.send(&format!("GET {path}"), &token, b"");
    let range: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((status, range["series"][0]["times"].as_array().unwrap().len()), (200, 5));
    let (code, messages) = program.end();
    assert_eq!(code, Some(0), "{messages}");
    let audit = std::fs::read_to_string(dir.path().join("audit.log")).unwrap();
    assert!(audit.contains(&format!("\"actor\":\"uid {carol}\"")), "{audit}");
}

/// A socket in closing state has no owner and shows UID 0. A client that closes right after sending must not be taken
/// for root.
#[test]
fn a_client_that_closes_right_after_sending_is_not_taken_for_root() {
    if !root("a_client_that_closes_right_after_sending_is_not_taken_for_root") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::start(dir.path(), &[]);
    let register = request("POST /api/v1/jobs", JSON, br#"{"device": "n1"}"#);
    let batch = request("POST /v1/batches", BATCHES, &frame(0, now()));
    for _ in 0..30 {
        program.shell_as(NOBODY, &register, "exec 3>&-");
        program.shell_as(NOBODY, &batch, "exec 3>&-");
    }
    let jobs = program.json("/api/v1/jobs");
    let roots = jobs.as_array().unwrap().iter().filter(|job| job["uid"] != NOBODY);
    assert_eq!(roots.count(), 0, "{jobs}");
    assert_eq!(program.json("/api/v1/series"), serde_json::json!([]), "no batch of his is stored");
}

#[test]
fn hangup_takes_new_tokens_and_keeps_connections() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = dir.path().join("tokens");
    let write = |text: &str| {
        std::fs::write(&tokens, text).unwrap();
        std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("admin first-token\n");
    let file = dir.path().join("server.toml");
    std::fs::write(&file, "[query]\nslow = \"5s\"\n").unwrap();
    let arguments = ["--token-file", tokens.to_str().unwrap(), "--config", file.to_str().unwrap()];
    let program = Program::start(&dir.path().join("data"), &arguments);
    let mut kept = TcpStream::connect(&program.address).unwrap();
    let mut send_kept = |token: &str| {
        let head = format!(
            "GET /api/v1/catalogue HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        kept.write_all(head.as_bytes()).unwrap();
        let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
        while !bytes.ends_with(b"]") && !bytes.ends_with(b"}") {
            let length = kept.read(&mut piece).unwrap();
            assert!(length > 0, "the connection was closed");
            bytes.extend_from_slice(&piece[..length]);
        }
        parts(&bytes).unwrap().0
    };
    assert_eq!((send_kept("first-token"), send_kept("other-token")), (200, 401));
    write("admin other-token\n");
    let changed = "names = [\"front\"]\n[log]\nlevel = \"info\"\n[query]\nslow = \"6s\"\n";
    std::fs::write(&file, changed).unwrap();
    program.signal("HUP");
    let deadline = Instant::now() + Duration::from_secs(10);
    while send_kept("other-token") != 200 {
        assert!(Instant::now() < deadline, "the new token is not taken");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(send_kept("first-token"), 401);
    write("admn other-token\n");
    program.signal("HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(send_kept("other-token"), 200, "a bad file changes nothing");
    drop(kept);
    let (code, messages) = program.end();
    assert_eq!(code, Some(0));
    assert!(messages.contains("reloaded"), "{messages}");
    // The other changes of the file are in effect.
    let waiting = "changes of these settings need a restart of the server: query.slow\n";
    assert!(messages.contains(waiting), "{messages}");
    assert!(messages.contains("cannot reload") && messages.contains("tokens:1"), "{messages}");
    assert!(!messages.contains("other-token") && !messages.contains("first-token"), "{messages}");
}
