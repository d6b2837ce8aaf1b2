//! Updates of schedulers' jobs by administrators, and who can read them.

use super::ingest::{batch, frame};
use super::{Answer, Site, until};
use model::{ClusterId, DeviceId, JobEvent, JobId, JobKey, Timestamp};
use serde_json::json;

const ADMIN: &str = "Host: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer token-of-admins\r\n";

fn post(site: &Site, line: &str, body: &serde_json::Value) -> Answer {
    site.send(line, ADMIN, body.to_string().as_bytes())
}

fn get(site: &Site, path: &str, token: &str) -> Answer {
    let headers = format!("Host: localhost\r\nAuthorization: Bearer {token}\r\n");
    site.send(&format!("GET {path}"), &headers, b"")
}

#[test]
fn an_end_before_the_start_is_rejected_with_a_reason() {
    let site = Site::start();
    let start = crate::now().seconds().floor() - 1000.0;
    let send_job = |body| post(&site, "POST /api/v1/jobs", &body);
    let got = send_job(json!({"cluster": "site", "id": 7, "start": start, "stop": start - 100.0}));
    assert_eq!(got.status, 400, "{got:?}");
    assert!(got.json()["message"].as_str().unwrap().contains("before it starts"));
    assert_eq!(send_job(json!({"cluster": "site", "id": 7, "start": start})).status, 200);
    let end = post(&site, "POST /api/v1/jobs/site:7/end", &json!({"stop": start - 100.0}));
    assert_eq!(end.status, 400, "{end:?}");
    let report = get(&site, "/api/v1/jobs/site:7", "token-of-admins").json();
    assert_eq!(report["job"]["state"], "running");
    assert_eq!(post(&site, "POST /api/v1/jobs/site:7/end", &json!({})).status, 200);
}

#[test]
fn a_second_end_with_another_exit_code_is_rejected() {
    let site = Site::start();
    let begun = json!({"device": "n1"});
    let owner = "Host: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer token-of-1234\r\n";
    let begun = site.send("POST /api/v1/jobs", owner, begun.to_string().as_bytes());
    assert_eq!(begun.status, 200, "{begun:?}");
    let line = format!("POST /api/v1/jobs/local:{}/end", begun.json()["id"]);
    let end = |body: serde_json::Value| post(&site, &line, &body);
    for code in [-1, 256, 99999] {
        assert_eq!(end(json!({"exit_code": code})).status, 400, "{code}");
    }
    assert_eq!(end(json!({"exit_code": 3})).json()["changed"], true);
    assert_eq!(end(json!({"exit_code": 3})).json()["changed"], false);
    assert_eq!(end(json!({})).status, 200);
    let other = end(json!({"exit_code": 4}));
    assert_eq!(other.status, 409, "{other:?}");
    assert!(other.json()["message"].as_str().unwrap().contains("exit code 3"), "{other:?}");
}

#[test]
fn a_second_end_of_a_schedulers_job_leaves_it_as_it_was_reported() {
    let site = Site::start();
    let start = crate::now().seconds().floor() - 1000.0;
    let stop = start + 100.0;
    let job = json!({"cluster": "site", "id": 7, "start": start, "stop": stop, "exit_code": 3});
    assert_eq!(post(&site, "POST /api/v1/jobs", &job).status, 200);
    let end = |body| post(&site, "POST /api/v1/jobs/site:7/end", &body);
    let again = end(json!({}));
    assert_eq!((again.status, &again.json()["changed"]), (200, &false.into()), "{again:?}");
    assert_eq!(end(json!({"exit_code": 0})).status, 409);
    let report = get(&site, "/api/v1/jobs/site:7", "token-of-admins").json();
    assert_eq!((&report["job"]["stop"], &report["job"]["exit_code"]), (&stop.into(), &3.into()));
    // A correction does not count as an end.
    let longer = json!({"cluster": "site", "id": 7, "stop": stop + 1.0});
    assert_eq!(post(&site, "POST /api/v1/jobs", &longer).status, 200);
    let report = get(&site, "/api/v1/jobs/site:7", "token-of-admins").json();
    assert_eq!(report["job"]["stop"], stop + 1.0);
}

#[test]
fn the_audit_takes_a_bare_number_and_lists_have_a_limit() {
    let site = Site::start();
    assert_eq!(post(&site, "POST /api/v1/jobs", &json!({"cluster": "site", "id": 7})).status, 200);
    let of = |query: &str| get(&site, &format!("/api/v1/audit?{query}"), "token-of-admins");
    until("the entry is written", || {
        let [bare, named] = [of("job=7"), of("job=site:7")].map(|answer| answer.json());
        // The entry may be written between the two queries.
        bare == named && bare.as_array().is_some_and(|lines| lines.len() == 1)
    });
    assert_eq!((of("job=8").status, of("job=gone:8").status), (404, 200));
    for path in ["audit?limit=0", "audit?limit=10001", "jobs?limit=0", "jobs?limit=100001"] {
        assert_eq!(get(&site, &format!("/api/v1/{path}"), "token-of-admins").status, 400, "{path}");
    }
}

