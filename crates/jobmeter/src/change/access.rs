//! Commands of access control: token, account.

use crate::client::http_client::{Client, Rejected, escape};
use crate::client::plain::{self, note, plain_lines};
use crate::output::csv_rows;
use crate::output::options::{JsonOption, ListFormat};
use crate::output::show::{self, Table};
use crate::output::times::{duration, machine, machine_value};
use anyhow::bail;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd as _;

/// Creates, lists and revokes tokens for programs on other machines
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter token create --for 30d --note laptop")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(clap::Subcommand, Debug)]
enum TokenAction {
    Create(CreateToken),
    List(ListTokens),
    Revoke(RevokeToken),
}

const SCOPES: &str = "read: reads what you may read, writes nothing; administrators also: agent[:NODE], \
    poller:NAME, push[:NAME] (inserts metrics, reads nothing), user[:USER], read:USER, jobs[:CLUSTER] (reports a scheduler's jobs, reads nothing), staff[:USER] or admin \
    [default: read]";

/// Creates a token and prints it once
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example: jobmeter token create --for 30d --note laptop > ~/.jobmeter-token"
)]
struct CreateToken {
    #[arg(long, value_name = "SCOPE", help = SCOPES)]
    scope: Option<String>,
    /// How long it is valid, such as 30d [default: as long as allowed]
    #[arg(long = "for", value_name = "TIME")]
    age: Option<String>,
    /// A note on its purpose
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    format: JsonOption,
}

/// Lists your tokens; administrators and staff see all
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter token list")]
struct ListTokens {
    #[command(flatten)]
    format: ListFormat,
}

/// Revokes a token now
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter token revoke 7")]
struct RevokeToken {
    /// Its ID in the list
    #[arg(value_name = "TOKEN")]
    id: String,
    #[command(flatten)]
    format: JsonOption,
}

/// `jobmeter token`.
pub(crate) fn token(client: &Client, args: &TokenArgs) -> anyhow::Result<()> {
    match &args.action {
        TokenAction::Create(args) => create(client, args),
        TokenAction::List(args) => tokens(client, args.format),
        TokenAction::Revoke(args) => revoke(client, args),
    }
}

fn create(client: &Client, args: &CreateToken) -> anyhow::Result<()> {
    let age = args.age.as_deref().map(|age| duration("for", age));
    let new = api::NewToken {
        scope: args.scope.clone().unwrap_or_else(|| "read".to_owned()),
        expires_in_seconds: age.transpose()?.map(|age| age.as_secs()),
        note: args.note.clone(),
    };
    if new.expires_in_seconds == Some(0) {
        bail!("--for: a token must be valid for 1s at least; write 12h or 30d");
    }
    if plain::is_closed(io::stdout().as_fd()) {
        bail!("standard output is closed: the token cannot be printed, and none was created");
    }
    let made: api::CreatedToken = client.post("/api/v1/tokens", &new)?;
    let json = args.format.json;
    let text = match json {
        true => machine_value(serde_json::to_value(&made)?).to_string(),
        false => made.token,
    };
    let api::Token { id, scope, created, expires, .. } = made.info;
    let mut out = io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) {
        // The error is a text: a closed pipe must not count as success here.
        let what = format!("cannot write token {id} to standard output: {error}");
        let path = format!("/api/v1/tokens/{}/revoke", escape(&id.to_string()));
        match client.post::<api::Token>(&path, &serde_json::json!({})) {
            Ok(_) => bail!("{what}; the token was revoked"),
            Err(revoke) => bail!(
                "{what}; revoke it with `jobmeter token revoke {id}`; this failed now: {revoke:#}"
            ),
        }
    }
    if !json {
        let age = show::seconds(expires - created);
        // The token is printed: the error of a closed standard error is ignored.
        let line = format!("token {id} of scope `{scope}`, valid for {age}; it is not shown again");
        writeln!(io::stderr(), "{}", plain_lines(&line)).ok();
    }
    Ok(())
}

