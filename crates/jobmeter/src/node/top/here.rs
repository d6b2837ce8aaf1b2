//! The screen of this node: its jobs, or its processes.

use super::Scene;
use super::local::{Local, Whose};
use super::table::{Asked, Head, Row, Words};
use crate::node::probe::Site;
use model::Timestamp;

/// The help line.
const HELP: &str =
    "q quit  ? help  c m r w t n u order  / filter  enter processes of job  p all  j jobs";

/// The state of this node's screen.
pub(super) struct Here {
    local: Local,
    /// `None`: the screen shows jobs.
    whose: Option<Whose>,
    head: Head,
    jobs: Vec<Row>,
    processes: Vec<Row>,
    left_out: usize,
}

impl Here {
    pub(super) fn new(site: Site) -> Self {
        Self {
            local: Local::new(site),
            whose: None,
            head: Head::default(),
            jobs: Vec::new(),
            processes: Vec::new(),
            left_out: 0,
        }
    }

    fn read_processes(&mut self, now: Timestamp) {
        if let Some(whose) = &self.whose {
            (self.processes, self.left_out) = self.local.processes(whose, now);
        }
    }
}

impl Scene for Here {
    fn read(&mut self) {
        let now = crate::clock();
        (self.head, self.jobs) = self.local.read(now);
        self.read_processes(now);
    }

    fn is_waiting(&mut self) -> bool {
        false
    }

    /// Job rows are available at once; process rows at first lack rates.
    fn turn_to(&mut self, asked: &Asked) -> bool {
        let whose = match asked {
            Asked::Jobs => None,
            Asked::Processes => Some(Whose::Node),
            // A process has no further detail.
            Asked::Of(id) if self.whose.is_none() => self.local.job(id).map(Whose::Job),
            Asked::Of(_) | Asked::Nodes | Asked::Quit => return false,
        };
        if whose == self.whose {
            return false;
        }
        self.whose = whose;
        self.left_out = 0;
        self.local.forget_processes();
        self.read_processes(crate::clock());
        true
    }

    fn rows(&self) -> &[Row] {
        if self.whose.is_none() { &self.jobs } else { &self.processes }
    }

    fn head(&self) -> Head {
        self.head.clone()
    }

    fn title(&self) -> String {
        let shown = match &self.whose {
            None if self.jobs.is_empty() => "no jobs on this node; start one with `jobmeter \
                                             run`"
                .to_owned(),
            None => "jobs".to_owned(),
            Some(Whose::Node) => "processes".to_owned(),
            Some(Whose::Job(key)) => format!("processes of {key}"),
        };
        match self.left_out {
            0 => shown,
            left_out => format!("{shown} ({left_out} more are not read)"),
        }
    }

    fn words(&self) -> Words {
        Words { user: "USER", tasks: "TASKS", help: HELP }
    }
}
