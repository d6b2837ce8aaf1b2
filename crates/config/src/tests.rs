//! Tests of the configuration.

use super::*;
use model::setting::OptionSpec;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

static BUDGET: [OptionSpec; 1] = [OptionSpec {
    name: "budget_ms",
    kind: Kind::Number { min: 1, max: 1000 },
    default: "5",
    help: "Time of a tick.",
}];

fn sources() -> Vec<SourceSettings> {
    let process = SourceSettings {
        name: "process",
        help: "Processes of jobs.",
        period: Some(Duration::from_secs(30)),
        options: &BUDGET,
    };
    let load = SourceSettings { name: "load", help: "Load.", period: None, options: &[] };
    vec![load, process]
}

fn given<'a>(
    file: ConfigFile,
    environment: &'a dyn Fn(&str) -> Option<String>,
    flags: &[(&str, &str)],
) -> ConfigInputs<'a> {
    let one = |(key, text): &(&str, &str)| ((*key).to_owned(), Raw::One((*text).to_owned()));
    ConfigInputs { file, environment, flags: flags.iter().map(one).collect() }
}

const NOTHING: &dyn Fn(&str) -> Option<String> = &|_| None;

#[test]
fn an_agent_runs_without_any_configuration() {
    let loaded = load_agent(&given(ConfigFile::None, NOTHING, &[]), &sources()).unwrap();
    let config = loaded.config;
    assert_eq!(config.sampling.period, Duration::from_secs(5));
    assert_eq!(config.server.server, None);
    assert_eq!(config.remote.allow, ["sources", "periods", "promotions"]);
    assert_eq!((config.sampling.period_idle, &config.burst.sources[..]), (None, &[][..]));
    assert_eq!(config.sources["load"].optional, []);
    assert_eq!(config.sources["load"].period, None);
    assert_eq!(config.sources["process"].period, None);
    assert_eq!(config.sources["process"].options["budget_ms"], "5");
}

#[test]
fn a_server_runs_without_any_configuration() {
    let loaded = load_server(&given(ConfigFile::None, NOTHING, &[]), &[]).unwrap();
    assert_eq!(loaded.config.listen.listen[0].0.to_string(), "127.0.0.1:8790");
}

#[test]
fn precedence_of_layers_and_origins_of_values() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    std::fs::write(&file, "period = \"2s\"\nspool = \"/a\"\ndevice = \"n1\"\nspool_sync = true\n")
        .unwrap();
    let environment = |name: &str| match name {
        "JOBMETER_SPOOL" => Some("/b".to_owned()),
        "JOBMETER_DEVICE" => Some("n2".to_owned()),
        "JOBMETER_SOURCES_PROCESS_BUDGET_MS" => Some("7".to_owned()),
        _ => None,
    };
    let flags = [("device", "n3"), ("jobs.oar_roots", "/r,/s")];
    let given = given(ConfigFile::Given(file), &environment, &flags);
    let loaded = load_agent(&given, &sources()).unwrap();
    let config = &loaded.config;
    assert_eq!(config.sampling.period, Duration::from_secs(2));
    assert_eq!(config.spool.spool, Some(Spool::Folder(PathBuf::from("/b"))));
    assert_eq!(config.sampling.device.as_ref().unwrap().as_str(), "n3");
    assert_eq!(config.sources["process"].options["budget_ms"], "7");
    assert_eq!(config.jobs.oar_roots.len(), 2);
    let shown = loaded.show();
    let line = |key: &str| {
        let found = shown.lines().find(|line| line.starts_with(key)).unwrap();
        found.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let path = dir.path().display();
    assert_eq!(line("period ="), format!("period = \"2s\" # {path}/agent.toml:1"));
    assert_eq!(line("spool ="), "spool = \"/b\" # environment JOBMETER_SPOOL");
    assert_eq!(line("device ="), "device = \"n3\" # flag --device");
    assert_eq!(line("ca ="), "ca = \"\" # default: the system's");
    assert_eq!(line("oar_roots ="), "oar_roots = [\"/r\", \"/s\"] # flag --jobs-oar-roots");
}

