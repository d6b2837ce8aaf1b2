//! `jobmeter top`: live usage of this node's jobs and processes, or of a server's jobs and nodes, in a terminal.

mod keys;
mod local_readings;
mod node_screen;
mod rates;
mod server_data;
mod server_screen;
mod table;
mod terminal;

use crate::client::http_client::Client;
use crate::node::probe::ProbedMachine;
use anyhow::Context as _;
use kernel::{Root, clock};
use node_screen::NodeScreen;
use server_screen::ServerScreen;
use std::time::Duration;
use table::{Head, Row, ScreenAction, ScreenTexts, TableState};
use terminal::{Terminal, WakeReason};

/// Default interval between readings of this node.
const PERIOD: Duration = Duration::from_secs(2);
/// Default interval between requests to a server: agents read every 5 s by default.
const PERIOD_OF_SERVER: Duration = Duration::from_secs(5);
/// Minimum interval: with a shorter one, the reading itself is the load.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// Delay of the second reading, which the first rates need.
const SOON_US: u64 = 500_000;
/// Interval between screen updates while a reading or an answer is pending.
const GLANCE: Duration = Duration::from_millis(100);

/// The content of a screen.
trait Screen {
    /// Takes a new reading, or requests one.
    fn read(&mut self);
    /// Processes new data; returns whether a reading or an answer is pending.
    fn is_waiting(&mut self) -> bool;
    /// Changes the content; returns whether it did.
    fn turn_to(&mut self, action: &ScreenAction) -> bool;
    /// The rows, unordered.
    fn rows(&self) -> &[Row];
    fn head(&self) -> Head;
    /// The title of the rows.
    fn title(&self) -> String;
    fn words(&self) -> ScreenTexts;
}

/// Shows live resource use of this node's jobs and processes, or of a server's jobs and nodes
#[derive(clap::Args, Debug)]
#[command(after_help = AFTER)]
pub(crate) struct TopArgs {
    /// Interval between readings [default: 2s, of a server 5s]
    #[arg(long, value_name = "TIME")]
    period: Option<String>,
    /// Show all jobs and nodes of the server instead of this node; --server implies it
    #[arg(long)]
    pub(crate) cluster: bool,
}

const AFTER: &str = "\
Example: jobmeter top --period 1s

Keys: c m r w sort by processor time, memory, bytes read, bytes written; t n u sort by the last \
column, the name and the second column. The same key again reverses the order. Arrow and page keys \
select a row. Enter shows the processes of a job; with a server, the nodes of a job or the jobs of \
a node. j shows all jobs; p all processes of this node; d all nodes of a server. / filters the \
rows by a text; Escape removes the filter, then returns to the jobs. ? shows the keys. q or Ctrl-C quits.";

/// `jobmeter top` of this node.
pub(crate) fn top(args: &TopArgs, device: &str) -> anyhow::Result<()> {
    let period = period(args, PERIOD)?;
    let mut here = NodeScreen::new(ProbedMachine::new(Root::live()?, device)?);
    watch(&mut here, period)
}

/// `jobmeter top` of a server's jobs and nodes.
pub(crate) fn top_of_server(args: &TopArgs, client: Client) -> anyhow::Result<()> {
    let period = period(args, PERIOD_OF_SERVER)?;
    let mut cluster = ServerScreen::new(client)?;
    watch(&mut cluster, period)
}

fn period(args: &TopArgs, usual: Duration) -> anyhow::Result<Duration> {
    let Some(text) = &args.period else { return Ok(usual) };
    let period =
        Some(crate::output::times::duration("period", text)?).filter(|one| *one >= PERIOD_MIN);
    period.with_context(|| format!("--period {text}: the shortest is 100ms"))
}

fn watch(scene: &mut dyn Screen, period: Duration) -> anyhow::Result<()> {
    let terminal = Terminal::take()?;
    let mut shown = TableState::new();
    let period_us = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
    let soon_us = SOON_US.min(period_us);
    let (mut due_us, mut wait_us) = (0, soon_us);
    loop {
        let now_us = clock::monotonic_us();
        if now_us >= due_us {
            scene.read();
            due_us = now_us.saturating_add(wait_us);
            wait_us = period_us;
        }
        let waiting = scene.is_waiting();
        let rows = shown.ordered(scene.rows());
        let lines =
            shown.draw(&scene.head(), &scene.title(), &scene.words(), &rows, terminal.size());
        terminal.show(&lines)?;
        let left = Duration::from_micros(due_us.saturating_sub(clock::monotonic_us()));
        match terminal.wait(if waiting { left.min(GLANCE) } else { left })? {
            WakeReason::End => return Ok(()),
            WakeReason::Changed | WakeReason::Nothing => {}
            WakeReason::Typed(bytes) => {
                for key in keys::keys(&bytes) {
                    match shown.key(key, &shown.ordered(scene.rows())) {
                        Some(ScreenAction::Quit) => return Ok(()),
                        Some(action) if scene.turn_to(&action) => {
                            due_us = clock::monotonic_us().saturating_add(soon_us);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
