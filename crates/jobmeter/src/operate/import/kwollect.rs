//! Kwollect: kwollector becomes a poller of a server that uses Kwollect's database.

use super::counterparts::{Table, is, nothing};
use super::draft::Draft;
use pollers::KwollectConfig;
use std::path::Path;

/// The file with the password of the database.
const PASSWORD_FILE: &str = "kwollect-database-password";
/// Kwollect's default password.
const PASSWORD: &str = "changeme";

/// Keys of kwollector.conf; each is also an option `--KEY`.
pub(super) const KWOLLECTOR: Table = Table {
    program: "kwollector",
    rows: &[
        is(&["metrics_dir"], "server: `poll.metrics_dir`, with the files as they are"),
        is(&["db_host"], "server: `postgres.database`"),
        is(&["db_name"], "server: `postgres.database`"),
        is(&["db_user"], "server: `postgres.database`"),
        is(&["db_password"], "server: `postgres.password_file`"),
        is(&["log_level"], "poller: `log.level`"),
        nothing(
            &["worker"],
            "the poller sends batches to the server; `exchanges_max` limits its requests",
        ),
    ],
};

/// Reads the file.
pub(super) fn import(conf: &Path, draft: &mut Draft) {
    let (config, mut errors) = KwollectConfig::of_kwollector(conf);
    let is_unread = !errors.0.is_empty()
        && KWOLLECTOR.rows.iter().flat_map(|row| row.names).all(|key| config.get(key).is_none());
    draft.errors.append(&mut errors.0);
    if is_unread {
        // The database of a file that cannot be read is unknown: its password is not that of the defaults.
        return;
    }
    // An unknown key, which kwollector ignores.
    draft.errors.extend(config.notes.iter().cloned());
    let server = &mut draft.server;
    server.comment(
        "Before the server starts, `jobmeter db setup` adopts the database: see the guide.",
    );
    server.comment("Passwords in URLs of description files remain there. The key `credential` replaces them; kwollector rejects that key.");
    server.set("store", "postgres");
    server.set("postgres.database", &config.database());
    let password = config.get("db_password").unwrap_or(PASSWORD);
    if password.contains(['\n', '\r']) {
        draft.errors.push(format!("{}: db_password: it has several lines", conf.display()));
    } else {
        draft.secrets.add(PASSWORD_FILE, password);
        server.set_secret_file("postgres.password_file", PASSWORD_FILE);
    }
    server.set("poll.metrics_dir", &config.metrics_dir().display().to_string());
    if let Some(level) = config.log_level() {
        draft.poller.set("log.level", level);
    }
    for row in KWOLLECTOR.rows {
        let given = row.names.iter().find(|name| config.get(name).is_some());
        if let Some(comment) = given.and_then(|name| row.comment(name)) {
            draft.poller.comment(comment);
        }
    }
}
