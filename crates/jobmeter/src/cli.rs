//! The command line: commands, options and arguments. The options of a command stand beside the command.

use crate::{change, compare, complete, look, manual, measure, node, operate};
use clap::builder::{NonEmptyStringValueParser, ValueParser};
use clap::{Arg, Command, Subcommand, ValueHint};
use std::ffi::OsString;

#[cfg(test)]
mod documents;
mod groups;
pub(crate) mod misplaced_words;

// The commands; a docstring would replace the description of the program.
#[derive(Subcommand, Debug)]
pub(crate) enum Commands {
    Up(operate::up::UpArgs),
    Run(measure::run::options::RunArgs),
    Jobs(look::jobs::JobsArgs),
    Job(look::job::JobArgs),
    Nodes(look::nodes_command::NodesArgs),
    Devices(look::devices::DevicesArgs),
    Get(look::data_queries::GetArgs),
    Explain(look::explain::ExplainArgs),
    Gaps(look::gaps::GapsArgs),
    Sql(look::data_queries::SqlArgs),
    Set(change::demand_options::SetArgs),
    Flush(change::demand_options::FlushArgs),
    Promote(change::demand_options::PromoteArgs),
    #[command(arg_required_else_help = true)]
    Token(change::access::TokenArgs),
    #[command(arg_required_else_help = true)]
    Account(change::access::AccountArgs),
    Audit(look::audit::AuditArgs),
    Outputs(look::outputs::OutputsArgs),
    Fill(look::outputs::FillArgs),
    Extract(look::extract::ExtractArgs),
    Compare(compare::CompareArgs),
    Top(node::top::TopArgs),
    Sources(node::sources_of_node::SourcesArgs),
    Doctor(node::doctor::DoctorArgs),
    Capture(node::sources_of_node::CaptureArgs),
    ColmetNode(node::colmet_node::ColmetNodeArgs),
    ColmetCollector(operate::colmet_collector::ColmetCollectorArgs),
    Check(operate::check::CheckArgs),
    Import(operate::import::ImportArgs),
    Poll(operate::poll::PollArgs),
    Feed(operate::poll::FeedArgs),
    Kwollector(operate::poll::KwollectorArgs),
    KwollectorWattmetre(operate::poll::KwollectorWattmetreArgs),
    Verify(operate::verify::VerifyArgs),
    Backup(operate::backup::BackupArgs),
    Db(operate::db::DbArgs),
    Dashboards(operate::dashboards::DashboardsArgs),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
    /// Runs the server program; see `jobmeter-server --help`
    #[command(disable_help_flag = true)]
    Server {
        #[arg(num_args = 0.., trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// The complete command line.
pub(crate) fn command() -> Command {
    let command = Command::new("jobmeter")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Measures the resource use of every job, node and device of a cluster")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(common())
        .after_help("Example: jobmeter run -- make -j2");
    let command = with_poller_settings(Commands::augment_subcommands(command));
    groups::with_groups(with_common_rules(command))
}

/// Adds the settings of pollers that are no flags of every command.
fn with_poller_settings(command: Command) -> Command {
    let common = config::client_settings();
    let further = |command: Command, settings: &[config::Setting]| {
        let is_further =
            |setting: &&config::Setting| common.iter().all(|one| one.key != setting.key);
        let flags: Vec<Arg> = config::setting_flags(settings.iter().filter(is_further)).collect();
        command.args(flags)
    };
    command
        .mut_subcommand("poll", |poll| further(poll, &config::polling_settings()))
        .mut_subcommand("feed", |feed| further(feed, &config::feed_settings()))
}

/// Flags of every command: the settings of [`config::client_settings`], `--config` and `-v`.
fn common() -> Vec<Arg> {
    let flags = config::flags(&config::client_settings());
    flags.into_iter().map(|flag| flag.global(true)).collect()
}

/// Applies the rules of every option: an empty value is rejected, a time may begin with a minus sign, and the long
/// help states the formats of times.
fn with_common_rules(command: Command) -> Command {
    command.mut_args(with_rules).mut_subcommands(with_common_rules)
}

fn with_rules(arg: Arg) -> Arg {
    let is_text = arg.get_action().takes_values()
        && arg.get_value_parser().type_id() == ValueParser::string().type_id()
        && arg.get_value_parser().possible_values().is_none();
    // Otherwise an unset variable in a script would count as an omitted value.
    let arg = if is_text { arg.value_parser(NonEmptyStringValueParser::new()) } else { arg };
    let arg = if is_text && is_word(&arg) { arg.value_hint(ValueHint::Other) } else { arg };
    let is_time =
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == "TIME"));
    // The parser of times reports the error of a negative one.
    let arg = if is_time { arg.allow_hyphen_values(true) } else { arg };
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    match arg.get_id().as_str() {
        "since" | "until" => arg.long_help(format!("{help}. {TIMES}")),
        "last" => arg.long_help(format!("{help}, such as 30s, 5m or 1h30m")),
        _ => arg,
    }
}