fn tokens(client: &Client, format: ListFormat) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if csv_rows::written(
        format.csv,
        &api::columns::<api::Token>(),
        || client.text("/api/v1/tokens", "application/json"),
        &mut out,
    )? {
        return Ok(());
    }
    if format.json {
        writeln!(out, "{}", machine(&client.text("/api/v1/tokens", "application/json")?))?;
        return Ok(out.flush()?);
    }
    let health: api::Health = client.get("/api/v1/health")?;
    let tokens: Vec<api::Token> = client.get("/api/v1/tokens")?;
    let mut table =
        Table::new(&["token", "scope", "state", "expires", "last used", "created by", "note"]);
    for token in tokens {
        let state = match token.revoked {
            Some(_) => "revoked",
            None if token.expires <= health.now => "expired",
            None => "good",
        };
        table.row(vec![
            token.id.to_string(),
            token.scope,
            state.to_owned(),
            relative(token.expires - health.now),
            token.last_used.map_or_else(|| "never".to_owned(), |used| relative(used - health.now)),
            token.created_by,
            token.note,
        ]);
    }
    if table.is_empty() {
        writeln!(out, "no tokens; to create one: jobmeter token create")?;
    } else {
        table.write(&mut out)?;
    }
    Ok(out.flush()?)
}

fn revoke(client: &Client, args: &RevokeToken) -> anyhow::Result<()> {
    let path = format!("/api/v1/tokens/{}/revoke", escape(&args.id));
    let token: api::Token = client.post(&path, &serde_json::json!({}))?;
    let mut out = io::stdout().lock();
    if args.format.json {
        writeln!(out, "{}", machine_value(serde_json::to_value(&token)?))?;
        return Ok(());
    }
    writeln!(out, "token {} of `{}` is revoked", token.id, token.scope)?;
    Ok(())
}

/// Shows and sets the members of accounts and the visibility of their jobs
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter account allow slurm:physics all")]
pub(crate) struct AccountArgs {
    #[command(subcommand)]
    action: AccountAction,
}

#[derive(clap::Subcommand, Debug)]
enum AccountAction {
    /// Lists your accounts; administrators and staff see all
    #[command(after_help = "Example: jobmeter account list")]
    List {
        #[command(flatten)]
        format: ListFormat,
    },
    /// Shows the visibility of jobs between an account's members; its managers also see the list of members
    #[command(after_help = "Example: jobmeter account show slurm:physics")]
    Show(OneAccount),
    /// Sets the visibility of jobs between an account's members
    #[command(after_help = "Example: jobmeter account allow slurm:physics all")]
    Allow {
        #[command(flatten)]
        account: AccountName,
        /// nothing, the list of jobs, or all their samples
        #[arg(value_name = "WHAT", value_parser = ["nothing", "jobs", "all"])]
        sees: String,
        #[command(flatten)]
        format: JsonOption,
    },
    /// Adds users to an account; managers remain managers
    #[command(after_help = "Example: jobmeter account add slurm:physics ann --manager")]
    Add {
        #[command(flatten)]
        account: AccountName,
        #[command(flatten)]
        users: Users,
        /// Add them as managers; for administrators
        #[arg(long)]
        manager: bool,
        #[command(flatten)]
        format: JsonOption,
    },
    /// Removes users from an account, also if the scheduler lists them
    #[command(after_help = "Example: jobmeter account remove slurm:physics bob")]
    Remove {
        #[command(flatten)]
        account: AccountName,
        #[command(flatten)]
        users: Users,
        #[command(flatten)]
        format: JsonOption,
    },
    /// Creates an account that no scheduler has reported yet; for administrators
    #[command(after_help = "Example: jobmeter account create slurm:physics")]
    Create(OneAccount),
    /// Deletes an account with its members and settings; for administrators. Its next job creates it again
    #[command(after_help = "Example: jobmeter account delete slurm:physics")]
    Delete(OneAccount),
}

#[derive(clap::Args, Debug)]
struct OneAccount {
    #[command(flatten)]
    account: AccountName,
    #[command(flatten)]
    format: JsonOption,
}

#[derive(clap::Args, Debug)]
struct AccountName {
    /// The account, such as slurm:physics; physics alone where one cluster has it
    #[arg(value_name = "[CLUSTER:]NAME")]
    account: String,
}