#[test]
fn the_shown_configuration_reproduces_itself() {
    let flags =
        [("period", "250ms"), ("sources.process.period", "7s"), ("log.file", "/x \"y\"\\z")];
    let first = load_agent(&given(ConfigFile::None, NOTHING, &flags), &sources()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    std::fs::write(&file, first.show()).unwrap();
    let again = load_agent(&given(ConfigFile::Given(file), NOTHING, &[]), &sources()).unwrap();
    assert_eq!(again.config, first.config);
    let first = load_server(&given(ConfigFile::None, NOTHING, &[("plain", "true")]), &[]).unwrap();
    let file = dir.path().join("server.toml");
    std::fs::write(&file, first.show()).unwrap();
    let again = load_server(&given(ConfigFile::Given(file), NOTHING, &[]), &[]).unwrap();
    assert_eq!(again.config, first.config);
}

#[test]
fn every_error_of_every_layer_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.toml");
    let text = "perod = \"1s\"\n\n[log]\nlevel = \"loud\"\n[sources.process]\nperiod = \"2d\"\nbudget = 3\n";
    std::fs::write(&file, text).unwrap();
    let environment = |name: &str| (name == "JOBMETER_SPOOL_SYNC").then(|| "yes".to_owned());
    let flags = [("server", "node"), ("cert", "/c"), ("now", "2026-01-06")];
    let given = given(ConfigFile::Given(file.clone()), &environment, &flags);
    let errors = load_agent(&given, &sources()).unwrap_err().to_string();
    let want = "F:1:1: unknown key `perod`; did you mean `period`?\n\
         F:7:1: unknown key `sources.process.budget`; did you mean `sources.process.budget_ms`?\n\
         F:4:9: `log.level` is `loud`; it must be one of error, warn, info, debug, trace\n\
         F:6:10: `sources.process.period` is `2d`; it must be a time from 1ms to 1d\n\
         environment JOBMETER_SPOOL_SYNC: `spool_sync` is `yes`; it must be true or false\n\
         flag --server: `server` is `node`; it must be an address such as http://127.0.0.1:8790 or \
         https://metrics.example, starting with http:// or https://\n\
         flag --cert: `cert` also needs `key`\n\
         flag --now: `now` needs `root`: a live machine uses its own clock";
    assert_eq!(errors.replace(&file.display().to_string(), "F"), want);
}

#[test]
fn a_certificate_needs_its_key_in_every_program() {
    for (flag, error) in [
        (("cert", "/c"), "flag --cert: `cert` also needs `key`"),
        (("key", "/k"), "flag --key: `key` also needs `cert`"),
    ] {
        let given = || given(ConfigFile::None, NOTHING, &[flag]);
        let errors = [
            load_agent(&given(), &[]).unwrap_err(),
            load_server(&given(), &[]).unwrap_err(),
            load_client(&given()).unwrap_err(),
        ];
        assert_eq!(errors.map(|errors| errors.to_string()), [error; 3]);
    }
}

#[test]
fn relative_paths_of_a_file_start_at_its_folder() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).unwrap();
        ConfigFile::Given(dir.path().join(name))
    };
    let text = "data = \"store\"\ntoken_file = \"/t\"\n[promotions]\nrules = \"rules.toml\"\n";
    let file = write("server.toml", text);
    let config =
        load_server(&given(file, NOTHING, &[("cert", "c"), ("key", "k")]), &[]).unwrap().config;
    assert_eq!(config.promotions.rules, Some(dir.path().join("rules.toml")));
    assert_eq!(config.keep.data, Some(dir.path().join("store")));
    assert_eq!(config.listen.token_file, Some(PathBuf::from("/t")));
    assert_eq!(config.listen.cert, Some(PathBuf::from("c")), "of the current folder");
    let text =
        "spool = \"none\"\nroot = [\"a\", \"/b\"]\nonce = true\n[jobs]\noar_roots = [\"oar\"]\n";
    let config = load_agent(&given(write("agent.toml", text), NOTHING, &[]), &[]).unwrap().config;
    assert_eq!(config.spool.spool, Some(Spool::None));
    assert_eq!(config.run.root, [dir.path().join("a"), PathBuf::from("/b")]);
    assert_eq!(config.jobs.oar_roots, ["oar"], "a cgroup is no path of this machine");
}

