//! `jobmeter check`: lists all errors of a configuration file that a program would reject at startup, and the
//! resulting settings.

use crate::client::plain::plain_lines;
use crate::measure::exec::Steps;
use crate::output::options::JsonOption;
use anyhow::{Context, bail};
use config::{
    ClientSettings, ConfigError, ConfigFile, ConfigInputs, Loaded, LogConfig, PartialConfig,
    ServerSettings, Token, ValueOrigin,
};
use kernel::Root;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

/// Argument of the server program that checks a file: only that program parses all of its settings.
const OF_SERVER: &str = "check-settings";

/// Exit code of a file with errors; 2 means that the check itself failed.
const WRONG: u8 = 1;

/// Programs with a configuration file.
const PROGRAMS: [&str; 4] = ["agent", "poller", "server", "client"];

/// Checks a configuration file: lists its errors, or prints the resulting settings; changes nothing
///
/// Of a folder of Kwollect's description files, such as /etc/kwollect/metrics.d, it lists all errors, the requests and
/// the rows per second.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example: jobmeter check /etc/jobmeter/agent.toml --for agent")]
pub(crate) struct CheckArgs {
    /// The file, or a folder of description files
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// agent, poller, server or client [default: by the file's name, else by its keys]
    #[arg(long = "for", value_name = "PROGRAM", value_parser = PROGRAMS)]
    program: Option<String>,
    #[command(flatten)]
    format: JsonOption,
}

/// Checks a file for a program. The program is the given one, otherwise the one in the file's name, otherwise
/// the only one that knows some of the file's keys.
pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let file = &args.file;
    if file.is_dir() {
        return of_folder(args);
    }
    let program = match args.program.clone().or_else(|| by_name(file)) {
        None => by_keys(file)?,
        known => known,
    };
    let Some(program) = program else {
        bail!(
            "{}: cannot tell from its name or its keys which program uses it; add --for agent, \
             --for poller, --for server or --for client. Description files are checked by their folder: \
             jobmeter check {}",
            file.display(),
            file.parent()
                .filter(|dir| !dir.as_os_str().is_empty())
                .unwrap_or(Path::new("."))
                .display()
        );
    };
    // The check ignores the environment: it checks the file only.
    let none = |_: &str| None;
    let file_given = ConfigFile::Given(file.clone());
    let given = ConfigInputs { file: file_given, environment: &none, flags: Vec::new() };
    let report = match &*program {
        "agent" => of_agent(&given)?,
        "poller" => of_poller(&given),
        "server" => of_server(&given, file)?,
        _ => of_client(&given),
    };
    report.write(file, &program, args.format.json)
}

/// Checks a folder of description files, by the program that polls them.
fn of_folder(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    if let Some(program) = &args.program {
        bail!("{} is a folder; --for {program} needs a file", args.file.display());
    }
    let mut words = vec!["check".into()];
    words.extend(args.format.json.then(|| "--json".into()));
    words.extend(["--".into(), args.file.as_os_str().to_owned()]);
    let program = crate::operate::up::beside("jobmeter-poller")?;
    let mut command = Steps::default().command(program.as_os_str(), &words)?;
    let status = command.stdin(Stdio::null()).status();
    let status = status.with_context(|| program.display().to_string())?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map(ExitCode::from).with_context(|| format!("{} ended by a signal", program.display()))
}

/// The result of a check.
#[derive(Default)]
struct Report {
    errors: Vec<ConfigError>,
    /// Problems that do not prevent a program from starting.
    notes: Vec<String>,
    /// The resulting settings.
    settings: String,
}

impl Report {
    /// Collects the errors of a file's text, and calls `more` to check files and machine properties that it
    /// names. If the text is not a valid configuration, `more` is not called.
    fn new<C>(read: PartialConfig<C>, more: impl FnOnce(&Loaded<C>, &mut Self)) -> Self {
        let mut report = Self { errors: read.errors, ..Self::default() };
        if let Some(loaded) = read.loaded
            && (report.errors.is_empty() || loaded.values().has_file())
        {
            more(&loaded, &mut report);
            report.settings = loaded.show();
        }
        report
    }

    fn write(mut self, file: &Path, program: &str, json: bool) -> anyhow::Result<ExitCode> {
        self.errors.sort_by_key(|error| match error.place {
            ValueOrigin::File { line, column, .. } => (line, column),
            _ => (0, 0),
        });
        let good = self.errors.is_empty();
        let code = if good { ExitCode::SUCCESS } else { ExitCode::from(WRONG) };
        if json {
            let errors: Vec<Value> = self.errors.iter().map(error_json).collect();
            let answer = json!({"file": file, "program": program, "good": good, "errors": errors,
                "notes": self.notes, "settings": good.then_some(self.settings)});
            writeln!(io::stdout().lock(), "{answer}")?;
            return Ok(code);
        }
        let mut stderr = io::stderr().lock();
        for error in &self.errors {
            writeln!(stderr, "{}", plain_lines(&error.to_string()))?;
        }
        for note in &self.notes {
            writeln!(stderr, "note: {}", plain_lines(note))?;
        }
        if good {
            io::stdout().lock().write_all(self.settings.as_bytes())?;
        }
        Ok(code)
    }
}

