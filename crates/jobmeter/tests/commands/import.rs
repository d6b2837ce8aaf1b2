//! Tests of `import` with `check`, and the trials that the guides from other programs have for users.

use crate::exits::jobmeter_with;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Runs `import`, and checks the part of a program.
fn import_and_check(dir: &Path, program: &str, words: &[&str]) -> String {
    let secrets = dir.to_str().unwrap();
    let common = ["import", "--secrets", secrets, "--for", program];
    let (code, text, error) = jobmeter_with(&[], &[&common[..], words].concat());
    assert_eq!((code, &*error), (0, ""), "{text}");
    let file = dir.join(format!("{program}.toml"));
    std::fs::write(&file, &text).unwrap();
    let words = ["check", file.to_str().unwrap(), "--for", program];
    let (code, _, error) = jobmeter_with(&[], &words);
    assert_eq!((code, &*error), (0, ""), "{text}");
    text
}

#[test]
fn check_accepts_what_import_prints() {
    let dir = tempfile::tempdir().unwrap();
    let colmet = "colmet-node -v -s 2.5 --enable-RAPL --enable-perfhw --enable-ipmipower --cpuset_rootpath /dev/cpuset/a";
    let text = import_and_check(dir.path(), "agent", &["colmet", colmet]);
    assert!(text.contains("[sources.rapl]") && text.contains("[sources.ipmi]"), "{text}");
    let log = dir.path().join("fructosa.log");
    let lagent = dir.path().join("lagent.conf");
    let content =
        format!("[logging]\nfilename = {}\n[sensor:Users]\ntime_interval = 2\n", log.display());
    std::fs::write(&lagent, content).unwrap();
    let text = import_and_check(dir.path(), "agent", &["fructosa", lagent.to_str().unwrap()]);
    assert!(text.contains("[sources.users]") && text.contains("jobmeter-agent.log"), "{text}");
    let conf = dir.path().join("kwollector.conf");
    std::fs::write(&conf, "db_password: secret\nlog_level: debug\n").unwrap();
    let text = import_and_check(dir.path(), "poller", &["kwollect", conf.to_str().unwrap()]);
    assert!(text.contains("level = \"debug\""), "{text}");
    let secret = dir.path().join("kwollect-database-password");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "secret\n");
    let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn wrong_input_is_an_error_and_the_rest_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    let conf = dir.path().join("kwollector.conf");
    std::fs::write(&conf, "worker: many\ndb_name: site\n").unwrap();
    let (conf, secrets) = (conf.to_str().unwrap(), dir.path().to_str().unwrap());
    let import = ["import", "kwollect", conf, "--secrets", secrets];
    let (code, text, error) = jobmeter_with(&[], &import);
    assert!(code == 1 && text.contains("dbname=site"), "{code} {text}");
    assert!(error.starts_with(&format!("jobmeter: {conf}:1: worker: ")), "{error}");
    // An existing file is kept, and nothing is printed that names it.
    let secret = dir.path().join("kwollect-database-password");
    std::fs::write(&secret, "another\n").unwrap();
    let (code, text, error) = jobmeter_with(&[], &import);
    assert!(code == 2 && text.is_empty() && error.contains("is not overwritten"), "{error}");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "another\n");
    let (code, _, error) = jobmeter_with(&[], &["import", "colmet", "cp a b"]);
    assert!(code == 2 && error.contains("runs no program of Colmet"), "{error}");
    let (code, text, error) = jobmeter_with(&[], &["import", "colmet", "colmet-node --x\u{1b}[2J"]);
    assert!(code == 1 && !error.contains('\u{1b}') && text.contains("server"), "{error}");
}

/// The block that a guide marks as one that runs.
fn trial(guide: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide").join(guide);
    let text = std::fs::read_to_string(file).unwrap();
    let (_, part) = text.split_once("\n## Try it inside one job\n").unwrap();
    let (_, block) = part.split_once("\n```sh run\n").unwrap();
    block.split_once("\n```\n").unwrap().0.to_owned()
}

/// As an ordinary user, if the tests run as root: the user `nobody` with its own folder.
#[test]
fn the_trials_of_the_guides_run_as_written() {
    for guide in ["from-colmet.md", "from-fructosa.md", "from-kwollect.md"] {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("jobmeter");
        std::fs::copy(env!("CARGO_BIN_EXE_jobmeter"), &program).unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let is_root = rustix::process::geteuid().is_root();
        #[expect(clippy::disallowed_methods, reason = "the program itself is tested")]
        let mut shell = Command::new(if is_root { "setpriv" } else { "sh" });
        if is_root {
            shell.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--", "sh"]);
        }
        let block = trial(guide);
        let commands = block.lines().filter(|line| line.starts_with("jobmeter ")).count();
        assert!(commands >= 4, "{guide}: {block}");
        shell.args(["-e", "-c", &block]).current_dir(dir.path()).env("PATH", path);
        shell.env("HOME", dir.path()).env_remove("JOBMETER_SERVER");
        let output = shell.env("JOBMETER_SERVER", "http://127.0.0.1:1").output().unwrap();
        let (out, error) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{guide}: {block}\n{out}\n{error}");
        assert!(error.contains("wall"), "{guide}: the report of the command: {error}");
    }
}
