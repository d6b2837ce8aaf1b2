//! `up` restarts its programs after a crash, and holds the server's port. After the server crashes, no other process can bind the port, connections
//! wait, and a new server accepts them. A server listens on several addresses.

use crate::common::programs::{Running, Server, get, output, program, ready, until};
use crate::common::up::Up;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns the process ID of the program that uses a data folder.
fn pid_of(program: &str, data: &Path) -> Option<String> {
    let of = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().into_string().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let is_program = words.first()?.ends_with(program);
        let has_data = words.iter().any(|word| Path::new(&**word).starts_with(data));
        (is_program && has_data).then_some(pid)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).find_map(of)
}

fn server_of(data: &Path) -> Option<String> {
    pid_of("jobmeter-server", data)
}

fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-s", "KILL", pid]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn a_crash_of_the_server_does_not_free_its_port() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s"]);
    let first = server_of(dir.path()).expect("the server's number");
    kill(&first);
    until("the server's end", Duration::from_secs(20), || {
        (server_of(dir.path()).as_ref() != Some(&first)).then_some(())
    });
    // No other process can listen on the port, neither before nor after the new server starts.
    let address = up.url.trim_start_matches("http://").to_owned();
    assert!(TcpListener::bind(&address).is_err(), "{address} is free");
    // The next server answers a request that arrives while no server runs.
    assert_eq!(get(&up.url, "/api/v1/ready").0, 200);
    assert!(server_of(dir.path()).is_some_and(|second| second != first));
    assert!(TcpListener::bind(&address).is_err(), "{address} is free");
    // The agent continues.
    until("the node", Duration::from_secs(30), || {
        get(&up.url, "/api/v1/nodes").1.contains("\"alive\":true").then_some(())
    });
    assert!(up.running.errors().contains("is started again"), "{}", up.running.errors());
    assert_eq!(up.running.end(), 0);
}

/// An agent that the kernel kills, for example without memory, takes neither the server nor `up` with it.
#[test]
fn a_crash_of_the_agent_does_not_end_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut up = Up::start(dir.path(), &["--period", "1s"]);
    let server = server_of(dir.path());
    let first =
        until("the agent", Duration::from_secs(20), || pid_of("jobmeter-agent", dir.path()));
    kill(&first);
    until("another agent", Duration::from_secs(20), || {
        pid_of("jobmeter-agent", dir.path()).filter(|second| *second != first)
    });
    assert!(up.running.errors().contains("is started again"), "{}", up.running.errors());
    assert_eq!(server_of(dir.path()), server);
    until("the node", Duration::from_secs(30), || {
        get(&up.url, "/api/v1/nodes").1.contains("\"alive\":true").then_some(())
    });
    assert_eq!(up.running.end(), 0);
}

/// Returns a port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn up_holds_every_address_of_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("127.0.0.1:{}", free_port());
    let mut up = Up::start(dir.path(), &["--listen", &address]);
    let own = up.url.trim_start_matches("http://").to_owned();
    let both = [own, address];
    let answer = |address: &str| get(&format!("http://{address}"), "/api/v1/ready").0;
    assert_eq!(both.each_ref().map(|address| answer(address)), [200, 200]);
    let first = server_of(dir.path()).expect("the server's number");
    kill(&first);
    for address in &both {
        assert!(TcpListener::bind(address).is_err(), "{address} is free");
        assert_eq!(answer(address), 200);
    }
    assert_ne!(server_of(dir.path()), Some(first));
    assert_eq!(up.running.end(), 0);
}

#[test]
fn a_server_listens_on_each_address_or_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let (data, settings) = (dir.path().join("data"), dir.path().join("server.toml"));
    let (one, two) = (format!("127.0.0.1:{}", free_port()), format!("[::1]:{}", free_port()));
    let ready_at = |address: &str| get(&format!("http://{address}"), "/api/v1/ready").0;
    // In a file, a variable and flags.
    std::fs::write(&settings, format!("listen = [\"{two}\", \"{one}\"]\n")).unwrap();
    let server = |arguments: &[&str], variable: Option<&str>| {
        let mut command = Command::new(program("jobmeter-server"));
        command.arg("--data").arg(&data).args(arguments).stdout(Stdio::piped());
        command.envs(variable.map(|value| ("JOBMETER_LISTEN", value)));
        command
    };
    let (file, list) = (["--config", settings.to_str().unwrap()], format!("{two},{one}"));
    for (arguments, variable) in [
        (&file[..], None),
        (&["--config", "/dev/null"][..], Some(&*list)),
        (&["--listen", &two, "--listen", &one][..], None),
    ] {
        let mut running = Running::start(&mut server(arguments, variable));
        assert_eq!(ready(&mut running), format!("http://{two}"), "the first one on loopback");
        assert_eq!([ready_at(&one), ready_at(&two)], [200, 200]);
        assert_eq!(running.end(), 0);
    }
    // One that is taken, one that this machine does not have, and one beyond it.
    let taken = TcpListener::bind(&one).unwrap();
    for (listen, message) in [
        (format!("{two},{one}"), format!("listening on {one}: ")),
        (format!("{one},{two}"), "choose another port with --listen".to_owned()),
        (
            format!("{two},192.0.2.1:0"),
            "listening on 192.0.2.1:0, beyond this machine, needs".to_owned(),
        ),
        (format!("{two},{two}"), format!("`listen` has {two} twice")),
    ] {
        let (code, printed, errors) = output(&mut server(&["--listen", &listen], None));
        assert_eq!((code, &*printed), (2, ""), "{listen}: {errors}");
        assert!(errors.contains(&message), "{listen}: {errors}");
        assert!(TcpListener::bind(&two).is_ok(), "the address that it could use is free again");
    }
    let (code, printed, errors) = output(
        Command::new(program("jobmeter")).arg("check").arg(&settings).args(["--for", "server"]),
    );
    let found = printed + &errors;
    let is_found = found.contains(&format!("listening on {one}"));
    assert!(code == 1 && is_found && !found.contains(&format!("on {two}")), "{found}");
    drop(taken);
    // Port 0 is a free port of each.
    let mut any = Server::start(&data, &["--listen", "127.0.0.1:0,127.0.0.1:0"]);
    assert_eq!(get(&any.url, "/api/v1/ready").0, 200);
    assert_eq!(any.running.end(), 0);
}
