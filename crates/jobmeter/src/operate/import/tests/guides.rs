//! The guides from other programs: their tables have every option of the program, from the tables that `import` uses. `make docs`
//! rewrites them.

use crate::operate::db::DbArgs;
use crate::operate::import::counterparts::{Ours, Row, Table, is, nothing};
use crate::operate::import::{colmet_collector, colmet_nodes, fructosa, kwollect};
use clap::{Args as _, Command};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const SETUP: &str = "the same option of `jobmeter db setup`";
const NO_DATABASE: &str = "the feed sends to jobmeter's server, which has the database";
const HELP: &str = "each command of jobmeter has `--help`";
const NO_PIDFILE: &str = "systemd starts and ends the programs, and knows their processes";

const WATTMETRE: Table = Table {
    program: "kwollector-wattmetre",
    rows: &[
        is(&["wattmetre_id"], "`jobmeter feed wattmetre --id`"),
        is(&["wattmetre_version"], "`jobmeter feed wattmetre --version`"),
        is(&["mapping_file_path"], "`jobmeter feed wattmetre --mapping`"),
        is(&["log_level"], "poller: `log.level`"),
        nothing(&["db_host"], NO_DATABASE),
        nothing(&["db_name"], NO_DATABASE),
        nothing(&["db_user"], NO_DATABASE),
        nothing(&["db_password"], NO_DATABASE),
    ],
};

const SETUP_DB: Table = Table {
    program: "kwollect-setup-db",
    rows: &[
        is(&["db_host"], SETUP),
        is(&["db_port"], SETUP),
        is(&["db_admin"], SETUP),
        is(&["db_admin_password"], SETUP),
        is(&["kwollect_db_name"], SETUP),
        is(&["kwollect_user"], SETUP),
        is(&["kwollect_password"], SETUP),
        is(&["kwollect_password_ro"], SETUP),
        is(&["chunk_interval_hour"], SETUP),
        is(&["chunk_compress_hour"], SETUP),
        is(&["request_timeout_min"], SETUP),
        is(&["archive_path"], SETUP),
        is(&["jobmetrics_requests_path"], SETUP),
    ],
};

const SETUP_OAR: Table = Table {
    program: "kwollect-setup-db-oar",
    rows: &[
        is(&["db_host"], SETUP),
        is(&["db_port"], SETUP),
        is(&["db_admin"], SETUP),
        is(&["db_admin_password"], SETUP),
        is(&["kwollect_db_name"], SETUP),
        is(&["kwollect_user"], SETUP),
        is(&["oardb_host"], SETUP),
        is(&["oardb_port"], SETUP),
        is(&["oardb_name"], SETUP),
        is(&["oardb_user"], SETUP),
        is(&["oardb_password"], SETUP),
    ],
};

const DAEMONS: Table = Table {
    program: "lagent, lmaster, fructosad",
    rows: &[
        nothing(&["-h", "--help"], HELP),
        nothing(&["-p", "--pidfile"], NO_PIDFILE),
        is(&["-c", "--config"], "`--config` of `jobmeter-agent` and `jobmeter-server`"),
        is(&["start"], "`systemctl start jobmeter-agent`, `systemctl start jobmeter-server`"),
        is(&["stop"], "`systemctl stop jobmeter-agent`, `systemctl stop jobmeter-server`"),
    ],
};

const GRAFANA: &str = "`jobmeter dashboards` writes dashboards with a choice of hosts; those of FrUCToSA work with `tree = \"fructosa\"`";

const DASHBOARD: Table = Table {
    program: "make-fructosa-dashboard",
    rows: &[
        nothing(&["-h", "--help"], HELP),
        nothing(&["-s", "--section"], GRAFANA),
        nothing(&["HOSTS"], GRAFANA),
    ],
};