fn error_json(error: &ConfigError) -> Value {
    match &error.place {
        ValueOrigin::File { path, line, column } => {
            json!({"file": &**path, "line": line, "column": column, "what": error.what})
        }
        _ => json!({"file": null, "line": null, "column": null, "what": error.what}),
    }
}

fn of_agent(given: &ConfigInputs<'_>) -> anyhow::Result<Report> {
    let root = Root::live()?;
    Ok(Report::new(agent::read(given), |loaded, report| {
        let ServerSettings { token_file, ca, cert, key, .. } = &loaded.config.server;
        let files = Files { token_file, ca, cert, key };
        report.errors.extend(files.errors(|key, what| loaded.values().error(key, what)));
        let spool = delivery::check_spool(&loaded.config.spool);
        report.errors.extend(spool.map(|what| loaded.values().error("spool", &what)));
        report.errors.extend(log_error(loaded, &loaded.config.log));
        report
            .errors
            .extend(agent::check_here(loaded, &root).err().into_iter().flat_map(|all| all.0));
    }))
}

fn of_poller(given: &ConfigInputs<'_>) -> Report {
    Report::new(config::read_poller(given), |loaded, report| {
        let ServerSettings { token_file, ca, cert, key, .. } = &loaded.config.server;
        let files = Files { token_file, ca, cert, key };
        report.errors.extend(files.errors(|key, what| loaded.values().error(key, what)));
        report.errors.extend(log_error(loaded, &loaded.config.log));
    })
}

fn of_client(given: &ConfigInputs<'_>) -> Report {
    Report::new(config::read_client(given), |loaded, report| {
        let ClientSettings { token_file, ca, cert, key, .. } = &loaded.config.client_settings;
        let files = Files { token_file, ca, cert, key };
        report.errors.extend(files.errors(|key, what| loaded.values().error(key, what)));
        report.errors.extend(log_error(loaded, &loaded.config.log));
    })
}

fn log_error<C>(loaded: &Loaded<C>, log: &LogConfig) -> Option<ConfigError> {
    let error = config::log::check(log).err()?;
    Some(loaded.values().error("log.file", &error.to_string()))
}

/// A finding of the server program: setting, problem, and whether the server starts anyway.
#[derive(Deserialize)]
struct Finding {
    key: String,
    what: String,
    note: bool,
}

fn of_server(given: &ConfigInputs<'_>, file: &Path) -> anyhow::Result<Report> {
    let mut failed = None;
    let report = Report::new(config::read_server(given, &outputs::kinds()), |loaded, report| {
        let found = found_by_server(file).unwrap_or_else(|error| {
            failed = Some(error);
            Vec::new()
        });
        for Finding { key, what, note } in found {
            if note {
                report.notes.push(what);
            } else {
                report.errors.push(loaded.values().error(&key, &what));
            }
        }
    });
    match failed {
        Some(error) => Err(error.context("the files that the server reads were not checked")),
        None => Ok(report),
    }
}

fn found_by_server(file: &Path) -> anyhow::Result<Vec<Finding>> {
    let sources: Vec<&str> = crate::node::describe::all().map(|spec| spec.name).collect();
    let words = [OF_SERVER.into(), file.as_os_str().to_owned(), sources.join(",").into()];
    let program = crate::operate::up::beside("jobmeter-server")?;
    let mut command = Steps::default().command(program.as_os_str(), &words)?;
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| program.display().to_string())?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("{} does not respond; check that it has this version", program.display())
    })
}

/// Files that an agent or a command reads before it sends.
struct Files<'a> {
    token_file: &'a Option<PathBuf>,
    ca: &'a Option<PathBuf>,
    cert: &'a Option<PathBuf>,
    key: &'a Option<PathBuf>,
}

impl Files<'_> {
    /// The errors of these files. Each file is checked separately, so that one run lists all errors.
    fn errors(&self, error: impl Fn(&str, &str) -> ConfigError) -> Vec<ConfigError> {
        let mut errors = Vec::new();
        let token = self.token_file.as_deref().map(Token::read);
        if let Some(Err(why)) = token {
            errors.push(error("token_file", &why.to_string()));
        }
        if self.ca.is_some()
            && let Err(why) = delivery::tls(self.ca.as_deref(), None, None)
        {
            errors.push(error("ca", &why.to_string()));
        }
        if self.cert.is_some()
            && self.key.is_some()
            && let Err(why) = delivery::tls(None, self.cert.as_deref(), self.key.as_deref())
        {
            errors.push(error("cert", &why.to_string()));
        }
        errors
    }
}

fn by_name(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    PROGRAMS.contains(&stem).then(|| stem.to_owned())
}

fn by_keys(file: &Path) -> anyhow::Result<Option<String>> {
    let text = config::read_small(file, config::FILE_BYTES_MAX).and_then(config::as_text);
    let text = text.with_context(|| file.display().to_string())?;
    let agent = config::agent_settings(&agent::source_settings());
    // A poller's keys are mostly those of an agent.
    let programs = [
        ("agent", agent),
        ("server", config::server_settings()),
        ("client", config::client_settings()),
    ];
    Ok(config::detect_program(&text, &programs).map(str::to_owned))
}