#[derive(clap::Args, Debug)]
struct Users {
    /// Login names or user IDs
    #[arg(value_name = "USER", required = true, num_args = 1..)]
    users: Vec<String>,
}

/// `jobmeter account`.
pub(crate) fn account(client: &Client, args: &AccountArgs) -> anyhow::Result<()> {
    let (account, new, json) = match &args.action {
        AccountAction::List { format } => return accounts(client, *format),
        AccountAction::Show(args) => return one(client, args),
        AccountAction::Create(args) => return create_account(client, args),
        AccountAction::Delete(args) => return delete(client, args),
        AccountAction::Add { account, users, manager, format } => {
            let (users, none) = (users.users.clone(), Vec::new());
            let (members, managers) = if *manager { (none, users) } else { (users, none) };
            let new = api::AccountChange { members, managers, ..Default::default() };
            return add(client, &account.account, &new, format.json);
        }
        AccountAction::Allow { account, sees, format } => {
            let new = api::AccountChange { members_see: Some(sees.clone()), ..Default::default() };
            (account, new, format.json)
        }
        AccountAction::Remove { account, users, format } => {
            let new = api::AccountChange { remove: users.users.clone(), ..Default::default() };
            (account, new, format.json)
        }
    };
    change(client, &account.account, &new, json).map(drop)
}

fn accounts(client: &Client, format: ListFormat) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if csv_rows::written(
        format.csv,
        &api::columns::<api::Account>(),
        || client.text("/api/v1/accounts", "application/json"),
        &mut out,
    )? {
        return Ok(());
    }
    if format.json {
        writeln!(out, "{}", machine(&client.text("/api/v1/accounts", "application/json")?))?;
        return Ok(out.flush()?);
    }
    let mut table = Table::new(&["account", "members see", "you are"]);
    let accounts: Vec<api::Account> = client.get("/api/v1/accounts")?;
    for account in accounts {
        let name = format!("{}:{}", account.cluster, account.name);
        table.row(vec![name, account.members_see, account.role.unwrap_or_default()]);
    }
    if table.is_empty() {
        writeln!(out, "no account is visible to you")?;
    } else {
        table.write(&mut out)?;
    }
    Ok(out.flush()?)
}

/// `jobmeter account show`. A name without a cluster shows the accounts with that name on all clusters.
fn one(client: &Client, args: &OneAccount) -> anyhow::Result<()> {
    let (name, json) = (&args.account.account, args.format.json);
    let accounts: Vec<api::Account> = client.get("/api/v1/accounts")?;
    if !name.contains(':') {
        let found: Vec<&api::Account> = accounts.iter().filter(|one| one.name == *name).collect();
        if found.is_empty() {
            of_name(name, &accounts)?;
        }
        return found.into_iter().try_for_each(|one| write(one, json));
    }
    let key = |one: &api::Account| format!("{}:{}", one.cluster, one.name);
    let found = accounts.iter().find(|one| key(one) == *name);
    let account = found.ok_or_else(|| {
        let keys: Vec<String> = accounts.iter().map(key).collect();
        let near = config::nearest(name, keys.iter().map(String::as_str));
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        Rejected::not_found(format!("no account `{name}` is visible to you{near}"))
    })?;
    write(account, json)
}

/// The named account with its cluster: `physics` alone works if exactly one cluster has it.
fn named(client: &Client, name: &str) -> anyhow::Result<String> {
    if name.contains(':') {
        return Ok(name.to_owned());
    }
    let accounts: Vec<api::Account> = client.get("/api/v1/accounts")?;
    of_name(name, &accounts)
}

fn of_name(name: &str, accounts: &[api::Account]) -> anyhow::Result<String> {
    let key = |one: &&api::Account| format!("{}:{}", one.cluster, one.name);
    let found: Vec<String> =
        accounts.iter().filter(|one| one.name == name).map(|one| key(&one)).collect();
    match &*found {
        [one] => Ok(one.clone()),
        [] => {
            let near = config::nearest(name, accounts.iter().map(|one| &*one.name));
            let near = near.map_or_else(String::new, |near| format!(" Did you mean `{near}`?"));
            Err(anyhow::Error::from(Rejected::not_found(format!(
                "no account `{name}` is visible to you.{near} Write CLUSTER:NAME for an account \
                 without jobs"
            ))))
        }
        several => {
            bail!(
                "several clusters have an account `{name}`, and only one can be changed: name one of {}",
                several.join(", ")
            )
        }
    }
}