/// A table of a guide: its program, and cells of names and counterparts.
struct Shown {
    program: &'static str,
    rows: Vec<(Vec<&'static str>, String)>,
}

fn shown(table: &Table) -> Shown {
    let ours = |row: &Row| match row.ours {
        Ours::Is(ours) => ours.to_owned(),
        Ours::Nothing(why) => format!("none: {why}"),
    };
    let rows = table.rows.iter().map(|row| (row.names.to_vec(), ours(row)));
    Shown { program: table.program, rows: rows.collect() }
}

/// The sensors with their sources.
fn sensors() -> Shown {
    let row = |group: &&colmet::equivalent::Group| {
        let sources: Vec<String> =
            fructosa::sources(group).iter().map(|source| format!("`{source}`")).collect();
        (vec![group.name], format!("agent: the source {}", sources.join(" and ")))
    };
    Shown { program: "Sensors", rows: colmet::fructosa::GROUPS.iter().map(row).collect() }
}

fn tables(guide: &str) -> Vec<Shown> {
    match guide {
        "colmet" => vec![
            shown(&colmet_nodes::PYTHON),
            shown(&colmet_nodes::BRANCH),
            shown(&colmet_nodes::RUST),
            shown(&colmet_collector::TABLE),
        ],
        "fructosa" => {
            vec![shown(&DAEMONS), shown(&fructosa::FILES), sensors(), shown(&DASHBOARD)]
        }
        _ => vec![
            shown(&kwollect::KWOLLECTOR),
            shown(&WATTMETRE),
            shown(&SETUP_DB),
            shown(&SETUP_OAR),
        ],
    }
}

fn markdown(tables: &[Shown]) -> String {
    let mut out = String::new();
    for Shown { program, rows } in tables {
        write!(out, "\n### {program}\n\n| theirs | in jobmeter |\n|---|---|\n").unwrap();
        for (names, ours) in rows {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            writeln!(out, "| {} | {ours} |", names.join(", ")).unwrap();
        }
    }
    out
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const GUIDES: [&str; 3] = ["colmet", "fructosa", "kwollect"];
/// The line before the tables, which end the guide.
const HEAD: &str = "\n## Every option and its counterpart\n";

#[test]
fn the_tables_of_the_guides_are_those_of_import() {
    for guide in GUIDES {
        let file = repository().join(format!("docs/guide/from-{guide}.md"));
        let old = std::fs::read_to_string(&file).unwrap();
        let (text, _) = old.split_once(HEAD).unwrap_or_else(|| panic!("{guide}: no `{HEAD}`"));
        let new = format!("{text}{HEAD}{}", markdown(&tables(guide)));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&file, &new).unwrap();
        } else {
            assert_eq!(old, new, "from-{guide}.md is stale; `make docs` rewrites it");
        }
    }
}

#[test]
fn no_option_of_theirs_is_missing() {
    for guide in GUIDES {
        let file = repository().join(format!("testdata/moving/{guide}.txt"));
        let names = std::fs::read_to_string(file).unwrap();
        let tables = tables(guide);
        let (mut program, mut count) = ("", 0);
        for name in names.lines() {
            if let Some(next) = name.strip_prefix("# ") {
                program = next;
                continue;
            }
            count += 1;
            let table = tables.iter().find(|table| table.program == program);
            let rows = table.map_or(&[][..], |table| &table.rows);
            let found = rows.iter().filter(|(names, _)| names.contains(&name)).count();
            assert_eq!(found, 1, "{guide}: {program}: {name}");
        }
        let listed = names.lines().filter(|line| line.starts_with("# ")).count();
        assert!(count > 20 && listed == tables.len(), "{guide}");
    }
}

#[test]
fn options_of_the_setup_are_those_of_our_command() {
    let db = DbArgs::augment_args(Command::new("db"));
    let db = db.find_subcommand("setup").unwrap();
    let is_ours = |name: &str| db.get_arguments().any(|arg| arg.get_long() == Some(name));
    for name in [&SETUP_DB, &SETUP_OAR].iter().flat_map(|it| it.rows).flat_map(|row| row.names) {
        assert!(is_ours(name), "{name}");
    }
}
