//! The command line: commands, options and arguments.

use clap::builder::{NonEmptyStringValueParser, ValueParser};
use clap::{Arg, ArgAction, Command, ValueHint};

mod access;
mod demand;
#[cfg(test)]
mod documents;
mod groups;
mod operate;

/// The programs, each with a command line and a manual page.
pub(crate) const PROGRAMS: [&str; 3] = ["jobmeter", "jobmeter-agent", "jobmeter-server"];

/// The complete command.
pub(crate) fn command() -> Command {
    groups::with_groups(without_empty_values(all()))
}

fn all() -> Command {
    Command::new("jobmeter")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Measures the resource use of every job, node and device of a cluster")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(common())
        .subcommands([
            up(),
            run(),
            jobs(),
            job(),
            nodes(),
            get(),
            explain(),
            gaps(),
            sql(),
            demand::set(),
            demand::flush(),
            demand::promote(),
            access::token(),
            access::account(),
            access::audit(),
            top(),
            operate::sources(),
            operate::doctor(),
            operate::capture(),
            operate::check(),
            operate::verify(),
            operate::backup(),
            operate::completions(),
            operate::man(),
            operate::beside("server", "Runs the server program; see `jobmeter-server --help`"),
        ])
        .after_help("Example: jobmeter run -- make -j2")
}

/// Rejects empty values of every option and argument. Otherwise an unset variable in a script would count as an
/// omitted value.
fn without_empty_values(command: Command) -> Command {
    let is_text = |arg: &Arg| {
        let parser = arg.get_value_parser();
        arg.get_action().takes_values()
            && parser.type_id() == ValueParser::string().type_id()
            && parser.possible_values().is_none()
    };
    let command = command.mut_args(|arg| match is_text(&arg) {
        true => arg.value_parser(NonEmptyStringValueParser::new()),
        false => arg,
    });
    command.mut_subcommands(without_empty_values)
}

/// Flags of every command: the settings of [`config::client_settings`], `--config` and `-v`.
fn common() -> Vec<Arg> {
    let flags = config::flags(&config::client_settings());
    flags.into_iter().map(|flag| flag.global(true)).collect()
}

fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON, for scripts")
}

/// The flag `--csv` of lists.
fn csv() -> Arg {
    Arg::new("csv")
        .long("csv")
        .action(ArgAction::SetTrue)
        .conflicts_with("json")
        .help("Print CSV, for scripts and spreadsheets")
}

fn value(name: &'static str, word: &'static str, help: &'static str) -> Arg {
    // Accepts a negative time as a value, so that its parser reports the error.
    Arg::new(name).long(name).value_name(word).help(help).allow_hyphen_values(word == "TIME")
}

/// The start of an interval.
fn since(help: &'static str) -> Arg {
    value("since", "TIME", help).long_help(format!("{help}. {TIMES}"))
}

/// The end of an interval.
fn until(help: &'static str) -> Arg {
    value("until", "TIME", help).long_help(format!("{help}. {TIMES}"))
}

/// The length of an interval that ends now.
fn last(help: &'static str) -> Arg {
    value("last", "TIME", help).long_help(format!("{help}, such as 30s, 5m or 1h30m"))
}

/// Formats of a time.
const TIMES: &str = "A time is 10m or 1h30m before now, 14:49 today, yesterday, `yesterday 14:49`, \
    2026-01-06 or `2026-01-06 14:49` in this machine's time zone, 2026-01-06T13:49:00Z, or seconds since 1970";

fn format() -> Arg {
    value("format", "FORMAT", "table, csv or json [default: table]")
        .value_parser(["table", "csv", "json"])
}

fn up() -> Command {
    Command::new("up")
        .about("Runs server and agent on this machine, in the foreground, until Ctrl-C")
        .args([
            value(
                "data",
                "DIR",
                "Data folder [default: /var/lib/jobmeter as root, else in the XDG state folder]",
            ),
            value(
                "listen",
                "ADDRESS:PORT",
                "Address of the server [default: 127.0.0.1:8790, or the next free port]",
            ),
            value("period", "TIME", "Interval between readings of the counters [default: 5s]"),
            value("device", "NAME", "Name of this node in every sample [default: the host's name]"),
        ])
        .args(retention().iter().map(|(_, flag)| flag.clone()))
        .after_help("Example: jobmeter up --data .jobmeter --listen 127.0.0.1:8790 --period 1s")
}

/// The server's retention settings, with the flags of the same names.
pub(crate) fn retention() -> Vec<(config::Setting, Arg)> {
    let settings = config::server_settings().into_iter();
    let settings = settings.filter(|setting| setting.key.starts_with("retention."));
    let flag = |setting: config::Setting| {
        let flags = config::flags(std::slice::from_ref(&setting));
        let flag = flags.into_iter().find(|flag| *flag.get_id() == *setting.key);
        flag.map(|flag| (setting, flag))
    };
    settings.filter_map(flag).collect()
}

