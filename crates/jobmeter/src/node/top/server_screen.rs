//! The screen of a server: running jobs, and nodes. A separate thread sends the requests, so that keys work
//! during a long request.

use super::Screen;
use super::server_data::{Answer, Usage, View, concerns, concerns_node, fetch, key_of};
use super::table::{Head, Row, ScreenAction, ScreenTexts};
use crate::client::http_client::Client;
use anyhow::Context as _;
use kernel::clock;
use model::Timestamp;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// The help line.
const HELP: &str = "q quit  ? help  c m r w t n u order  / filter  enter details  j jobs  d nodes";
/// Duration of a request after which the screen mentions it.
const LONG_US: u64 = 10_000_000;

/// The state of a server's screen.
pub(super) struct ServerScreen {
    url: String,
    questions: SyncSender<View>,
    answers: Receiver<anyhow::Result<Answer>>,
    view: View,
    /// Start of the pending request.
    since_us: Option<u64>,
    /// Whether another view was requested meanwhile.
    again: bool,
    answer: Option<Answer>,
    /// The error of the last request.
    failure: Option<String>,
    rows: Vec<Row>,
}

impl ServerScreen {
    /// The screen of a server; fails if the server does not answer.
    pub(super) fn new(client: Client) -> anyhow::Result<Self> {
        let url = client.url().to_owned();
        // Errors of the server or of the token appear before the screen opens.
        client.get::<api::Health>("/api/v1/health")?;
        let (questions, wanted) = sync_channel::<View>(1);
        let (sender, answers) = sync_channel(1);
        let answer = move || {
            while let Ok(view) = wanted.recv() {
                if sender.send(fetch(&client, &view)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ask".to_owned());
        thread.spawn(answer).context("cannot start the thread that queries the server")?;
        Ok(Self {
            url,
            questions,
            answers,
            view: View::Jobs,
            since_us: None,
            again: false,
            answer: None,
            failure: None,
            rows: Vec::new(),
        })
    }

    fn take(&mut self, answer: anyhow::Result<Answer>) {
        match answer {
            Ok(answer) => {
                self.rows = rows(&self.view, &answer);
                self.answer = Some(answer);
                self.failure = None;
            }
            // The previous data remains, with its own time.
            Err(error) => self.failure = Some(format!("{error:#}")),
        }
    }
}

impl Screen for ServerScreen {
    /// Sends one request at a time: a slow server receives no more requests than it answers.
    fn read(&mut self) {
        if self.since_us.is_none() && self.questions.try_send(self.view.clone()).is_ok() {
            self.since_us = Some(clock::monotonic_us());
        }
    }

    fn is_waiting(&mut self) -> bool {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.since_us = None;
                self.take(answer);
                if std::mem::take(&mut self.again) {
                    self.read();
                }
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                self.since_us = None;
                self.failure = Some(
                    "the thread that queries the server has failed; restart this \
                                     command"
                        .to_owned(),
                );
            }
        }
        self.since_us.is_some()
    }

    fn turn_to(&mut self, action: &ScreenAction) -> bool {
        let view = match (action, &self.view) {
            (ScreenAction::Jobs, _) => View::Jobs,
            (ScreenAction::Nodes, _) => View::Nodes,
            (ScreenAction::Of(id), View::Jobs | View::JobsOn(_)) => View::NodesOf(id.clone()),
            (ScreenAction::Of(id), View::Nodes | View::NodesOf(_)) => View::JobsOn(id.clone()),
            (ScreenAction::Processes | ScreenAction::Quit, _) => return false,
        };
        if view == self.view {
            return false;
        }
        self.view = view;
        self.rows = self.answer.as_ref().map(|answer| rows(&self.view, answer)).unwrap_or_default();
        self.again = self.since_us.is_some();
        self.read();
        true
    }

    fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn head(&self) -> Head {
        let of = self.answer.as_ref().map(head).unwrap_or_default();
        Head { device: self.url.clone(), ..of }
    }

    fn title(&self) -> String {
        if let Some(failure) = &self.failure {
            return format!("no response: {failure}");
        }
        let Some(answer) = &self.answer else { return "querying the server".to_owned() };
        let mut title = match &self.view {
            View::Jobs if self.rows.is_empty() => {
                "no job runs; `jobmeter run` starts one".to_owned()
            }
            View::Jobs => "jobs".to_owned(),
            View::JobsOn(device) => format!("jobs on {device}"),
            View::Nodes => "nodes".to_owned(),
            View::NodesOf(key) => format!("nodes of {key}"),
        };
        let known = u64::try_from(answer.jobs.len()).unwrap_or(u64::MAX);
        let more = answer.health.jobs_running.saturating_sub(known);
        if more > 0 {
            title.push_str(&format!(" ({more} more jobs are left out)"));
        }
        if answer.nodes_left_out > 0 {
            title.push_str(&format!(" ({} nodes are not queried)", answer.nodes_left_out));
        }
        let waited_us = self.since_us.map(|since| clock::monotonic_us().saturating_sub(since));
        if let Some(waited_us) = waited_us.filter(|waited| *waited > LONG_US) {
            title.push_str(&format!(" (no response for {} s)", waited_us / 1_000_000));
        }
        title
    }

    fn words(&self) -> ScreenTexts {
        let (user, tasks) = match self.view {
            View::Jobs | View::JobsOn(_) => ("USER", "TASKS"),
            View::Nodes => ("STATE", "JOBS"),
            View::NodesOf(_) => ("STATE", "TASKS"),
        };
        ScreenTexts { user, tasks, help: HELP }
    }
}

fn head(answer: &Answer) -> Head {
    let alive = || answer.nodes.iter().filter(|node| node.alive);
    let sum = |pairs: &mut dyn Iterator<Item = (f64, f64)>| {
        pairs.fold(None, |sum: Option<(f64, f64)>, (used, whole)| {
            let (all_used, all) = sum.unwrap_or_default();
            Some((all_used + used, all + whole))
        })
    };
    let cpu = sum(&mut alive().filter_map(|node| node.cpu_cores_used.zip(node.cpu_cores)));
    let memory = sum(&mut alive().filter_map(|node| node.memory_used_bytes.zip(node.memory_bytes)));
    let health = &answer.health;
    #[expect(clippy::cast_possible_truncation, reason = "a clock's seconds, far below 2^53")]
    let now = Timestamp::from_seconds(health.now as i64);
    Head {
        now,
        jobs: usize::try_from(health.jobs_running).unwrap_or(usize::MAX),
        busy: cpu.map(|(used, _)| used),
        cores: cpu.map(|(_, whole)| whole),
        memory_used: memory.map(|(used, _)| used),
        memory: memory.map(|(_, whole)| whole),
        nodes: Some((health.nodes_alive, health.nodes)),
        ..Head::default()
    }
}

/// The rows of a view, from the answer's data.
fn rows(view: &View, answer: &Answer) -> Vec<Row> {
    match view {
        View::Jobs | View::JobsOn(_) => {
            let jobs = answer.jobs.iter().filter(|job| concerns(view, job));
            jobs.map(|job| row_of_job(view, job, answer)).collect()
        }
        View::Nodes => answer.nodes.iter().map(|node| row_of_node(node, answer)).collect(),
        View::NodesOf(key) => {
            let of_job = answer.jobs.iter().filter(|job| concerns(view, job));
            let devices = of_job.flat_map(|job| &job.devices);
            devices.map(|device| with_usage(key, device, answer)).collect()
        }
    }
}

fn row_of_job(view: &View, job: &api::Job, answer: &Answer) -> Row {
    let key = key_of(job);
    let name = job.name.clone().filter(|name| !name.is_empty());
    let mut row = Row {
        name: name.unwrap_or_else(|| job.display_id.clone()),
        user: job.user.clone().or_else(|| job.uid.map(|uid| uid.to_string())).unwrap_or_default(),
        ..Row::default()
    };
    for device in job.devices.iter().filter(|device| concerns_node(view, device)) {
        let Some(usage) = answer.usage.get(&(key.clone(), device.clone())) else { continue };
        add(&mut row, usage);
    }
    row.id = key;
    row
}

fn row_of_node(node: &api::Node, answer: &Answer) -> Row {
    let mut row = with_usage("", &node.device, answer);
    row.memory = node.memory_used_bytes.filter(|_| node.alive);
    // Exact: a node never has 2^53 jobs.
    row.tasks = Some(node.jobs.len() as f64);
    row
}

/// The row of a node, with the usage of a job there or of the node itself.
fn with_usage(key: &str, device: &str, answer: &Answer) -> Row {
    let node = answer.nodes.iter().find(|node| node.device == device);
    let state = node.map_or("unknown", |node| if node.alive { "alive" } else { "silent" });
    let mut row = Row { id: device.to_owned(), user: state.to_owned(), ..Row::default() };
    if let Some(usage) = answer.usage.get(&(key.to_owned(), device.to_owned())) {
        add(&mut row, usage);
    }
    row
}

fn add(row: &mut Row, usage: &Usage) {
    for (sum, part) in [
        (&mut row.cpu, usage.cpu),
        (&mut row.memory, usage.memory),
        (&mut row.read, usage.read()),
        (&mut row.written, usage.written()),
        (&mut row.tasks, usage.tasks),
    ] {
        if let Some(part) = part {
            *sum = Some(sum.unwrap_or(0.0) + part);
        }
    }
}

#[cfg(test)]
mod tests;
