//! TLS to the database of the store, and what `jobmeter check` finds out about it.

use crate::common::database::{Database, psql};
use crate::common::programs::{Server, output, program};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    Authority::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Writes a file with mode 0600, and returns its path.
fn file(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A database that accepts passwords by TLS alone, with a certificate for `localhost`.
struct Site {
    dir: tempfile::TempDir,
    folder: PathBuf,
    port: u16,
    _database: Database,
}

impl Site {
    fn start(authority: &Authority) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711)).unwrap();
        let folder = dir.path().join("database");
        std::fs::create_dir(&folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        let cert = file(&folder, "tls.pem", &certificate.pem());
        let key = file(&folder, "tls.key", &key.serialize_pem());
        let hba = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
        let hba = file(&folder, "hba", hba);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={port} -c ssl=on -c ssl_cert_file={cert} \
             -c ssl_key_file={key} -c hba_file={hba}"
        );
        // psql finds the socket by its port.
        std::os::unix::fs::symlink(format!(".s.PGSQL.{port}"), folder.join(".s.PGSQL.5432"))
            .unwrap();
        let database = Database::start_with(&folder, &options);
        psql(&folder, "ALTER ROLE postgres PASSWORD 'secret'").unwrap();
        Self { dir, folder, port, _database: database }
    }

    /// The errors and notes of `jobmeter check` for settings.
    fn check(&self, settings: &str) -> (i32, String) {
        let data = self.dir.path().join("data");
        let text = format!(
            "store = \"postgres\"\ndata = \"{}\"\nlisten = [\"127.0.0.1:0\"]\n{settings}\n",
            data.display()
        );
        let config = file(self.dir.path(), "server.toml", &text);
        let mut command = Command::new(program("jobmeter"));
        let (code, _, error) = output(command.args(["check", &config, "--for", "server"]));
        (code, error)
    }
}

#[test]
fn the_certificate_of_the_database_is_verified_and_errors_are_found_before_a_start() {
    let (ours, another) = (authority(), authority());
    let site = Site::start(&ours);
    let ca = file(site.dir.path(), "ca.pem", &ours.pem());
    let wrong_ca = file(site.dir.path(), "wrong.pem", &another.pem());
    let password = file(site.dir.path(), "password", "secret\n");
    let wrong_password = file(site.dir.path(), "wrong-password", "another\n");
    let parameters = |host: &str, port: u16| {
        format!("host={host} port={port} user=postgres dbname=postgres sslmode=require")
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for (host, port, ca, password, expected) in [
        ("localhost", site.port, &ca, &password, None),
        (
            "localhost",
            site.port,
            &wrong_ca,
            &password,
            Some("invalid peer certificate: BadSignature"),
        ),
        (
            "127.0.0.1",
            site.port,
            &ca,
            &password,
            Some("certificate not valid for name \"127.0.0.1\""),
        ),
        ("localhost", site.port, &ca, &wrong_password, Some("password authentication failed")),
        ("localhost", free, &ca, &password, Some("refused")),
    ] {
        let text = parameters(host, port);
        let settings = format!(
            "postgres.database = \"{text}\"\npostgres.ca = \"{ca}\"\npostgres.password_file = \"{password}\""
        );
        let (code, error) = site.check(&settings);
        let Some(expected) = expected else {
            assert_eq!((code, &*error), (0, ""));
            continue;
        };
        assert!(code == 1 && error.contains(expected), "{expected}: {error}");
        assert_eq!(error.matches("postgres at ").count(), 1, "{error}");
        let mut server = Command::new(program("jobmeter-server"));
        server.arg("--data").arg(site.dir.path().join("data"));
        server.args([
            "--listen",
            "127.0.0.1:0",
            "--store",
            "postgres",
            "--postgres-database",
            &text,
        ]);
        server.args(["--postgres-ca", ca, "--postgres-password-file", password]);
        let (code, _, error) = output(&mut server);
        assert!(code != 0 && error.contains(expected), "{expected}: {error}");
        assert_eq!(error.matches(expected).count(), 1, "once: {error}");
    }
    // The checks changed nothing.
    assert_eq!(psql(&site.folder, "SELECT to_regclass('metrics') IS NULL").unwrap().trim(), "t");
    let text = parameters("localhost", site.port);
    let arguments = ["--store", "postgres", "--postgres-database", &text, "--postgres-ca", &ca];
    let arguments = [&arguments[..], &["--postgres-password-file", &password]].concat();
    let mut server = Server::start(&site.dir.path().join("data"), &arguments);
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name LIKE 'jobmeter%'";
    assert_eq!(psql(&site.folder, encrypted).unwrap().trim(), "t");
    assert_eq!(server.running.end(), 0);
}

#[test]
fn a_check_finds_rights_tables_encoding_and_folders() {
    let site = Site::start(&authority());
    let check = |user: &str, database: &str, more: &str| {
        let folder = site.folder.display();
        site.check(&format!(
            "postgres.database = \"host={folder} port={} user={user} dbname={database}\"\n{more}",
            site.port
        ))
    };
    let setup = "CREATE ROLE guest LOGIN; \
        CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0";
    for statement in setup.split("; ") {
        psql(&site.folder, statement).unwrap();
    }
    let is_error = |(code, error): (i32, String), expected: &str| {
        assert!(code == 1 && error.contains(expected), "{expected}: {error}");
    };
    is_error(check("guest", "postgres", ""), "GRANT CREATE ON DATABASE postgres TO guest");
    psql(&site.folder, "GRANT CREATE ON DATABASE postgres TO guest").unwrap();
    is_error(check("guest", "postgres", ""), "GRANT ALL ON SCHEMA public TO guest");
    psql(&site.folder, "GRANT ALL ON SCHEMA public TO guest").unwrap();
    assert_eq!(check("guest", "postgres", ""), (0, String::new()));
    is_error(check("postgres", "latin", ""), "is not UTF8");
    is_error(check("postgres", "none", ""), "\"none\" does not exist");
    let pg = |folder: &Path| format!("pg.listen = [\"{}\"]", folder.display());
    is_error(check("guest", "postgres", &pg(&site.dir.path().join("none"))), "`pg.listen`");
    is_error(check("guest", "postgres", &pg(&site.folder.join("hba"))), "not a directory");
    assert_eq!(check("guest", "postgres", &pg(site.dir.path())), (0, String::new()));
    // Tables of an earlier version, and tables of another role.
    let text =
        format!("host={} port={} user=postgres dbname=postgres", site.folder.display(), site.port);
    let mut server = Server::start(
        &site.dir.path().join("data"),
        &["--store", "postgres", "--postgres-database", &text],
    );
    assert_eq!(server.running.end(), 0);
    assert_eq!(check("postgres", "postgres", ""), (0, String::new()));
    let grant = "GRANT ALL ON SCHEMA jobmeter TO guest";
    is_error(check("guest", "postgres", ""), grant);
    psql(&site.folder, grant).unwrap();
    is_error(check("guest", "postgres", ""), "jobmeter.jobs");
    psql(&site.folder, "DROP TABLE jobmeter.jobs").unwrap();
    is_error(check("postgres", "postgres", ""), "lacks the tables jobmeter.jobs");
}