fn run() -> Command {
    Command::new("run")
        .about("Runs a command as a job and reports its resource use")
        .args([
            value("name", "NAME", "Name of the job [default: the command's name]"),
            value("cpus", "LIST", "Processors that the command may use, such as 0-3,8"),
            value("memory", "SIZE", "Memory limit, such as 2G or 512MiB"),
            value("device", "NAME", "Name of this node in every sample [default: the host's name]"),
            json(),
            Arg::new("command")
                .required(true)
                .num_args(1..)
                // Arguments before the command belong to `run`: an unknown option there is not a command.
                .trailing_var_arg(true)
                .value_name("COMMAND")
                .value_hint(ValueHint::CommandWithArguments)
                .value_parser(clap::value_parser!(std::ffi::OsString))
                .help("The command and its arguments"),
        ])
        .after_help("Example: jobmeter run --name demo -- make -j2")
}

fn jobs() -> Command {
    Command::new("jobs")
        .about("Lists jobs, newest first")
        .args([
            value("state", "STATE", "Only jobs in this state").value_parser(api::JOB_STATES),
            value("cluster", "NAME", "Only jobs of this cluster"),
            value("user", "USER", "Only jobs of this user, by login name or user ID"),
            value("account", "NAME", "Only jobs on this account"),
            value("project", "NAME", "Only jobs of this project"),
            value("queue", "NAME", "Only jobs of this queue or partition"),
            value("name", "NAME", "Only jobs of this name"),
            value("device", "NAME", "Only jobs of this node"),
            since("Only jobs that ran at or after this time"),
            until("Only jobs that ran at or before this time"),
            last("Only jobs that ran within this time before now"),
            value("limit", "N", "Maximum number of jobs [default: 50]"),
            value(
                "after",
                "PLACE",
                "Start of the next page, as printed in the last line of a full page",
            ),
            Arg::new("check")
                .long("check")
                .action(ArgAction::SetTrue)
                .conflicts_with_all(crate::look::jobs::FILTERS)
                .conflicts_with_all(["since", "until", "last"])
                .help("List differences between schedulers and nodes; exit code 1 if there is one"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter jobs --account physics --state failed")
}

fn job() -> Command {
    let id = || {
        Arg::new("id").value_name("[CLUSTER:]ID").help("The job, such as 123, 123_4 or slurm:123")
    };
    let start = Command::new("start")
        .about("Registers a job that starts now on this node; prints its ID")
        .args([
            Arg::new("id")
                .value_name("CLUSTER:ID")
                .help("A scheduler's job, for its prologue; default: a job of your own"),
            value("name", "NAME", "Its name"),
            value("device", "NAME", "The node that it runs on"),
            value("user", "USER", "Owner of a scheduler's job"),
            value("account", "NAME", "Its account"),
            value("project", "NAME", "Its project"),
            value("queue", "NAME", "Its queue"),
            value(
                "nodes",
                "NAMES",
                "All its nodes, separated by commas or lines, also n[1-3] [default: this one]",
            )
            .conflicts_with("device"),
            json(),
        ])
        .after_help(
            "Example: jobmeter job start site:42 --user alice --nodes \"$(cat $NODEFILE)\"",
        );
    let end = Command::new("end")
        .about("Reports the end of a registered job, or of a scheduler's job")
        .args([id().required(true), value("exit-code", "N", "Its exit code"), json()])
        .after_help("Example: jobmeter job end local:7 --exit-code 0");
    Command::new("job")
        .about("Reports the resource use of a job; `start` and `end` register a job")
        .args_conflicts_with_subcommands(true)
        .args([id(), json()])
        .subcommands([start, end])
        .after_help("Example: jobmeter job slurm:1234")
}

fn get() -> Command {
    Command::new("get")
        .about("Prints the samples of a node or a job")
        .args([
            value("device", "NAME", "Only samples of this device; several, separated by commas"),
            value("job", "[CLUSTER:]ID", "Only samples of this job"),
            value(
                "metric",
                "NAME",
                "Only this metric; several, separated by commas [default: all]",
            ),
            last("Only samples of this time before now [default: 5m; of a job: all]"),
            since("Only samples from this time on").alias("start"),
            until("Only samples until this time [default: now]").alias("end"),
            Arg::new("rate")
                .long("rate")
                .action(ArgAction::SetTrue)
                .help("Print counters as rates per second"),
            Arg::new("summary").long("summary").action(ArgAction::SetTrue).help(
                "Print five-minute averages, of counters the largest value, instead of samples",
            ),
            format(),
            json().conflicts_with("format"),
            csv().conflicts_with("format"),
        ])
        .after_help("Example: jobmeter get --device node-1 --metric load_1m --last 5m")
}

fn nodes() -> Command {
    Command::new("nodes")
        .about("Lists the nodes with their state, clock and agent; exit code 1 if one is silent or has several agents")
        .args([
            value(
                "forget",
                "NODE",
                "Remove a retired node from the list until it sends again; for administrators",
            )
            .conflicts_with("csv"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter nodes --json")
}

fn explain() -> Command {
    let label = value("label", "KEY=VALUE", "Only series with this label; may be repeated");
    Command::new("explain")
        .about(
            "Explains the origin of a series: source, period, errors, gaps; or why a node has \
                none (exit code 1)",
        )
        .args([
            Arg::new("metric")
                .value_name("METRIC")
                .required(true)
                .help("The metric, such as load_1m; several, separated by commas"),
            value("device", "NAME", "Only of this device; several, separated by commas"),
            value("job", "[CLUSTER:]ID", "Only of this job; `none`: only series of no job"),
            label.action(ArgAction::Append),
            since("Only samples, errors and gaps from this time on [default: 1d]"),
            until("Only samples, errors and gaps until this time [default: now]"),
            last("Only samples, errors and gaps of this time before now"),
            json(),
        ])
        .after_help("Example: jobmeter explain load_1m --device node-1")
}

fn gaps() -> Command {
    Command::new("gaps")
        .about("Lists missing samples: nodes, times and causes")
        .args([
            value("device", "NAME", "Only of this node"),
            since("Only gaps at or after this time [default: 1d]"),
            until("Only gaps at or before this time [default: now]"),
            last("Only gaps within this time before now"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter gaps --device node-1 --since yesterday")
}

fn sql() -> Command {
    Command::new("sql")
        .about("Runs an SQL query on metrics, metrics_by_job, jobs, allocations, gaps, catalogue and more")
        .args([
            format(),
            json().conflicts_with("format"),
            csv().conflicts_with("format"),
            Arg::new("query")
                .required(true)
                .value_name("SELECT")
                .help("One SELECT statement, or EXPLAIN or EXPLAIN ANALYZE of one"),
        ])
        .after_help("Example: jobmeter sql \"SELECT metric_id, count(*) FROM metrics GROUP BY 1\"")
}

fn top() -> Command {
    Command::new("top")
        .about(
            "Shows live resource use of this node's jobs and processes, or of a server's jobs \
                and nodes",
        )
        .args([
            value("period", "TIME", "Interval between readings [default: 2s, of a server 5s]"),
            Arg::new("cluster").long("cluster").action(ArgAction::SetTrue).help(
                "Show all jobs and nodes of the server instead of this node; --server implies it",
            ),
        ])
        .after_help(TOP_AFTER)
}

const TOP_AFTER: &str = "\
Example: jobmeter top --period 1s

Keys: c m r w sort by processor time, memory, bytes read, bytes written; t n u sort by the last \
column, the name and the second column. The same key again reverses the order. Arrow and page keys \
select a row. Enter shows the processes of a job; with a server, the nodes of a job or the jobs of \
a node. j shows all jobs; p all processes of this node; d all nodes of a server. / filters the \
rows by a text; Escape removes the filter, then returns to the jobs. ? shows the keys. q or Ctrl-C quits.";

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_command_has_an_example() {
        for sub in command().get_subcommands().filter(|sub| sub.get_name() != "server") {
            let example = sub.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.starts_with("Example: jobmeter "), "{}", sub.get_name());
        }
    }

    #[test]
    fn a_job_by_number_or_by_verb() {
        let parse = |words: &[&str]| command().try_get_matches_from(words);
        let matches = parse(&["jobmeter", "job", "slurm:123_4", "--json"]).unwrap();
        let job = matches.subcommand_matches("job").unwrap();
        assert_eq!(job.get_one::<String>("id").unwrap(), "slurm:123_4");
        let matches = parse(&["jobmeter", "job", "end", "local:7", "--exit-code", "3"]).unwrap();
        let end = matches.subcommand_matches("job").unwrap().subcommand_matches("end").unwrap();
        assert_eq!(end.get_one::<String>("exit-code").unwrap(), "3");
    }

    #[test]
    fn options_of_run_end_where_the_command_begins() {
        let command_of = |words: &[&str]| -> Result<Vec<String>, clap::Error> {
            let matches = command().try_get_matches_from([&["jobmeter", "run"], words].concat())?;
            let run = matches.subcommand_matches("run").unwrap();
            let words = run.get_many::<std::ffi::OsString>("command").unwrap();
            Ok(words.map(|word| word.to_str().unwrap().to_owned()).collect())
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
