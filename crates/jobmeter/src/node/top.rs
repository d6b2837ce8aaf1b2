//! `jobmeter top`: what jobs and processes of this node, or jobs and nodes of a server, use; live in a terminal.

mod ask;
mod cluster;
mod here;
mod keys;
mod local;
mod rates;
mod table;
mod terminal;
mod users;

use crate::node::probe::Site;
use crate::server::client::Client;
use anyhow::Context as _;
use clap::ArgMatches;
use cluster::Cluster;
use here::Here;
use kernel::{Root, clock};
use std::time::Duration;
use table::{Asked, Head, Row, Shown, Words};
use terminal::{Terminal, Woken};

/// How often this node is read when nobody says otherwise.
const PERIOD: Duration = Duration::from_secs(2);
/// How often a server is asked: agents' readings are 5 s apart when nobody says otherwise.
const PERIOD_OF_SERVER: Duration = Duration::from_secs(5);
/// Shorter makes the reading itself the load.
const PERIOD_MIN: Duration = Duration::from_millis(100);
/// The second reading comes soon: rates need two.
const SOON_US: u64 = 500_000;
/// While something is waited for the screen is looked at so often.
const GLANCE: Duration = Duration::from_millis(100);

/// What is looked at.
trait Scene {
    /// Reads anew, or begins to.
    fn read(&mut self);
    /// Takes what has come since; whether something is waited for still.
    fn is_waiting(&mut self) -> bool;
    /// Shows something else, and says whether it does.
    fn turn_to(&mut self, asked: &Asked) -> bool;
    /// What is shown, in no order.
    fn rows(&self) -> &[Row];
    fn head(&self) -> Head;
    /// What the rows are.
    fn title(&self) -> String;
    fn words(&self) -> Words;
}

/// `jobmeter top` of this node.
pub(crate) fn top(matches: &ArgMatches, device: &str) -> anyhow::Result<()> {
    let period = period(matches, PERIOD)?;
    let mut here = Here::new(Site::new(Root::live()?, device)?);
    watch(&mut here, period)
}

/// `jobmeter top` of what a server knows.
pub(crate) fn top_of_server(matches: &ArgMatches, client: Client) -> anyhow::Result<()> {
    let period = period(matches, PERIOD_OF_SERVER)?;
    let mut cluster = Cluster::new(client)?;
    watch(&mut cluster, period)
}

/// Whether all that a server knows is to be shown, and not this node alone.
pub(crate) fn is_of_server(matches: &ArgMatches) -> bool {
    matches.get_flag("cluster") || matches.get_one::<String>("server").is_some()
}

fn period(matches: &ArgMatches, usual: Duration) -> anyhow::Result<Duration> {
    let Some(text) = matches.get_one::<String>("period") else { return Ok(usual) };
    let period =
        Some(crate::output::times::duration("period", text)?).filter(|one| *one >= PERIOD_MIN);
    period.with_context(|| format!("--period {text}: the shortest is 100ms"))
}

fn watch(scene: &mut dyn Scene, period: Duration) -> anyhow::Result<()> {
    let terminal = Terminal::take()?;
    let mut shown = Shown::new();
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
            Woken::End => return Ok(()),
            Woken::Changed | Woken::Nothing => {}
            Woken::Typed(bytes) => {
                for key in keys::keys(&bytes) {
                    match shown.key(key, &shown.ordered(scene.rows())) {
                        Some(Asked::Quit) => return Ok(()),
                        Some(asked) if scene.turn_to(&asked) => {
                            due_us = clock::monotonic_us().saturating_add(soon_us);
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}
