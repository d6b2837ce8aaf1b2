//! The words of the commands about who may see what.

use super::{csv, json, last, since, until, value};
use clap::{Arg, ArgAction, Command};

/// `jobmeter token`.
pub(super) fn token() -> Command {
    let scope = "read: sees what you see, and writes nothing; administrators also agent[:NODE], \
                 user[:USER], read:USER, jobs[:CLUSTER] (tells of a scheduler's jobs, reads nothing), \
                 staff[:USER] or admin [default: read]";
    let create = Command::new("create")
        .about("Makes a token and prints it, this once")
        .args([
            value("scope", "SCOPE", scope),
            value("for", "TIME", "How long it is good, such as 30d [default: as long as may be]"),
            value("note", "TEXT", "What it is for"),
            json(),
        ])
        .after_help("Example: jobmeter token create --for 30d --note laptop > ~/.jobmeter-token");
    let list = Command::new("list")
        .about("Lists your tokens; of administrators and staff, all")
        .args([json(), csv()])
        .after_help("Example: jobmeter token list");
    let revoke = Command::new("revoke")
        .about("Ends a token now")
        .arg(Arg::new("id").required(true).value_name("TOKEN").help("Its number in the list"))
        .arg(json())
        .after_help("Example: jobmeter token revoke 7");
    Command::new("token")
        .about("Makes, lists and revokes tokens, by which programs elsewhere ask as you")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([create, list, revoke])
        .after_help("Example: jobmeter token create --for 30d --note laptop")
}

/// `jobmeter account`.
pub(super) fn account() -> Command {
    let account = || {
        let help = "The account, such as slurm:physics; physics alone where one cluster has it";
        Arg::new("account").required(true).value_name("[CLUSTER:]NAME").help(help)
    };
    let users = || {
        let help = "Login names or numbers";
        Arg::new("users").required(true).num_args(1..).value_name("USER").help(help)
    };
    let list = Command::new("list")
        .about("Lists your accounts; of administrators and staff, all")
        .args([json(), csv()])
        .after_help("Example: jobmeter account list");
    let show = Command::new("show")
        .about("Tells of an account what its members see and, for its managers, who they are")
        .args([account(), json()])
        .after_help("Example: jobmeter account show slurm:physics");
    let allow = Command::new("allow")
        .about("Says what an account's members see of each other's jobs")
        .args([
            account(),
            Arg::new("sees")
                .required(true)
                .value_name("WHAT")
                .value_parser(["nothing", "jobs", "all"])
                .help("nothing, the list of jobs, or all that is counted for them"),
            json(),
        ])
        .after_help("Example: jobmeter account allow slurm:physics all");
    let manager = Arg::new("manager")
        .long("manager")
        .action(ArgAction::SetTrue)
        .help("As managers, which administrators say");
    let add = Command::new("add")
        .about("Adds people to an account")
        .args([account(), users(), manager, json()])
        .after_help("Example: jobmeter account add slurm:physics ann --manager");
    let remove = Command::new("remove")
        .about("Takes people out of an account, whatever the scheduler tells")
        .args([account(), users(), json()])
        .after_help("Example: jobmeter account remove slurm:physics bob");
    let create = Command::new("create")
        .about("Creates an account that no scheduler has reported yet; administrators do")
        .args([account(), json()])
        .after_help("Example: jobmeter account create slurm:physics");
    let delete = Command::new("delete")
        .about("Deletes an account, its members and what they see; administrators do. Its next job creates it again")
        .args([account(), json()])
        .after_help("Example: jobmeter account delete slurm:physics");
    Command::new("account")
        .about("Who belongs to an account, and what its members see of each other's jobs")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list, show, allow, add, remove, create, delete])
        .after_help("Example: jobmeter account allow slurm:physics all")
}

/// `jobmeter audit`.
pub(super) fn audit() -> Command {
    Command::new("audit")
        .about("Lists who changed something, and who of staff read others' jobs; for administrators and staff")
        .args([
            value("actor", "ACTOR", "Only of this user, by login name or user ID, or of `token 7`"),
            value("action", "TEXT", "Only actions that contain this text, such as tokens or POST"),
            value("job", "CLUSTER:ID", "Only of this job; `*`: of no one job"),
            since("Only what was done from this time on [default: 1d]"),
            until("Only what was done until this time [default: now]"),
            last("Only what was done within this time before now"),
            value("limit", "N", "The newest so many, 10000 at most [default: 1000]"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter audit --who ann --since 7d")
}
