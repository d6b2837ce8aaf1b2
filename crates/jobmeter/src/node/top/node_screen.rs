//! The screen of this node: its jobs, or its processes.

use super::Screen;
use super::local_readings::{LocalReadings, ProcessSelection};
use super::table::{Head, Row, ScreenAction, ScreenTexts};
use crate::node::probe::ProbedMachine;
use model::Timestamp;

/// The help line.
const HELP: &str =
    "q quit  ? help  c m r w t n u order  / filter  enter processes of job  p all  j jobs";

/// The state of this node's screen.
pub(super) struct NodeScreen {
    local: LocalReadings,
    /// `None`: the screen shows jobs.
    selection: Option<ProcessSelection>,
    head: Head,
    jobs: Vec<Row>,
    processes: Vec<Row>,
    left_out: usize,
}

impl NodeScreen {
    pub(super) fn new(probed_machine: ProbedMachine) -> Self {
        Self {
            local: LocalReadings::new(probed_machine),
            selection: None,
            head: Head::default(),
            jobs: Vec::new(),
            processes: Vec::new(),
            left_out: 0,
        }
    }

    fn read_processes(&mut self, now: Timestamp) {
        if let Some(selection) = &self.selection {
            (self.processes, self.left_out) = self.local.processes(selection, now);
        }
    }
}

impl Screen for NodeScreen {
    fn read(&mut self) {
        let now = crate::clock();
        (self.head, self.jobs) = self.local.read(now);
        self.read_processes(now);
    }

    fn is_waiting(&mut self) -> bool {
        false
    }

    /// Job rows are available at once; process rows at first lack rates.
    fn turn_to(&mut self, action: &ScreenAction) -> bool {
        let selection = match action {
            ScreenAction::Jobs => None,
            ScreenAction::Processes => Some(ProcessSelection::Node),
            // A process has no further detail.
            ScreenAction::Of(id) if self.selection.is_none() => {
                self.local.job(id).map(ProcessSelection::Job)
            }
            ScreenAction::Of(_) | ScreenAction::Nodes | ScreenAction::Quit => return false,
        };
        if selection == self.selection {
            return false;
        }
        self.selection = selection;
        self.left_out = 0;
        self.local.forget_processes();
        self.read_processes(crate::clock());
        true
    }

    fn rows(&self) -> &[Row] {
        if self.selection.is_none() { &self.jobs } else { &self.processes }
    }

    fn head(&self) -> Head {
        self.head.clone()
    }

    fn title(&self) -> String {
        let shown = match &self.selection {
            None if self.jobs.is_empty() => "no jobs on this node; start one with `jobmeter \
                                             run`"
                .to_owned(),
            None => "jobs".to_owned(),
            Some(ProcessSelection::Node) => "processes".to_owned(),
            Some(ProcessSelection::Job(key)) => format!("processes of {key}"),
        };
        match self.left_out {
            0 => shown,
            left_out => format!("{shown} ({left_out} more are not read)"),
        }
    }

    fn words(&self) -> ScreenTexts {
        ScreenTexts { user: "USER", tasks: "TASKS", help: HELP }
    }
}
