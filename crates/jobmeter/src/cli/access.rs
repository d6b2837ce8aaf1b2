//! The command lines of tokens, accounts and the audit log.

use super::{csv, json, last, since, until, value};
use clap::{Arg, ArgAction, Command};

/// `jobmeter token`.
pub(super) fn token() -> Command {
    let scope = "read: reads what you may read, writes nothing; administrators also: agent[:NODE], \
                 user[:USER], read:USER, jobs[:CLUSTER] (reports a scheduler's jobs, reads nothing), \
                 staff[:USER] or admin [default: read]";
    let create = Command::new("create")
        .about("Creates a token and prints it once")
        .args([
            value("scope", "SCOPE", scope),
            value("for", "TIME", "How long it is valid, such as 30d [default: as long as allowed]"),
            value("note", "TEXT", "A note on its purpose"),
            json(),
        ])
        .after_help("Example: jobmeter token create --for 30d --note laptop > ~/.jobmeter-token");
    let list = Command::new("list")
        .about("Lists your tokens; administrators and staff see all")
        .args([json(), csv()])
        .after_help("Example: jobmeter token list");
    let revoke = Command::new("revoke")
        .about("Revokes a token now")
        .arg(Arg::new("id").required(true).value_name("TOKEN").help("Its ID in the list"))
        .arg(json())
        .after_help("Example: jobmeter token revoke 7");
    Command::new("token")
        .about("Creates, lists and revokes tokens for programs on other machines")
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
        let help = "Login names or user IDs";
        Arg::new("users").required(true).num_args(1..).value_name("USER").help(help)
    };
    let list = Command::new("list")
        .about("Lists your accounts; administrators and staff see all")
        .args([json(), csv()])
        .after_help("Example: jobmeter account list");
    let show = Command::new("show")
        .about(
            "Shows the visibility of jobs between an account's members; its managers also see \
                the list of members",
        )
        .args([account(), json()])
        .after_help("Example: jobmeter account show slurm:physics");
    let allow = Command::new("allow")
        .about("Sets the visibility of jobs between an account's members")
        .args([
            account(),
            Arg::new("sees")
                .required(true)
                .value_name("WHAT")
                .value_parser(["nothing", "jobs", "all"])
                .help("nothing, the list of jobs, or all their samples"),
            json(),
        ])
        .after_help("Example: jobmeter account allow slurm:physics all");
    let manager = Arg::new("manager")
        .long("manager")
        .action(ArgAction::SetTrue)
        .help("Add them as managers; for administrators");
    let add = Command::new("add")
        .about("Adds users to an account; managers remain managers")
        .args([account(), users(), manager, json()])
        .after_help("Example: jobmeter account add slurm:physics ann --manager");
    let remove = Command::new("remove")
        .about("Removes users from an account, also if the scheduler lists them")
        .args([account(), users(), json()])
        .after_help("Example: jobmeter account remove slurm:physics bob");
    let create = Command::new("create")
        .about("Creates an account that no scheduler has reported yet; for administrators")
        .args([account(), json()])
        .after_help("Example: jobmeter account create slurm:physics");
    let delete = Command::new("delete")
        .about("Deletes an account with its members and settings; for administrators. Its next job creates it again")
        .args([account(), json()])
        .after_help("Example: jobmeter account delete slurm:physics");
    Command::new("account")
        .about("Shows and sets the members of accounts and the visibility of their jobs")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands([list, show, allow, add, remove, create, delete])
        .after_help("Example: jobmeter account allow slurm:physics all")
}

/// `jobmeter audit`.
pub(super) fn audit() -> Command {
    Command::new("audit")
        .about("Lists changes by users, and staff's reads of others' jobs; for administrators and staff")
        .args([
            value("actor", "ACTOR", "Only entries of this user, by login name or user ID, or of `token 7`"),
            value("action", "TEXT", "Only actions that contain this text, such as tokens or POST"),
            value("job", "CLUSTER:ID", "Only entries of this job; `*`: only entries of no single job"),
            since("Only entries from this time on [default: 1d]"),
            until("Only entries until this time [default: now]"),
            last("Only entries within this time before now"),
            value("limit", "N", "Most entries, the newest first, up to 10000 [default: 1000]"),
            json(),
            csv(),
        ])
        .after_help("Example: jobmeter audit --actor ann --since 7d")
}