#[test]
fn every_invalid_entry_of_a_list_is_reported() {
    let flags = [
        ("server_uids", "ann,7,bob"),
        ("burst.flush_on", "rule,job_end,start"),
        ("sources.load.optional", "(,load_1m,["),
    ];
    let errors = load_agent(&given(ConfigFile::None, NOTHING, &flags), &sources()).unwrap_err();
    let errors = errors.to_string();
    for part in ["`ann`, which", "`bob`, which", "`rule` is", "`start` is", "`(` is", "`[` is"] {
        assert!(errors.contains(part), "{part}: {errors}");
    }
}

#[test]
fn contradictory_settings() {
    let flags = [("cert", "/c"), ("now", "2026-01-06"), ("remote.allow", "sources,paths")];
    let errors = load_agent(&given(ConfigFile::None, NOTHING, &flags), &sources()).unwrap_err();
    let errors: Vec<_> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        errors,
        [
            "flag --cert: `cert` also needs `key`",
            "flag --remote-allow: `remote.allow` has `paths`; it accepts sources, periods, promotions, \
             events, bursts",
            "flag --now: `now` needs `root`: a live machine uses its own clock",
        ]
    );
    for listen in ["0.0.0.0:8790", "127.0.0.1:8790,192.0.2.1:3000", "[::1]:3000, [::]:8790"] {
        let flags = [("listen", listen)];
        let errors = load_server(&given(ConfigFile::None, NOTHING, &flags), &[]).unwrap_err();
        assert_eq!(errors.0.len(), 2, "{listen}: {errors}");
    }
    for (listen, lacking) in [
        ("", "`listen` is empty"),
        ("127.0.0.1:1,127.0.0.1:1", "has 127.0.0.1:1 twice"),
        ("127.0.0.1:1,localhost:2", "has `localhost:2`, which must be an address"),
    ] {
        let flags = [("listen", listen)];
        let error =
            load_server(&given(ConfigFile::None, NOTHING, &flags), &[]).unwrap_err().to_string();
        assert!(error.contains(lacking), "{listen}: {error}");
    }
    let flags = [("listen", "127.0.0.1:8790, [::1]:3000,127.0.0.1:0,127.0.0.1:0")];
    let loaded = load_server(&given(ConfigFile::None, NOTHING, &flags), &[]).unwrap();
    assert_eq!(loaded.config.listen.listen.len(), 4);
    let flags = [("listen", "0.0.0.0:8790"), ("plain", "true"), ("token_file", "/t")];
    assert!(load_server(&given(ConfigFile::None, NOTHING, &flags), &[]).is_ok());
}

#[test]
fn contradictory_settings_of_schedulers() {
    let flags = [
        ("schedulers.oar.database", "host=db user=oar_ro password=x"),
        ("schedulers.oar.rest", "https://frontend/oarapi"),
        ("schedulers.oar.rest_user", "reader"),
        ("schedulers.oar.cluster", "slurm"),
        ("schedulers.slurm.rest", "controller:6820"),
        ("schedulers.slurm.commands", "true"),
        ("schedulers.slurm.user", "reader"),
    ];
    let errors = load_server(&given(ConfigFile::None, NOTHING, &flags), &[]).unwrap_err();
    let flags: Vec<String> = errors.0.iter().map(|error| error.place.to_string()).collect();
    let want = ["oar-rest", "oar-database", "oar-rest-user", "slurm-commands"]
        .into_iter()
        .chain(["slurm-rest", "slurm-user"])
        .map(|name| format!("flag --schedulers-{name}"))
        .chain(["default".to_owned()]);
    assert_eq!(flags, want.collect::<Vec<_>>());
    for rest in ["unix:/run/slurmrestd.sock", "http://controller:6820", "https://controller"] {
        let flags = [("schedulers.slurm.rest", rest), ("schedulers.slurm.token_file", "/t")];
        assert!(load_server(&given(ConfigFile::None, NOTHING, &flags), &[]).is_ok(), "{rest}");
    }
    let flags = [("schedulers.oar.cluster", "local")];
    assert!(load_server(&given(ConfigFile::None, NOTHING, &flags), &[]).is_err());
}

