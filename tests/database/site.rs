//! A site: a PostgreSQL server with a folder of its own, and the commands of `jobmeter db` on it.

use crate::common::database::{Database, query};
use crate::common::programs::{output, program};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

/// A running server. Databases, roles and files end with it.
pub(crate) struct Site {
    _dir: tempfile::TempDir,
    pub(crate) folder: PathBuf,
    _database: Database,
}

impl Site {
    /// A server without databases of a site.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let folder = dir.path().join("database");
        std::fs::create_dir(&folder).unwrap();
        let database = Database::start(&folder);
        Self { _dir: dir, folder, _database: database }
    }

    /// A command, as the superuser unless the arguments name another role.
    pub(crate) fn db(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(program("jobmeter"));
        output(command.arg("db").args(arguments).arg("--db_host").arg(&self.folder))
    }

    /// A command as the owner's role.
    pub(crate) fn db_as_owner(&self, arguments: &[&str]) -> (i32, String, String) {
        self.db(&[arguments, &["--db_admin", "kwuser"]].concat())
    }

    /// Executes statements as the superuser in a database.
    pub(crate) fn as_superuser(&self, database: &str, statements: &str) -> String {
        query(&self.folder, database, "postgres", statements).unwrap().trim().to_owned()
    }

    /// Executes statements as the owner's role.
    pub(crate) fn sql(&self, statements: &str) -> String {
        query(&self.folder, "kwdb", "kwuser", statements).unwrap().trim().to_owned()
    }

    /// The rows of a statement as the reading role, or the error.
    pub(crate) fn read(&self, statement: &str) -> Result<String, String> {
        query(&self.folder, "kwdb", "kwuser_ro", statement).map(|text| text.trim().to_owned())
    }

    /// Executes a script as the superuser in a database, as people do with psql.
    pub(crate) fn execute(&self, database: &str, script: &str) {
        let file = self.folder.join("script.sql");
        std::fs::write(&file, script).unwrap();
        let mut psql = Command::new("psql");
        psql.arg("-h").arg(&self.folder);
        psql.args(["-U", "postgres", "-d", database, "-v", "ON_ERROR_STOP=1", "-qf"]);
        let (code, _, errors) = output(psql.arg(&file));
        assert_eq!(code, 0, "{errors}");
    }
}
