//! A server that a systemd unit runs as a user of its own is found by root's agent and by commands without `--server`.

use crate::common::programs::{Running, output, program, ready, root, until};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The user of the server.
const USER: &str = "65534";

/// What systemd does for the unit, on a `/run` that the test alone sees.
const UNIT: &str = "
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir /run/jobmeter-server
    chown $0:$0 /run/jobmeter-server
    exec sleep 1000";

#[test]
fn agent_and_commands_find_the_server_of_the_unit() {
    if !root("agent_and_commands_find_the_server_of_the_unit") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(&data, Some(65534), Some(65534)).unwrap();
    let mut holder = Command::new("unshare");
    let mut holder = Running::start(holder.args(["--mount", "sh", "-ec", UNIT, USER]));
    let pid = holder.child.id().to_string();
    let within = |words: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid, "-m", "--wd=/"]).args(words);
        command
    };
    until("the folder of the unit", Duration::from_secs(20), || {
        let (_, owner, _) = output(&mut within(&["stat", "-c", "%u", "/run/jobmeter-server"]));
        (owner.trim() == USER).then_some(())
    });
    let as_user = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"];
    let server = program("jobmeter-server");
    let arguments = ["--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
    let mut server = within(&[&as_user[..], &[server.to_str().unwrap()], &arguments].concat());
    server.env("RUNTIME_DIRECTORY", "/run/jobmeter-server").stdout(Stdio::piped());
    let mut server = Running::start(&mut server);
    ready(&mut server);

    let spool = dir.path().join("spool");
    let agent = program("jobmeter-agent");
    let arguments = ["--device", "n1", "--period", "1s", "--spool", spool.to_str().unwrap()];
    let mut agent =
        Running::start(&mut within(&[&[agent.to_str().unwrap()][..], &arguments].concat()));
    let command = program("jobmeter");
    let nodes = [command.to_str().unwrap(), "nodes", "--json"];
    until("the node, for root", Duration::from_secs(30), || {
        let (_, nodes, _) = output(&mut within(&nodes));
        nodes.contains("\"n1\"").then_some(())
    });
    // So do other users without a server of their own.
    let other = ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups"];
    let (code, list, errors) = output(&mut within(&[&other[..], &nodes].concat()));
    assert!(code == 0 && list.contains("\"n1\""), "{list}{errors}");
    for program in [&mut agent, &mut server, &mut holder] {
        program.end();
    }
}