#[test]
fn optional_metrics_are_all_or_match_expressions() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    let load = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let given = given(ConfigFile::Given(file.clone()), NOTHING, &[]);
        load_agent(&given, &sources()).map(|loaded| loaded.config)
    };
    let text = "[sources.load]\noptional = true\nperiod_idle = \"1m\"\n[sources.process]\n\
                optional = [\"process_io_.*\", \"process_[a-z]{1,3}\"]\n\
                [burst]\nsources = [\"load\"]\nflush_on = []\n";
    let config = load(text).unwrap();
    assert!(config.sources["load"].optional.iter().any(|one| one.matches("load_1m")));
    assert_eq!(config.sources["load"].period_idle, Some(Duration::from_secs(60)));
    let named = &config.sources["process"].optional;
    let is = |name: &str| named.iter().any(|one| one.matches(name));
    assert!(is("process_io_bytes_total") && is("process_cpu") && !is("process_cpus"));
    assert_eq!(config.burst.flush_on, FlushOn::default());
    for (text, part) in [
        ("[sources.load]\noptional = [\"(\"]\n", "`sources.load.optional`: `(` is not a regular"),
        ("[burst]\nflush_on = [\"rule\"]\n", "`rule` is neither job_start nor job_end"),
    ] {
        let errors = load(text).unwrap_err().to_string();
        assert!(errors.contains(part) && errors.contains("agent.toml:2:"), "{errors}");
    }
}

#[test]
fn a_given_file_must_exist() {
    let missing = PathBuf::from("/no/such/file.toml");
    assert!(load_server(&given(ConfigFile::Default(missing.clone()), NOTHING, &[]), &[]).is_ok());
    let errors = load_server(&given(ConfigFile::Given(missing), NOTHING, &[]), &[]).unwrap_err();
    assert!(errors.to_string().starts_with("/no/such/file.toml: "), "{errors}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.toml");
    std::fs::write(&file, b"plain = \"\xff\"\n").unwrap();
    let errors = load_server(&given(ConfigFile::Given(file), NOTHING, &[]), &[]).unwrap_err();
    assert!(errors.to_string().ends_with("cannot be read; it is no text in UTF-8"), "{errors}");
}

#[test]
fn flags_of_a_command() {
    let settings = agent_settings(&sources());
    let command = clap::Command::new("x").args(flags(&settings));
    let line = [
        "x",
        "-vv",
        "--spool-sync",
        "--root",
        "/a,b",
        "--root",
        "/c",
        "--sources-load-period=1s",
        "--burst-sources",
        "cpu, disk",
        "--burst-sources=load",
        "--jobs-schedulers",
        "",
        "--sources-load-optional",
        "load_[a-z]{1,3}",
    ];
    let matches = command.clone().try_get_matches_from(line).unwrap();
    let flags = super::given(&settings, &matches, "agent", "/default", NOTHING);
    assert_eq!(flags.file, ConfigFile::Default(PathBuf::from("/default")));
    let find = |key: &str| flags.flags.iter().find(|(k, _)| k == key).unwrap().1.clone();
    assert_eq!(find("log.level"), Raw::One("debug".to_owned()));
    assert_eq!(find("spool_sync"), Raw::One("true".to_owned()));
    assert_eq!(find("root"), Raw::Many(vec!["/a,b".to_owned(), "/c".to_owned()]));
    let many = |texts: &[&str]| Raw::Many(texts.iter().map(|&text| text.to_owned()).collect());
    assert_eq!(find("burst.sources"), many(&["cpu", "disk", "load"]));
    assert_eq!(find("jobs.schedulers"), many(&[]));
    assert_eq!(find("sources.load.optional"), many(&["load_[a-z]{1,3}"]));
    assert_eq!(find("sources.load.period"), Raw::One("1s".to_owned()));
    for flag in ["--spool", "--device", "--config"] {
        let error = command.clone().try_get_matches_from(["x", flag, ""]).unwrap_err();
        assert!(error.to_string().contains("a value is required"), "{error}");
    }
    let error = command.try_get_matches_from(["x", "--perod", "1s"]).unwrap_err().to_string();
    assert!(error.contains("'--period'"), "{error}");
    let named = |name: &str| (name == "JOBMETER_AGENT_FILE").then(|| "/mine".to_owned());
    let matches = clap::Command::new("x").args(super::flags(&settings)).get_matches_from(["x"]);
    let flags = super::given(&settings, &matches, "agent", "/default", &named);
    assert_eq!(flags.file, ConfigFile::Given(PathBuf::from("/mine")));
}

