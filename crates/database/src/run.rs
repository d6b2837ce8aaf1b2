//! Executes statements without a long wait in the lines of locks.

use crate::error::SetupError;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// A statement gives up after this wait for a lock, so that others do not queue behind it for long.
const LOCK_WAIT_MS: u32 = 50;
/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(500);
/// Tries of a step.
const TRIES: u32 = 240;

/// Statements that are executed together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// In one transaction that locks nothing of the site.
    Beside(Vec<String>),
    /// In one transaction.
    Together(Vec<String>),
    /// Outside of a transaction, as the statement requires.
    Alone(String),
}

/// How long a step took, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// The longest transaction with locks on what the site uses: so long others waited for them at most.
    pub longest: Duration,
    /// Tries that found a lock taken.
    pub retries: u32,
}

/// Executes a step. It is repeated while a lock is taken.
///
/// # Errors
/// A statement is rejected; its transaction changes nothing.
pub async fn execute(
    client: &Client,
    step: &Step,
    executed: &mut Executed,
) -> Result<(), SetupError> {
    for _ in 0..TRIES {
        let result = match step {
            Step::Together(statements) => together(client, statements, executed).await,
            Step::Beside(statements) => {
                together(client, statements, &mut Executed::default()).await
            }
            Step::Alone(statement) => {
                client.batch_execute(&format!("SET lock_timeout = {LOCK_WAIT_MS}")).await?;
                client.batch_execute(statement).await
            }
        };
        match result {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                executed.retries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            other => return Ok(other?),
        }
    }
    let seconds = (PAUSE * TRIES).as_secs();
    let first = match step {
        Step::Together(statements) | Step::Beside(statements) => {
            statements.first().map_or("", String::as_str)
        }
        Step::Alone(statement) => statement,
    };
    Err(SetupError::Locked(seconds, first.lines().next().unwrap_or_default().to_owned()))
}

async fn together(
    client: &Client,
    statements: &[String],
    executed: &mut Executed,
) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&format!("BEGIN; SET LOCAL lock_timeout = {LOCK_WAIT_MS}")).await?;
    #[expect(clippy::disallowed_methods, reason = "the duration is a result, and decides nothing")]
    let begun = Instant::now();
    // One message, so the locks are held for the time of the statements alone.
    let result = client.batch_execute(&format!("{}\n;COMMIT", statements.join(";\n"))).await;
    match result {
        Ok(()) => executed.longest = executed.longest.max(begun.elapsed()),
        Err(_) => client.batch_execute("ROLLBACK").await?,
    }
    result
}
