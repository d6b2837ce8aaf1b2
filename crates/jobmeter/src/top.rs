//! `jobmeter top`: what the jobs and processes of this node use, live in a terminal.

mod keys;
mod local;
mod rates;
mod table;
mod terminal;

use crate::probe::Site;
use anyhow::Context as _;
use clap::ArgMatches;
use kernel::{Root, clock};
use local::{Local, Whose};
use model::Timestamp;
use std::time::Duration;
use table::{Asked, Head, Row, Shown};
use terminal::{Terminal, Woken};

/// How often everything is read when nobody says otherwise.
const PERIOD: Duration = Duration::from_secs(2);
/// Shorter makes the reading itself the load.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// The second reading comes soon: rates need two.
const SOON_US: u64 = 500_000;

/// What is shown.
struct Screen {
    local: Local,
    shown: Shown,
    /// `None` for the jobs.
    whose: Option<Whose>,
    head: Head,
    jobs: Vec<Row>,
    processes: Vec<Row>,
    left_out: usize,
}

/// `jobmeter top`.
pub(crate) fn top(matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    let period = match matches.get_one::<String>("period") {
        Some(text) => config::parse_duration(text)
            .filter(|period| *period >= PERIOD_MIN)
            .with_context(|| format!("--period {text} is no time from 100ms on, such as 2s"))?,
        None => PERIOD,
    };
    let local = Local::new(Site::new(Root::live()?, device)?);
    let terminal = Terminal::take()?;
    let mut screen = Screen {
        local,
        shown: Shown::new(),
        whose: None,
        head: Head::default(),
        jobs: Vec::new(),
        processes: Vec::new(),
        left_out: 0,
    };
    screen.run(&terminal, u64::try_from(period.as_micros()).unwrap_or(u64::MAX))
}

impl Screen {
    fn run(&mut self, terminal: &Terminal, period_us: u64) -> anyhow::Result<()> {
        let soon_us = SOON_US.min(period_us);
        let (mut due_us, mut wait_us) = (0, soon_us);
        loop {
            let now_us = clock::monotonic_us();
            if now_us >= due_us {
                self.read();
                due_us = now_us.saturating_add(wait_us);
                wait_us = period_us;
            }
            let (rows, title) = (self.rows(), self.title());
            terminal.show(&self.shown.draw(&self.head, &title, &rows, terminal.size()))?;
            let left = due_us.saturating_sub(clock::monotonic_us());
            match terminal.wait(Duration::from_micros(left))? {
                Woken::End => return Ok(()),
                Woken::Changed | Woken::Nothing => {}
                Woken::Typed(bytes) => {
                    for key in keys::keys(&bytes) {
                        match self.shown.key(key, &self.rows()) {
                            Some(Asked::Quit) => return Ok(()),
                            Some(asked) if self.turn_to(&asked) => {
                                due_us = clock::monotonic_us().saturating_add(soon_us);
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
    }

    /// What is shown, in order.
    fn rows(&self) -> Vec<Row> {
        self.shown.ordered(if self.whose.is_none() { &self.jobs } else { &self.processes })
    }

    fn read(&mut self) {
        let now = crate::clock();
        (self.head, self.jobs) = self.local.read(now);
        self.read_processes(now);
    }

    fn read_processes(&mut self, now: Timestamp) {
        if let Some(whose) = &self.whose {
            (self.processes, self.left_out) = self.local.processes(whose, now);
        }
    }

    /// Shows something else, and says whether it does. Jobs are known already, of processes at first all but
    /// their rates.
    fn turn_to(&mut self, asked: &Asked) -> bool {
        let whose = match asked {
            Asked::Jobs => None,
            Asked::Processes => Some(Whose::Node),
            // A process has nothing below it.
            Asked::Of(id) if self.whose.is_none() => self.local.job(id).map(Whose::Job),
            Asked::Of(_) | Asked::Quit => return false,
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

    fn title(&self) -> String {
        let shown = match &self.whose {
            None if self.jobs.is_empty() => "no job here; `jobmeter run` starts one".to_owned(),
            None => "jobs".to_owned(),
            Some(Whose::Node) => "processes".to_owned(),
            Some(Whose::Job(key)) => format!("processes of {key}"),
        };
        match self.left_out {
            0 => shown,
            left_out => format!("{shown} ({left_out} more are not read)"),
        }
    }
}
