//! Tests of the rows from a server's answer.

use super::*;
use std::collections::HashMap;

fn node(device: &str, alive: bool, jobs: &[&str]) -> api::Node {
    api::Node {
        device: device.to_owned(),
        alive,
        stopped: false,
        conflict: false,
        last_seen: None,
        period_seconds: Some(5.0),
        clock_offset_seconds: None,
        agent_version: None,
        reported_by: None,
        config_generation: None,
        config_rejected: Vec::new(),
        source_errors: Vec::new(),
        sources_restricted: Vec::new(),
        series: 9,
        jobs: jobs.iter().map(|job| (*job).to_owned()).collect(),
        cpu_cores_used: Some(1.5),
        cpu_cores: Some(4.0),
        memory_used_bytes: Some(2e9),
        memory_bytes: Some(8e9),
    }
}

fn job(id: i64, name: Option<&str>, devices: &[&str]) -> api::Job {
    api::Job {
        cluster: "slurm".to_owned(),
        id,
        display_id: format!("{id}_1"),
        uid: Some(1000),
        name: name.map(str::to_owned),
        state: "running".to_owned(),
        start: Some(1.0),
        devices: devices.iter().map(|device| (*device).to_owned()).collect(),
        ..api::Job::default()
    }
}

fn answer() -> Answer {
    let health = api::Health {
        version: String::new(),
        build: String::new(),
        ready: true,
        writing_fails: false,
        uptime_seconds: 1.0,
        now: 1000.5,
        nodes_alive: 2,
        nodes: 3,
        jobs_running: 2,
    };
    let cpu = |cpu| Usage { cpu: Some(cpu), memory: Some(1e6), ..Usage::default() };
    let usage = HashMap::from([
        (("slurm:7".to_owned(), "n1".to_owned()), cpu(1.0)),
        (("slurm:7".to_owned(), "n2".to_owned()), cpu(0.5)),
        (("slurm:8".to_owned(), "n2".to_owned()), cpu(0.25)),
        ((String::new(), "n2".to_owned()), cpu(2.0)),
    ]);
    Answer {
        health,
        nodes: vec![
            node("n1", true, &["slurm:7"]),
            node("n2", true, &["slurm:7", "slurm:8"]),
            node("n3", false, &[]),
        ],
        jobs: vec![job(7, Some("fit"), &["n1", "n2"]), job(8, None, &["n2"])],
        usage,
        nodes_left_out: 0,
    }
}

fn shown(view: &View) -> Vec<(String, String, Option<f64>)> {
    let rows = rows(view, &answer()).into_iter();
    rows.map(|row| (row.id, row.user, row.cpu)).collect()
}

fn want(rows: &[(&str, &str, Option<f64>)]) -> Vec<(String, String, Option<f64>)> {
    rows.iter().map(|(id, user, cpu)| ((*id).to_owned(), (*user).to_owned(), *cpu)).collect()
}

#[test]
fn a_job_is_what_it_uses_on_all_its_nodes_or_on_one() {
    let all = [("slurm:7", "1000", Some(1.5)), ("slurm:8", "1000", Some(0.25))];
    assert_eq!(shown(&View::Jobs), want(&all));
    let there = [("slurm:7", "1000", Some(0.5)), ("slurm:8", "1000", Some(0.25))];
    assert_eq!(shown(&View::JobsOn("n2".to_owned())), want(&there));
    assert_eq!(shown(&View::JobsOn("n3".to_owned())), []);
    let rows = rows(&View::Jobs, &answer());
    assert_eq!((&*rows[0].name, rows[0].memory), ("fit", Some(2e6)));
    assert_eq!((&*rows[1].name, rows[1].read), ("8_1", None), "what is not known is no zero");
}

#[test]
fn nodes_are_themselves_or_what_a_job_uses_of_them() {
    let all = [("n1", "alive", None), ("n2", "alive", Some(2.0)), ("n3", "silent", None)];
    assert_eq!(shown(&View::Nodes), want(&all));
    let rows = rows(&View::Nodes, &answer());
    assert_eq!((rows[1].memory, rows[1].tasks), (Some(2e9), Some(2.0)));
    assert_eq!(rows[2].memory, None, "of a node that is silent nothing is known");
    let of_job = [("n1", "alive", Some(1.0)), ("n2", "alive", Some(0.5))];
    assert_eq!(shown(&View::NodesOf("slurm:7".to_owned())), want(&of_job));
}

#[test]
fn the_head_is_of_the_nodes_that_are_alive() {
    let head = head(&answer());
    assert_eq!((head.busy, head.cores, head.memory), (Some(3.0), Some(8.0), Some(16e9)));
    assert_eq!((head.jobs, head.nodes), (2, Some((2, 3))));
}