#[test]
fn flags_and_variables_are_unique() {
    for settings in [agent_settings(&sources()), server_settings(), client_settings()] {
        // Each program's file has a variable beside those of its settings and of other programs.
        let files = ["AGENT", "SERVER", "CLIENT"].map(|of| format!("JOBMETER_{of}_FILE"));
        let (mut flags, mut variables) = (BTreeSet::new(), BTreeSet::from(files));
        for setting in &settings {
            assert!(flags.insert(setting.flag()), "{}", setting.flag());
            assert!(variables.insert(setting.variable()), "{}", setting.variable());
        }
    }
}

#[test]
fn every_default_is_valid_and_every_setting_has_help() {
    for setting in agent_settings(&sources()).iter().chain(&server_settings()) {
        assert!(setting.help.trim().ends_with('.'), "{}", setting.key);
        if setting.default.is_empty() {
            assert!(!setting.unset.is_empty(), "{}: state what an empty value means", setting.key);
        } else {
            let raw = Raw::One(setting.default.to_string());
            assert_eq!(setting.check(&raw), Ok(()), "{}", setting.key);
        }
    }
    let text = reference(&agent_settings(&sources()));
    assert!(text.contains("| `spool_sync` | `--spool-sync` | `JOBMETER_SPOOL_SYNC` |"), "{text}");
}

#[test]
fn a_checked_list_reports_its_own_error() {
    static EVENTS: [OptionSpec; 1] = [OptionSpec {
        name: "events",
        kind: Kind::ListOf("EVENT", |text| match text.contains("cycle,") {
            true => Err("there is no event `cycle`".to_owned()),
            false => Ok(()),
        }),
        default: "",
        help: "Events.",
    }];
    let perf = SourceSettings { name: "perf", help: "Perf.", period: None, options: &EVENTS };
    let load = |text| {
        let flags = [("sources.perf.events", text)];
        load_agent(&given(ConfigFile::None, NOTHING, &flags), std::slice::from_ref(&perf))
    };
    let error = load("cycle,faults").unwrap_err().to_string();
    assert_eq!(
        error,
        "flag --sources-perf-events: `sources.perf.events`: there is no event `cycle`"
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    std::fs::write(&file, "[sources.perf]\nevents = [\"cpu/event=1,umask=2/\", \"faults\"]\n")
        .unwrap();
    let given_file = given(ConfigFile::Given(file), NOTHING, &[]);
    let loaded = load_agent(&given_file, std::slice::from_ref(&perf)).unwrap();
    assert_eq!(loaded.config.sources["perf"].options["events"], "cpu/event=1,umask=2/,faults");
    let loaded = load("cpu/event=1,umask=2/,faults").unwrap();
    assert_eq!(loaded.config.sources["perf"].options["events"], "cpu/event=1,umask=2/,faults");
}

static COMMAND: [OptionSpec; 2] = [
    OptionSpec { name: "command", kind: Kind::Command("WORD"), default: "", help: "What to run." },
    OptionSpec {
        name: "pattern",
        kind: Kind::Text("REGEX"),
        default: "x, y",
        help: "What to find.",
    },
];

fn with_a_program() -> Vec<SourceSettings> {
    let run = SourceSettings { name: "run", help: "Runs.", period: None, options: &COMMAND };
    [sources(), vec![run]].concat()
}

#[test]
fn a_program_is_set_in_the_file_alone_word_by_word() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    let text = "[sources.run]\ncommand = [\"/bin/a\", \"b, c\", \"\"]\npattern = \"a{1,2}, b\"\n";
    std::fs::write(&file, text).unwrap();
    let load = |environment, flags: &[_]| {
        let given = given(ConfigFile::Given(file.clone()), environment, flags);
        load_agent(&given, &with_a_program())
    };
    let loaded = load(NOTHING, &[]).unwrap();
    assert_eq!(loaded.config.sources["run"].options["command"], "/bin/a\0b, c\0\0");
    assert_eq!(loaded.config.sources["run"].options["pattern"], "a{1,2}, b");
    assert!(loaded.show().contains("command = [\"/bin/a\", \"b, c\", \"\"]"), "{}", loaded.show());
    // The environment and flags cannot set it, and the program needs an absolute path.
    let in_environment =
        |name: &str| (name == "JOBMETER_SOURCES_RUN_COMMAND").then(|| "/bin/sh".to_owned());
    let error = load(&in_environment, &[]).unwrap_err().to_string();
    assert!(error.contains("is allowed only in the agent's own file"), "{error}");
    let error = load(NOTHING, &[("sources.run.pattern", "z")]).unwrap_err().to_string();
    assert!(error.contains("is allowed only in the agent's own file"), "{error}");
    let command = agent_command(&with_a_program());
    let names: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
    assert!(names.contains(&"sources-run-period"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("sources-run-command")), "{names:?}");
    std::fs::write(&file, "[sources.run]\ncommand = [\"sh\"]\n").unwrap();
    let error = load(NOTHING, &[]).unwrap_err().to_string();
    assert!(error.ends_with("the absolute path of a program, then each WORD"), "{error}");
}

