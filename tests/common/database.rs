//! A PostgreSQL server of a test.

use crate::common::programs::{output, until};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// initdb and postgres reject root.
const AS_USER: &str = r#"
if [ "$(id -u)" = 0 ]; then
    chown -R postgres "$DIR"
    exec setpriv --reuid=postgres --regid=postgres --clear-groups sh -c "$SCRIPT"
fi
exec sh -c "$SCRIPT"
"#;

/// Runs a server until its standard input ends. It ends as in a crash. `POSTGRESQL_PROGRAMS` names the folder of another version's
/// programs.
const SCRIPT: &str = r#"
set -eu
bin=${POSTGRESQL_PROGRAMS:-$(ls -d /usr/lib/postgresql/*/bin | tail -1)}
[ -f "$DIR/data/PG_VERSION" ] || "$bin/initdb" -N -A trust -U postgres -D "$DIR/data" -E UTF8 --locale=C.UTF-8 >"$DIR/log" 2>&1
"$bin/postgres" -D "$DIR/data" -k "$DIR" -c listen_addresses= $OPTIONS >>"$DIR/log" 2>&1 &
server=$!
trap 'kill -QUIT $server 2>/dev/null || true; wait $server || true' EXIT
cat >/dev/null
"#;
const LIMIT: Duration = Duration::from_secs(60);

/// A running server; it ends with this. Its files and its socket are in a folder.
pub(crate) struct Database(Child);

impl Database {
    pub(crate) fn start(dir: &Path) -> Self {
        Self::start_with(dir, "")
    }

    /// Starts it with options of its command line.
    pub(crate) fn start_with(dir: &Path, options: &str) -> Self {
        Self::start_by(&mut Command::new("env"), dir, options)
    }

    /// Starts it by another program, which executes the rest of its command line.
    pub(crate) fn start_by(command: &mut Command, dir: &Path, options: &str) -> Self {
        command.args(["sh", "-c", AS_USER]).env("DIR", dir);
        command.env("SCRIPT", SCRIPT).env("OPTIONS", options);
        let child = command.stdin(Stdio::piped()).spawn().unwrap();
        until("the database", LIMIT, || psql(dir, "SELECT 1").map(drop));
        Self(child)
    }
}

/// Kills all processes of a server, like a power cut of them.
pub(crate) fn kill(dir: &Path) {
    let text = std::fs::read_to_string(dir.join("data/postmaster.pid")).unwrap();
    let pid = text.lines().next().unwrap();
    let (_, children, _) = output(Command::new("pgrep").args(["-P", pid]));
    let all: Vec<&str> = std::iter::once(pid).chain(children.lines()).collect();
    let (code, _, errors) = output(Command::new("kill").arg("-9").args(&all));
    // Some may have ended meanwhile.
    assert!(code == 0 || errors.contains("No such process"), "{errors}");
    until("the end of the database", LIMIT, || {
        let runs = |pid: &&str| {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        (!all.iter().any(runs)).then_some(())
    });
}

impl Drop for Database {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// The answer of a statement; none if the database does not answer.
pub(crate) fn psql(dir: &Path, statement: &str) -> Option<String> {
    let output = client(dir, "postgres", "postgres").arg(statement).output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

/// The answer of statements in a database as a role, or the error.
pub(crate) fn query(
    dir: &Path,
    database: &str,
    role: &str,
    statements: &str,
) -> Result<String, String> {
    let output = client(dir, database, role).arg(statements).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

fn client(dir: &Path, database: &str, role: &str) -> Command {
    let mut command = Command::new("psql");
    command.arg("-h").arg(dir).args(["-v", "ON_ERROR_STOP=1", "-U", role, "-d", database, "-qtAc"]);
    command
}
