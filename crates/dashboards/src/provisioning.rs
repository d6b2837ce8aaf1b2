//! The files that Grafana reads at startup: the datasource, the place of the dashboards, the dashboards.

use crate::grafana::{self, Context};
use crate::list::DASHBOARDS;
use std::time::Duration;

/// Modes of TLS between Grafana and the datasource.
pub const TLS_MODES: [&str; 4] = ["disable", "require", "verify-ca", "verify-full"];

/// ID and name of the datasource.
const DATASOURCE: &str = "jobmeter";
/// Grafana's type of the datasource. Grafana 11 and later have a longer name, and accept this one.
const KIND: &str = "postgres";
/// Connections of Grafana at a time, of the 32 that the server permits to a user.
const CONNECTIONS_MAX: u32 = 16;

/// How Grafana connects to the server, or to a database.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Host and port.
    pub address: String,
    /// Name of the database.
    pub database: String,
    /// Name of the user.
    pub user: String,
    /// File with the password or the token, which Grafana reads at startup.
    pub password_file: String,
    /// One of [`TLS_MODES`].
    pub tls: String,
}

/// What the files need to know.
#[derive(Clone, Debug)]
pub struct Provisioning {
    /// The datasource.
    pub connection: Connection,
    /// Absolute path of the folder of all files.
    pub folder: String,
    /// The period of most samples: a line in a plot ends where three of them are missing.
    pub period: Duration,
}

impl Provisioning {
    /// The dashboards: paths below the folder, and texts.
    pub fn dashboards(&self) -> Vec<(String, String)> {
        let context = Context { datasource: DATASOURCE, kind: KIND, period: self.period };
        let file = |one: &&crate::declaration::Dashboard| {
            let text = format!("{:#}\n", grafana::dashboard(one, &context));
            (format!("jobmeter/{}.json", one.uid), text)
        };
        DASHBOARDS.iter().map(file).collect()
    }

    /// The files that Grafana reads at startup: paths below the folder, and texts. An administrator may change them.
    pub fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("provisioning/datasources/jobmeter.yaml".to_owned(), self.datasource()),
            ("provisioning/dashboards/jobmeter.yaml".to_owned(), self.provider()),
        ]
    }

    fn datasource(&self) -> String {
        let Connection { address, database, user, password_file, tls } = &self.connection;
        let (address, database, user) = (quoted(address), quoted(database), quoted(user));
        // Grafana replaces this by the content of the file.
        let password = format!("\"$__file{{{}}}\"", inner(password_file));
        format!(
            "# Written by `jobmeter dashboards`, which does not replace it.
apiVersion: 1
datasources:
  - name: {DATASOURCE}
    uid: {DATASOURCE}
    type: {KIND}
    access: proxy
    url: {address}
    user: {user}
    jsonData:
      database: {database}
      sslmode: {tls}
      postgresVersion: 1500
      timescaledb: false
      maxOpenConns: {CONNECTIONS_MAX}
      maxIdleConns: {CONNECTIONS_MAX}
    secureJsonData:
      password: {password}
"
        )
    }

    fn provider(&self) -> String {
        let path = format!("\"{}/jobmeter\"", inner(&self.folder));
        format!(
            "# Written by `jobmeter dashboards`, which does not replace it.
apiVersion: 1
providers:
  - name: jobmeter
    folder: jobmeter
    type: file
    allowUiUpdates: false
    updateIntervalSeconds: 60
    options:
      path: {path}
"
        )
    }
}

/// A text of YAML in quotes. Grafana replaces `$NAME` by a variable, and `$$` by `$`.
fn quoted(text: &str) -> String {
    format!("\"{}\"", inner(text))
}

fn inner(text: &str) -> String {
    let json = serde_json::Value::from(text.replace('$', "$$")).to_string();
    json.trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted() {
        let connection = Connection {
            address: "db:5432".to_owned(),
            database: "a\"b: #$HOME".to_owned(),
            user: "token".to_owned(),
            password_file: "/etc/grafana/token".to_owned(),
            tls: "require".to_owned(),
        };
        let folder = "/etc/my grafana".to_owned();
        let all = Provisioning { connection, folder, period: Duration::from_secs(5) };
        let files = all.settings();
        assert!(files[0].1.contains("database: \"a\\\"b: #$$HOME\"\n"), "{}", files[0].1);
        assert!(files[0].1.contains("password: \"$__file{/etc/grafana/token}\"\n"));
        assert!(files[1].1.contains("path: \"/etc/my grafana/jobmeter\"\n"), "{}", files[1].1);
    }
}
