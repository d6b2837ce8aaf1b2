//! `jobmeter check DIR`: errors with file and line, the requests, and no secret.

use crate::common::programs::{output, program};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

const CANARY: &str = "canary7f3a";

fn check(dir: &Path, options: &[&str]) -> (i32, String, String) {
    output(Command::new(program("jobmeter")).arg("check").arg(dir).args(options))
}

/// A folder as Kwollect's generator writes it, with errors.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    write(
        "pdu-1.conf",
        "- name: pdu_outlet_power_watt\n  device_id: pdu-1\n  \
         url: snmp://public@pdu-1/1.3.6.1.4.1.318.1.1.26.9.4.3.1.7.1\n  update_every: 1000\n  \
         labels: {\"outlet\": 1, \"_device_alias\": \"node-1\"}\n\
         - name: pdu_outlet_power_watt\n  device_id: pdu-1\n  \
         url: snmp://public@pdu-1/1.3.6.1.4.1.318.1.1.26.9.4.3.1.7.2\n  update_evry: 2000\n  \
         labels: {\"outlet\": 2, \"_device_alias\": \"node-1\"}\n\
         - name: pdu_total\n  device_id: pdu-1\n  url: snmp://public@pdu-1/1.3.x\n",
    );
    write(
        "node-1.conf",
        &format!(
            "- name: bmc_power_watt\n  device_id: node-1\n  kind: gauge\n  unit: watts\n  \
             url: ipmisensor://root:{CANARY}@node-1-bmc/12\n  update_every: 5000\n\
             - name: prom_all_metrics\n  device_id: node-1\n  optional: true\n  \
             url: prometheus://node-1:9100/\n  update_every: 15000\n"
        ),
    );
    write("broken.conf", "- name: x\n  device_id: y\n url: z\n");
    write(".hidden.conf", "nonsense");
    fs::create_dir(dir.path().join("old")).unwrap();
    dir
}

#[test]
fn errors_have_file_and_line_and_everything_else_is_summed() {
    let dir = folder();
    let (code, out, errors) = check(dir.path(), &[]);
    assert_eq!(code, 1, "{out}{errors}");
    let prefix = format!("{}/", dir.path().display());
    let lines: Vec<&str> = errors.lines().map(|line| line.strip_prefix(&prefix).unwrap()).collect();
    assert!(lines[0].starts_with("broken.conf:"), "{errors}");
    let warning = "pdu-1.conf:9: warning: unknown key `update_evry`; `update_every` is known";
    assert_eq!(lines[1], warning, "{errors}");
    assert!(lines[2].starts_with("pdu-1.conf:13: error: url: `1.3.x` is not an OID"), "{errors}");
    assert_eq!(lines.len(), 3, "{errors}");
    assert!(out.contains("snmp://pdu-1:161"), "{out}");
    let sum = "3 files, 4 entries (1 only if promoted), 3 targets: 1.30 rows/s";
    assert!(out.contains(sum), "{out}");
    let rejected = "node-1.conf: the original kwollector rejects this file because of its keys";
    assert!(out.contains(rejected), "{out}");
    let (code, json, _) = check(dir.path(), &["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &json["good"]), (1, &Value::Bool(false)));
    assert_eq!(json["requests"].as_array().unwrap().len(), 4);
    assert_eq!(json["requests"][2]["labels"]["outlet"], 1);
    let meaning =
        |place: usize| ["kind", "unit", "meaning"].map(|key| &json["requests"][place][key]);
    assert_eq!(meaning(0), ["gauge", "watts", "declared"]);
    assert_eq!(meaning(1), [&Value::Null; 3], "an exporter states it");
    assert_eq!(meaning(2), ["gauge", "watts", "assumed"]);
    fs::remove_file(dir.path().join("broken.conf")).unwrap();
    fs::remove_file(dir.path().join("pdu-1.conf")).unwrap();
    assert_eq!(check(dir.path(), &[]).0, 0);
    assert_eq!(check(&dir.path().join("old"), &[]).0, 0, "an empty folder");
    let (code, _, errors) = check(dir.path(), &["--for", "agent"]);
    assert_eq!(code, 2, "{errors}");
}

#[test]
fn no_message_shows_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    // A password with each delimiter, at each place, in each scheme, right and wrong.
    let secrets =
        ["", "/", "?", "#", "@", ":", "%2F", "[", "]", "&", "=", " ", "{{", "}}", "%zz", "\\u00e9"]
            .map(|delimiter| format!("{CANARY}{delimiter}{CANARY}"));
    let mut text = String::new();
    for secret in &secrets {
        for url in [
            format!("snmp://{secret}@pdu-1/1.3.6.1"),
            format!("snmp://u:{secret}@pdu-1/1.3.x"),
            format!(
                "snmpv3://u@pdu-1/1.3.6?auth=sha256&authkey={secret}&priv={secret}&privkey={secret}"
            ),
            format!("snmpv3://u@pdu-1/1.3.6?{secret}=1&auth={secret}"),
            format!("ipmisensor://root:{secret}@bmc/Fan"),
            format!("ipmisensor://root:{secret}"),
            format!("ipmisensor://root@bmc/12?kg={secret}&cipher=9"),
            format!("https://root:{secret}@bmc/redfish#Power[0]"),
            format!("https://root:{secret}@bmc/redfish"),
            format!("prometheus://u:{secret}@node:9100/a"),
            format!("modbus://{secret}@meter/1/2/be_be_u16"),
            format!("snnmp://u:{secret}@pdu-1/1.3"),
        ] {
            text.push_str(&format!("- {{name: m, device_id: d, url: \"{url}\"}}\n"));
        }
    }
    fs::write(dir.path().join("all.conf"), text).unwrap();
    for options in [&[][..], &["--json"]] {
        let (code, out, errors) = check(dir.path(), options);
        assert_eq!(code, 1, "some of them are wrong");
        let shown = format!("{out}{errors}");
        assert!(shown.len() > 1000, "{shown}");
        let line = shown.lines().find(|line| line.contains(CANARY));
        assert!(line.is_none(), "{}", line.unwrap());
    }
}

/// `jobmeter check` accepts a server's file that `jobmeter import` prints.
#[test]
fn the_imported_file_of_a_server_has_no_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (lagent, hdf5) = (path("lagent.conf"), path("colmet"));
    fs::write(&lagent, "[Graphite]\nhost = carbon\n").unwrap();
    let line = format!(
        "colmet-collector --enable-stdout-backend --hdf5-filepath {hdf5} --elastic-host http://u:p@127.0.0.1:9200"
    );
    let senders = ["--hosts", "dahu-[1-32]", "--networks", "10.1.0.0/16"];
    let colmet = [&["colmet", &line], &senders[..]].concat();
    for words in [&colmet[..], &["fructosa", &lagent]] {
        let mut import = Command::new(program("jobmeter"));
        import.args(["import", "--for", "server", "--secrets"]).arg(dir.path()).args(words);
        let (code, text, errors) = output(&mut import);
        assert_eq!((code, &*errors), (0, ""), "{text}");
        let file = path("server.toml");
        fs::write(&file, &text).unwrap();
        let (code, _, errors) = check(Path::new(&file), &["--for", "server"]);
        assert_eq!(code, 0, "{errors}\n{text}");
    }
}
