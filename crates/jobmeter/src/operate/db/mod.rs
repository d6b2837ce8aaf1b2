//! `jobmeter db`: sets up the PostgreSQL database of a server, shows its state, and gives it back.

mod options;
mod report;

use crate::client::plain::plain_lines;
use crate::output::options::JsonOption;
use anyhow::{Context as _, bail};
use database::{Executed, Remaining, Step};
use options::{Address, SetupArgs};
use std::io::{self, IsTerminal as _, Write as _};
use tokio_postgres::Client;

/// Sets up the PostgreSQL database of a server, shows its state, or gives it back
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter db setup --kwollect_password_file /etc/jobmeter/kwuser")]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    command: DbCommand,
}

#[derive(clap::Subcommand, Debug)]
enum DbCommand {
    Setup(Box<SetupArgs>),
    Status(StatusArgs),
    Release(ReleaseArgs),
    Rollup(RollupArgs),
}

/// Shows versions, sizes, and how far maintenance lags
#[derive(clap::Args, Debug)]
struct StatusArgs {
    #[command(flatten)]
    address: Address,
    #[command(flatten)]
    format: JsonOption,
}

/// Gives the database back: removes what jobmeter made, and restores what it replaced
///
/// Stop the server first. Samples of nodes remain in `metrics`; samples of jobs are in the schema jobmeter, and go with it.
#[derive(clap::Args, Debug)]
struct ReleaseArgs {
    #[command(flatten)]
    address: Address,
    /// Leave the schema jobmeter
    #[arg(long)]
    keep: bool,
    /// Print the statements, and execute none
    #[arg(long)]
    dry_run: bool,
}

/// Has the server compute the rollups and summaries of a time range again, from the samples
///
/// The server does it by itself for rows that other programs write. Use this for rows from before a trigger recorded them, or after
/// rows were changed or deleted by hand. Rollups whose samples are deleted remain.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter db rollup --start 2026-01-06 --end 2026-01-07")]
struct RollupArgs {
    #[command(flatten)]
    address: Address,
    /// Start of the range
    #[arg(long, value_name = "TIME")]
    start: String,
    /// End of the range
    #[arg(long, value_name = "TIME")]
    end: String,
}

/// Executes a command.
pub(crate) fn db(args: &DbArgs) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.command {
            DbCommand::Setup(args) => setup(args).await,
            DbCommand::Status(args) => status(args).await,
            DbCommand::Release(args) => release(args).await,
            DbCommand::Rollup(args) => rollup(args).await,
        }
    })
}

async fn setup(args: &SetupArgs) -> anyhow::Result<()> {
    let options = args.options()?;
    let server = args.address.connect("postgres").await?;
    let roles = database::prepare_server(&server, &options, args.dry_run).await?;
    let exists = database_exists(&server, &options.database).await?;
    if args.dry_run {
        print_steps(&format!("in the database postgres of {}", args.address.host()), &roles)?;
        let client = match exists {
            true => Some(args.address.connect(&options.database).await?),
            false => None,
        };
        let (_, steps) = database::setup(client.as_ref(), &server, &options).await?;
        return print_steps(&format!("in the database {}", options.database), &steps);
    }
    // What is in the way of the database is found before anything is changed.
    if exists {
        let client = args.address.connect(&options.database).await?;
        database::setup(Some(&client), &server, &options).await?;
    }
    let mut executed = Executed::default();
    execute(&server, &roles, &mut executed).await?;
    let client = args.address.connect(&options.database).await?;
    // Its licence is readable in a database that has it.
    let extension = database::extension(&client).await?;
    execute(&client, extension.as_slice(), &mut executed).await?;
    let (before, steps) = database::setup(Some(&client), &server, &options).await?;
    if let Err(error) = execute(&client, &steps, &mut executed).await {
        // The next try, or `release`, removes the rest. The bound would reject rows in some hours.
        client.batch_execute(&database::drop_bound()).await.unwrap_or_default();
        return Err(error);
    }
    report::setup(args, &options, &before, &executed, &client).await
}

async fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let client = args.address.connect(args.address.database()).await?;
    let status = database::status(&client).await?;
    report::status(&status, args.format.json)
}

async fn release(args: &ReleaseArgs) -> anyhow::Result<()> {
    let client = args.address.connect(args.address.database()).await?;
    let steps = database::release(&client, args.keep).await?;
    if args.dry_run {
        return print_steps(&format!("in the database {}", args.address.database()), &steps);
    }
    let Remaining { here, elsewhere } = database::remaining(&client).await?;
    let mut executed = Executed::default();
    execute(&client, &steps, &mut executed).await?;
    let mut out = io::stdout().lock();
    let database = args.address.database();
    match here.is_empty() {
        true => writeln!(out, "The schema of the database {database} is as before jobmeter.")?,
        false => writeln!(
            out,
            "The schema of the database {database} is as before jobmeter, except for the following. If nobody uses it, a superuser \
             removes it there:"
        )?,
    }
    here.iter().try_for_each(|statement| writeln!(out, "  {statement};"))?;
    if !elsewhere.is_empty() {
        writeln!(
            out,
            "Roles, their settings and the samples remain, as Kwollect's setup also makes them. If nobody uses them, a superuser removes \
             them in another database, one statement at a time:"
        )?;
        elsewhere.iter().try_for_each(|statement| writeln!(out, "  {statement};"))?;
    }
    Ok(())
}

async fn rollup(args: &RollupArgs) -> anyhow::Result<()> {
    let (now, zone) = (crate::clock(), jiff::tz::TimeZone::system());
    let time = |option: &str, text: &str| {
        api::parse_time(text, now, &zone).with_context(|| format!("--{option}"))
    };
    let (from, to) = (time("start", &args.start)?, time("end", &args.end)?);
    if from > to {
        bail!("--end is before --start");
    }
    let client = args.address.connect(args.address.database()).await?;
    match database::rollup(&client, (from.0, to.0)).await? {
        true => writeln!(io::stdout(), "The rollups are computed again.")?,
        false => writeln!(
            io::stdout(),
            "No server uses the database: the next one computes the rollups again."
        )?,
    }
    Ok(())
}

async fn database_exists(client: &Client, database: &str) -> anyhow::Result<bool> {
    let text = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)";
    Ok(client
        .query_one(text, &[&database])
        .await
        .context("reading the list of databases")?
        .try_get(0)?)
}

async fn execute(client: &Client, steps: &[Step], executed: &mut Executed) -> anyhow::Result<()> {
    for step in steps {
        database::execute(client, step, executed).await?;
    }
    Ok(())
}

/// Prints statements so that psql can execute them. On a terminal, what would act on it is left out.
fn print_steps(place: &str, steps: &[Step]) -> anyhow::Result<()> {
    let mut text = Vec::new();
    write_steps(&mut text, place, steps)?;
    let mut out = io::stdout().lock();
    match out.is_terminal() {
        true => write!(out, "{}", plain_lines(&String::from_utf8_lossy(&text)))?,
        false => out.write_all(&text)?,
    }
    Ok(())
}

fn write_steps(out: &mut Vec<u8>, place: &str, steps: &[Step]) -> io::Result<()> {
    writeln!(out, "-- {place}")?;
    for step in steps {
        match step {
            Step::Alone(statement) => {
                writeln!(out, "{};", statement.trim_end().trim_end_matches(';'))?
            }
            Step::Together(statements) | Step::Beside(statements) => {
                writeln!(out, "BEGIN;")?;
                for statement in statements.iter().filter(|text| !text.is_empty()) {
                    writeln!(out, "{};", statement.trim_end().trim_end_matches(';'))?;
                }
                writeln!(out, "COMMIT;")?;
            }
        }
    }
    Ok(())
}

/// A name of a role or database.
fn checked_name(option: &str, text: &str) -> anyhow::Result<String> {
    // PostgreSQL cuts longer names.
    if text.is_empty() || text.len() > 59 || text.contains('\0') {
        bail!("--{option}: a name has 1 to 59 bytes");
    }
    Ok(text.to_owned())
}
