//! A PostgreSQL server for the tests of this process. It ends with the process.

use postgres::{Connecting, Connector};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

/// initdb and postgres reject root.
const AS_USER: &str = r#"
[ "$(id -u)" = 0 ] && exec setpriv --reuid=postgres --regid=postgres --clear-groups sh -c "$SCRIPT"
exec sh -c "$SCRIPT"
"#;

/// Runs a server until its standard input ends, and prints the folder of its socket once it answers. `POSTGRESQL_PROGRAMS` names the folder
/// of another version's programs.
const SCRIPT: &str = r#"
set -eu
bin=${POSTGRESQL_PROGRAMS:-$(ls -d /usr/lib/postgresql/*/bin | tail -1)}
dir=$(mktemp -d)
"$bin/initdb" --no-sync -A trust -U postgres -D "$dir/data" -E UTF8 --locale=C.UTF-8 >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }
"$bin/postgres" -D "$dir/data" -k "$dir" -c listen_addresses= -c fsync=off -c max_connections=200 >"$dir/log" 2>&1 &
server=$!
trap 'kill -INT $server; wait $server; rm -rf "$dir"' EXIT
until pg_isready -q -h "$dir"; do kill -0 $server || { cat "$dir/log" >&2; exit 1; }; sleep 0.1; done
echo "$dir"
cat >/dev/null
"#;

struct Server {
    folder: String,
    /// Its standard input keeps the server running.
    _child: Child,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    #[expect(clippy::disallowed_methods, reason = "the real counterpart")]
    let mut child = Command::new("sh")
        .args(["-c", AS_USER])
        .env("SCRIPT", SCRIPT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut folder = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut folder).unwrap();
    assert!(!folder.is_empty(), "PostgreSQL did not start; install the package postgresql");
    Server { folder: folder.trim().to_owned(), _child: child }
});

/// Connections to a database.
pub(crate) struct Direct(pub(crate) Config);

impl Connector for Direct {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let connected = self.0.connect(NoTls).await;
            let (client, io) = connected.map_err(|error| error.to_string())?;
            // The next call reports an error of the connection.
            tokio::spawn(async move { io.await.unwrap_or_default() });
            Ok(client)
        })
    }
}

static DATABASES: AtomicU32 = AtomicU32::new(0);

fn config(database: &str) -> Config {
    let mut config = Config::new();
    config.host_path(&SERVER.folder).user("postgres").dbname(database);
    config
}

/// A new empty database.
pub(crate) fn database() -> Config {
    let name = format!("test{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    execute(&config("postgres"), &format!("CREATE DATABASE {name}"));
    config(&name)
}

/// Executes statements on a connection of its own.
pub(crate) fn execute(config: &Config, statements: &str) {
    rows(config, statements);
}

/// The first column of a query's rows, as text without NULL.
pub(crate) fn rows(config: &Config, statements: &str) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, io) = config.connect(NoTls).await.unwrap();
        let io = tokio::spawn(io);
        let messages = client.simple_query(statements).await.unwrap();
        drop(client);
        io.await.unwrap().unwrap();
        let text = |message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        messages.into_iter().filter_map(text).collect()
    })
}