/// Whether an option's value is neither a file nor completed by the server: shells offer files for a value without a hint.
fn is_word(arg: &Arg) -> bool {
    let is_file = arg
        .get_value_names()
        .is_some_and(|names| names.iter().any(|name| matches!(&**name, "FILE" | "DIR")));
    arg.get_value_hint() == ValueHint::Unknown
        && !is_file
        && arg.get_long().is_some_and(|name| !complete::has_values(name))
}

/// Formats of a time.
const TIMES: &str = "A time is 10m or 1h30m before now, 14:49 today, yesterday, `yesterday 14:49`, \
    2026-01-06 or `2026-01-06 14:49` in this machine's time zone, 2026-01-06T13:49:00Z, or seconds since 1970";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches as _;

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    #[test]
    fn empty_values_are_rejected() {
        for words in [
            &["get", "--device", ""][..],
            &["--server", "", "nodes"],
            &["jobs", "--since="],
            &["explain", ""],
            &["run", "--name", "", "--", "true"],
            &["token", "create", "--note", ""],
        ] {
            let words = [&["jobmeter"], words].concat();
            let error = command().try_get_matches_from(&words).unwrap_err().to_string();
            assert!(error.contains("a value is required for"), "{words:?}: {error}");
        }
        let run = ["jobmeter", "run", "--", "echo", ""];
        assert!(command().try_get_matches_from(run).is_ok(), "a command's own arguments");
    }

    #[test]
    fn a_check_of_jobs_has_no_filter() {
        for option in ["--user", "--since", "--limit"] {
            let words = ["jobmeter", "jobs", "--check", option, "1"];
            let error = command().try_get_matches_from(words).unwrap_err().to_string();
            assert!(error.contains(&format!("cannot be used with '{option}")), "{error}");
        }
    }

    #[test]
    fn every_command_has_an_example() {
        for sub in command().get_subcommands().filter(|sub| sub.get_name() != "server") {
            let example = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.starts_with("Example: jobmeter "), "{}", sub.get_name());
        }
    }

    #[test]
    fn a_job_by_number_or_by_verb() {
        let parse = |words: &[&str]| {
            let matches = command().try_get_matches_from([&["jobmeter", "job"], words].concat());
            format!("{:?}", Commands::from_arg_matches(&matches.unwrap()).unwrap())
        };
        let report = parse(&["slurm:123_4", "--json"]);
        assert!(
            report.contains("Some(\"slurm:123_4\")") && report.contains("json: true"),
            "{report}"
        );
        let end = parse(&["end", "local:7", "--exit-code", "3"]);
        assert!(end.contains("\"local:7\"") && end.contains("exit_code: Some(3)"), "{end}");
    }

    #[test]
    fn options_of_run_end_where_the_command_begins() {
        let command_of = |words: &[&str]| -> Result<Vec<String>, clap::Error> {
            let matches = command().try_get_matches_from([&["jobmeter", "run"], words].concat())?;
            let Commands::Run(run) = Commands::from_arg_matches(&matches)? else { panic!() };
            Ok(run.command.iter().map(|word| word.to_str().unwrap().to_owned()).collect())
        };
        for words in [&["--nmae", "x", "--", "true"][..], &["--nmae", "true"], &["-n", "true"]] {
            let error = command_of(words).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::UnknownArgument, "{words:?}");
        }
        assert!(
            command_of(&["--nmae", "x", "--", "true"]).unwrap_err().to_string().contains("--name")
        );
        let shell = ["sh", "-c", "exit 3"];
        assert_eq!(command_of(&["--json", "--", "sh", "-c", "exit 3"]).unwrap(), shell);
        assert_eq!(command_of(&["--json", "sh", "-c", "exit 3"]).unwrap(), shell);
        // The command's own options pass through, even if `run` has options of the same name.
        let ours = ["make", "--name", "-j2", "--", "--nmae"];
        assert_eq!(command_of(&ours).unwrap(), ours);
        assert_eq!(command_of(&["--", "--odd-name", "-x"]).unwrap(), ["--odd-name", "-x"]);
    }
}