#[test]
fn each_user_reads_his_own_run_and_an_array_is_its_parts() {
    let site = Site::start();
    let start = crate::now().seconds().floor() - 1000.0;
    let send_job = |body| assert_eq!(post(&site, "POST /api/v1/jobs", &body).status, 200);
    send_job(
        json!({"cluster": "site", "id": 7, "uid": 1234, "start": start, "stop": start + 10.0}),
    );
    send_job(json!({"cluster": "site", "id": 7, "uid": 77, "start": start + 500.0}));
    let started = |path: &str, token| {
        let answer = get(&site, path, token);
        (answer.status, answer.json()["job"]["start"].as_f64().map(|at| at - start))
    };
    assert_eq!(started("/api/v1/jobs/site:7", "token-of-1234"), (200, Some(0.0)));
    assert_eq!(started("/api/v1/jobs/site:7", "token-of-77"), (200, Some(500.0)));
    assert_eq!(started("/api/v1/jobs/site:7", "token-of-admins"), (200, Some(500.0)));
    let first = format!("/api/v1/jobs/site:7?start={start}");
    assert_eq!(started(&first, "token-of-admins"), (200, Some(0.0)));
    assert_eq!(started(&first, "token-of-77"), (404, None));
    assert_eq!(get(&site, "/api/v1/jobs/site:7?start=x", "token-of-77").status, 400);

    for (id, index) in [(41, 1), (42, 2)] {
        send_job(json!({"cluster": "site", "id": id, "part_of": 40, "array_index": index}));
    }
    let whole = get(&site, "/api/v1/jobs/site:40", "token-of-admins");
    assert_eq!(whole.status, 400);
    assert!(whole.json()["message"].as_str().unwrap().contains("part_of=40"), "{whole:?}");
    let parts = get(&site, "/api/v1/jobs?part_of=40", "token-of-admins").json();
    assert_eq!(parts.as_array().unwrap().len(), 2);
    assert_eq!(get(&site, "/api/v1/jobs?part_of=0", "token-of-admins").status, 400);
}

#[test]
fn jobs_of_users_whom_nobody_knows_are_counted() {
    let site = Site::start();
    let job = json!({"cluster": "site", "id": 7, "user": "no-such-user-here"});
    assert_eq!(post(&site, "POST /api/v1/jobs", &job).json()["user_unknown"], true);
    until("it is counted", || site.metric("jobmeter_jobs_without_uid") == 1.0);
    let known = json!({"cluster": "site", "id": 7, "user": "no-such-user-here", "uid": 1234});
    assert_eq!(post(&site, "POST /api/v1/jobs", &known).json()["user_unknown"], false);
    assert_eq!(site.metric("jobmeter_jobs_without_uid"), 0.0);
    assert_eq!(get(&site, "/api/v1/jobs/site:7", "token-of-1234").status, 200);
}

#[test]
fn what_a_node_saw_by_a_clock_that_is_off_is_the_records_job() {
    let site = Site::start();
    let now = crate::now();
    let ahead = now.plus(90 * Timestamp::SECOND);
    let event = JobEvent {
        key: JobKey { cluster: ClusterId::new("site").unwrap(), id: JobId::new(7).unwrap() },
        display_id: "7".into(),
        device: DeviceId::new("n1").unwrap(),
        user: None,
        uid: None,
        start: ahead.plus(-10 * Timestamp::SECOND),
        stop: Some(ahead),
        monitor: None,
        oom_kills: Vec::new(),
    };
    let mut batch = batch("n1", 0);
    batch.jobs = vec![event];
    let headers = format!(
        "{}{}",
        ADMIN.replace("application/json", "application/x-jobmeter-batches"),
        super::demand::status(&model::setting::AgentStatus { now: ahead, ..Default::default() }),
    );
    let sent = site.send("POST /v1/batches", &headers, &frame(&batch));
    assert_eq!(sent.status, 200, "{sent:?}");
    let (start, stop) = (now.seconds() - 10.0, now.seconds());
    let job = json!({"cluster": "site", "id": 7, "uid": 1234, "start": start, "stop": stop});
    assert_eq!(post(&site, "POST /api/v1/jobs", &job).status, 200);
    let list = get(&site, "/api/v1/jobs", "token-of-1234").json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list[0]["stop"].as_f64().map(|at| (at - stop).round()), Some(90.0), "as it saw it");
}

/// Large updates of one caller wait for each other, and the change of another caller comes between them.
#[test]
fn one_callers_large_updates_leave_the_registry_to_others() {
    const UPDATES: usize = 12;
    let site = Site::start();
    let answered = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for id in 1..=UPDATES {
            let (site, answered) = (&site, &answered);
            scope.spawn(move || {
                let nodes = json!([{"device": format!("n{id}x[1-20000]")}]);
                let update = json!({"cluster": "site", "id": id, "nodes": nodes});
                // Sent without a limit of time: all of them take turns.
                let mut stream = site.connect();
                stream.set_read_timeout(None).unwrap();
                let body = update.to_string();
                let bytes = super::request("POST /api/v1/jobs", ADMIN, body.as_bytes());
                std::io::Write::write_all(&mut stream, &bytes).unwrap();
                assert_eq!(super::answer(&mut stream).unwrap().status, 200);
                answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        until("updates are under way", || site.metric("jobmeter_http_requests_under_way") > 6.0);
        let user = "Host: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer token-of-1234\r\n";
        let begun = site.send("POST /api/v1/jobs", user, br#"{"device": "n1"}"#);
        assert_eq!(begun.status, 200, "{begun:?}");
        let before = answered.load(std::sync::atomic::Ordering::SeqCst);
        assert!(before <= UPDATES / 2, "{before} updates came first");
    });
}