fn delete(client: &Client, args: &OneAccount) -> anyhow::Result<()> {
    let name = named(client, &args.account.account)?;
    let account: api::Account = client.delete(&format!("/api/v1/accounts/{}", escape(&name)))?;
    if args.format.json {
        return write(&account, true);
    }
    writeln!(io::stdout().lock(), "{name} is deleted")?;
    Ok(())
}

/// `jobmeter account add`. Managers among the new members keep their role.
fn add(client: &Client, account: &str, new: &api::AccountChange, json: bool) -> anyhow::Result<()> {
    let account = change(client, account, new, json)?;
    let is_new = |user: &&api::AccountUser| {
        let names = [user.user.clone(), Some(user.uid.to_string())];
        names.into_iter().flatten().any(|name| new.members.contains(&name))
    };
    let users = account.users.iter().flatten().filter(is_new);
    for user in users.filter(|user| user.role == "manager") {
        let name = user.user.clone().unwrap_or_else(|| user.uid.to_string());
        note(&format!(
            "{name} remains a manager; for a member, run `jobmeter account remove {}:{} {name}` first",
            account.cluster, account.name
        ))?;
    }
    Ok(())
}

/// `jobmeter account create`.
fn create_account(client: &Client, args: &OneAccount) -> anyhow::Result<()> {
    let name = named(client, &args.account.account)?;
    let known: Vec<api::Account> = client.get("/api/v1/accounts")?;
    let exists = known.iter().any(|one| format!("{}:{}", one.cluster, one.name) == name);
    let new = api::AccountChange { create: true, ..Default::default() };
    change(client, &name, &new, args.format.json)?;
    if exists {
        note(&format!("{name} exists already; nothing was changed"))?;
    }
    Ok(())
}

fn change(
    client: &Client,
    account: &str,
    change: &api::AccountChange,
    json: bool,
) -> anyhow::Result<api::Account> {
    let name = named(client, account)?;
    let path = format!("/api/v1/accounts/{}", escape(&name));
    let account: api::Account = client.post(&path, change)?;
    write(&account, json)?;
    Ok(account)
}

fn write(account: &api::Account, json: bool) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if json {
        writeln!(out, "{}", serde_json::to_string(account)?)?;
        return Ok(out.flush()?);
    }
    let (cluster, name, sees) = (&account.cluster, &account.name, &account.members_see);
    let meaning = match &**sees {
        "all" => "everything of each other's jobs",
        "jobs" => "the list of each other's jobs",
        _ => "nothing of each other's jobs",
    };
    writeln!(out, "{cluster}:{name}: its members see {meaning} ({sees})")?;
    let mut table = Table::new(&["user", "uid", "role"]);
    for user in account.users.iter().flatten() {
        let name = user.user.clone().unwrap_or_default();
        table.row(vec![name, user.uid.to_string(), user.role.clone()]);
    }
    if !table.is_empty() {
        table.write(&mut out)?;
    }
    Ok(out.flush()?)
}

/// A time relative to now.
fn relative(seconds: f64) -> String {
    if seconds < 0.0 {
        format!("{} ago", show::seconds(-seconds))
    } else {
        format!("in {}", show::seconds(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_named_with_or_without_its_cluster() {
        let account = |cluster: &str, name: &str| api::Account {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            members_see: "nothing".to_owned(),
            role: None,
            users: None,
        };
        let all = [account("slurm", "physics"), account("oar", "geo"), account("slurm", "geo")];
        let of = |name| of_name(name, &all).map_err(|error| error.to_string());
        assert_eq!(of("physics"), Ok("slurm:physics".to_owned()));
        assert!(of("geo").unwrap_err().ends_with("name one of oar:geo, slurm:geo"));
        assert_eq!(
            of("phsics").unwrap_err(),
            "no account `phsics` is visible to you. Did you mean `physics`? Write CLUSTER:NAME for \
             an account without jobs"
        );
    }
}