#[test]
fn a_file_writable_by_other_users_is_not_trusted_to_name_a_program() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("agent.toml");
    std::fs::write(&file, "[sources.run]\ncommand = [\"/bin/a\"]\n").unwrap();
    let distrust = || {
        let given = given(ConfigFile::Given(file.clone()), NOTHING, &[]);
        let config = load_agent(&given, &with_a_program()).unwrap().config;
        assert_eq!(config.sources["load"].distrust, None);
        config.sources["run"].distrust.clone()
    };
    if std::fs::metadata(&file).unwrap().uid() != 0 {
        assert!(distrust().unwrap().contains("not to root: chown root "));
        return;
    }
    for (mode, why) in [(0o644, None), (0o664, Some("mode 664")), (0o646, Some("chmod go-w"))] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let reason = distrust();
        assert_eq!(reason.is_some(), why.is_some(), "{mode:o} {reason:?}");
        assert!(why.is_none_or(|why| reason.unwrap().contains(why)), "{mode:o}");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    // A user who can write to the folder can replace the file.
    let mode = |mode| std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode));
    mode(0o775).unwrap();
    let why = distrust().unwrap();
    assert!(why.ends_with(&format!("chmod go-w {}", dir.path().display())), "{why}");
    mode(0o755).unwrap();
    chown(dir.path(), Some(65_534), None).unwrap();
    assert!(distrust().unwrap().contains("belongs to user 65534, not to root"));
    chown(dir.path(), Some(0), None).unwrap();
    assert_eq!(distrust(), None);
    chown(&file, Some(65_534), None).unwrap();
    assert!(distrust().unwrap().contains("belongs to user 65534, not to root"));
}

#[test]
fn unauthenticated_clients_see_no_more_than_a_user() {
    let load = |flags: &[(&str, &str)]| load_server(&given(ConfigFile::None, NOTHING, flags), &[]);
    let access = load(&[("access.nodes", "own"), ("access.staff", "@ops,ann")]).unwrap();
    let access = access.config.access;
    assert_eq!((access.nodes, access.anonymous), (Nodes::Own, Anonymous::None));
    assert_eq!(access.staff, ["@ops", "ann"]);
    assert_eq!(load(&[]).unwrap().config.access.nodes, Nodes::Everyone);
    let both = load(&[("access.nodes", "own"), ("access.anonymous", "nodes")]);
    let errors = both.unwrap_err().to_string();
    assert!(errors.contains("access-anonymous") && errors.contains("set `none`"), "{errors}");
    assert!(load(&[("access.nodes", "mine")]).is_err());
}

#[test]
fn a_server_without_loopback_users_needs_tokens_or_certificates() {
    let load = |flags: &[(&str, &str)]| load_server(&given(ConfigFile::None, NOTHING, flags), &[]);
    let none = ("access.loopback", "none");
    let error = load(&[none]).unwrap_err().to_string();
    assert!(error.contains("access-loopback") && error.contains("`token_file`"), "{error}");
    let loaded = load(&[none, ("token_file", "/etc/jobmeter/tokens")]).unwrap();
    assert_eq!(loaded.config.access.loopback, Loopback::None);
    assert_eq!(load(&[]).unwrap().config.access.loopback, Loopback::User);
}
