//! Tests of imports: programs accept the printed configuration, each option has an effect, and errors hide nothing.

mod guides;

use super::counterparts::{Ours, Table};
use super::draft::Draft;
use super::{colmet, colmet_collector, colmet_nodes, fructosa, kwollect};
use config::{ConfigFile, ConfigInputs};
use std::path::Path;

/// The parts of an output by their programs, each accepted by its program, and the errors of the input.
fn checked(draft: &Draft, dir: &Path) -> (String, Vec<String>) {
    let written = draft.secrets.write(dir).unwrap();
    for program in super::PROGRAMS {
        let text = draft.text(&written, Some(program));
        let file = dir.join(format!("{program}.toml"));
        std::fs::write(&file, &text).unwrap();
        let none = |_: &str| None;
        let given =
            ConfigInputs { file: ConfigFile::Given(file), environment: &none, flags: Vec::new() };
        let errors = match program {
            "agent" => agent::read(&given).errors,
            "server" => config::read_server(&given, &outputs::kinds()).errors,
            _ => config::read_poller(&given).errors,
        };
        assert!(errors.is_empty(), "{program}: {errors:?}\n{text}");
    }
    (draft.text(&written, None), draft.errors.clone())
}

fn of_line(line: &str) -> (String, Vec<String>) {
    of_line_with(line, None)
}

fn of_line_with(line: &str, senders: Option<(&str, &str)>) -> (String, Vec<String>) {
    let (dir, mut draft) = (tempfile::tempdir().unwrap(), Draft::default());
    colmet(line, senders, &mut draft).unwrap();
    let (text, errors) = checked(&draft, dir.path());
    (text.replace(dir.path().canonicalize().unwrap().to_str().unwrap(), "DIR"), errors)
}

fn of_file(name: &str, content: &str, import: impl Fn(&Path, &mut Draft)) -> (String, Vec<String>) {
    let (dir, mut draft) = (tempfile::tempdir().unwrap(), Draft::default());
    let file = dir.path().join(name);
    std::fs::write(&file, content).unwrap();
    import(&file, &mut draft);
    let (text, errors) = checked(&draft, dir.path());
    let shown = |text: &str| text.replace(dir.path().to_str().unwrap(), "DIR");
    (shown(&text), errors.iter().map(|error| shown(error)).collect())
}

/// A value of an option, and other options without which it has no effect or belongs to another program.
fn value(program: &str, name: &str) -> (&'static str, &'static str) {
    const HDF5: &str = "--hdf5-filepath /data/colmet";
    const ELASTIC: &str = "--elastic-host https://elastic:9200";
    let is_rust = program.ends_with("colmet-rs");
    let own = if is_rust { "--wait-cgroup-cpuset-path true" } else { "" };
    let value = match name {
        "-s" | "--sample-period" => "0.5",
        "-v" if is_rust => "3",
        "--cpuset_rootpath" | "--cgroup-rootpath" | "--cgroup-root-path" => "/dev/cpuset/jobs",
        "--cgroup-path-suffix" => "/jobs",
        "--regex_job_id" | "--regex-job-id" => r"'job-(\d+)$'",
        "--zeromq-uri" => "tcp://collector:5556",
        "--zeromq-bind-uri" => "tcp://127.0.0.1:7000",
        "--zeromq-hwm" | "--buffer-size" => "10",
        "--zeromq-linger" => "-1",
        "-c" | "--cgroup" | "-p" | "--pid" | "-t" | "--tid" => "7",
        "--hdf5-filepath" => "/data/colmet",
        "--elastic-host" => "http://elastic:9200",
        "--lustre-prefix" => return ("home", "--enable-lustre"),
        "--perfhw-list" => return ("cpu_cycles", "--enable-perfhw"),
        "--ipmipower-cmd" => return ("/bin/power 5", "--enable-ipmipower"),
        "-m" | "--metrics" => return ("rss,cpu_cycles", "--enable-perfhw true -v 2"),
        "--wait-cgroup-cpuset-path" => return ("true", ""),
        "--hdf5-complevel" => return ("3", HDF5),
        "--hdf5-complib" => return ("lzo", HDF5),
        "--elastic-index-prefix" => return ("other_", ELASTIC),
        "-P" | "--http-credentials" => return ("/etc/colmet/user", ELASTIC),
        "--no-check-certificates" => return ("", ELASTIC),
        name if program != "colmet-node" && name.starts_with("--enable-") => "true",
        _ => "",
    };
    (if name == "--enable-stdout-backend" { "" } else { value }, own)
}

#[test]
fn every_option_of_a_command_line_has_an_effect_or_a_reason() {
    let tables: [&Table; 4] = [
        &colmet_nodes::PYTHON,
        &colmet_nodes::BRANCH,
        &colmet_nodes::RUST,
        &colmet_collector::TABLE,
    ];
    for table in tables {
        let program = table.program.split(' ').next().unwrap();
        for (row, name) in
            table.rows.iter().flat_map(|row| row.names.iter().map(move |it| (row, it)))
        {
            // `--file_metrics` needs a file: a test of its own. The others are no options of a measurement.
            let is_other = ["--version", "-f", "--file_metrics"].contains(name);
            if is_other || name.starts_with("LIB_") {
                continue;
            }
            let (value, companion) = value(table.program, name);
            let line = format!("{program} {name} {value} {companion}");
            let (text, errors) = of_line(&line);
            assert_eq!(errors, [""; 0], "{line}");
            match row.ours {
                Ours::Nothing(why) => {
                    assert!(text.contains(&format!(": no counterpart: {why}")), "{line}: {text}");
                }
                Ours::Is(_) => {
                    let (other, _) = of_line(&format!("{program} {companion}"));
                    assert_ne!(text, other, "{line} has no effect");
                }
            }
        }
    }
}

#[test]
fn a_node_becomes_an_agent() {
    let (text, errors) = of_line(
        "ExecStart=/usr/bin/colmet-node -v -s 2.5 --enable-RAPL --enable-perfhw --perfhw-list cpu_cycles page_faults \
         --enable-ipmipower --ipmipower-cmd /bin/power 5 --disable-procstats --cpuset_rootpath /dev/cpuset/oar \
         --zeromq-uri tcp://collector:5556 --zeromq-linger 10",
    );
    assert_eq!(errors, [""; 0]);
    let expected = "# agent: /etc/jobmeter/agent.toml\n\
        # --zeromq-linger: no counterpart: the spool keeps what is not sent at the end\n\
        # The server is assumed on collector. It needs a token of the server:\n\
        # token_file = \"/etc/jobmeter/token\"\n\
        server = \"https://collector:8790\"\nperiod = \"2500ms\"\n\n\
        [log]\nlevel = \"info\"\n\n\
        [sources.exec]\nenabled = true\nperiod = \"2500ms\"\ncommand = [\"/bin/power\", \"5\"]\n\
        pattern = \".*: (\\\\d+) .*\"\nmetric = \"exec_value_watts\"\n\n\
        [sources.perf]\nenabled = true\nperiod = \"2500ms\"\nevents = [\"cpu_cycles\", \"page_faults\"]\nnode = false\n\n\
        [sources.rapl]\nenabled = true\nperiod = \"2500ms\"\n\n\
        [jobs]\nschedulers = [\"oar\", \"local\"]\noar_roots = [\"/dev/cpuset/oar\"]\n\n\
        [sources.cpu]\nenabled = false\n\n[sources.load]\nenabled = false\n\n[sources.memory]\nenabled = false\n\n\
        [sources.uptime]\nenabled = false\n\n[sources.vmstat]\nenabled = false\n";
    assert_eq!(text, expected);
    let (text, errors) = of_line("LIB_RAPL_PATH=/lib/rapl.so colmet-node");
    assert_eq!(errors, [""; 0]);
    assert!(text.contains("LIB_RAPL_PATH: no counterpart") && text.contains("period = \"5000ms\""));
    assert!(text.contains("server = \"http://127.0.0.1:8790\""), "{text}");
}

#[test]
fn a_rust_node_becomes_an_agent() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("metrics");
    std::fs::write(&file, "rss,\ncpu_cycles:2.5:7,\ninstructions").unwrap();
    let line = format!("colmet-node -f {} -v 0 --enable-perfhw true -s 0.1", file.display());
    let (text, errors) = of_line(&line);
    assert_eq!(errors, [""; 0]);
    assert!(text.contains("events = [\"cpu_cycles\", \"instructions\"]"), "{text}");
    assert!(text.contains("# cpu_cycles:2.5:7: no counterpart"), "{text}");
    assert!(text.contains("level = \"error\"") && text.contains("period = \"100ms\""), "{text}");
    let (text, errors) = of_line("colmet-node -f /nonexistent/list --enable-perfhw true -v 4");
    assert!(errors.len() == 1 && errors[0].contains("/nonexistent/list"), "{errors:?}");
    assert!(text.contains("level = \"trace\""), "{text}");
    let (text, errors) = of_line("colmet-node-rust -vvv --cgroup-rootpath /sys/fs/cgroup/cpuset/a");
    assert_eq!(errors, [""; 0]);
    assert!(
        text.contains("oar_roots = [\"/sys/fs/cgroup/cpuset/a\"]")
            && text.contains("[sources.perf]")
    );
}

#[test]
fn a_collector_becomes_a_server() {
    let line = "colmet-collector --enable-stdout-backend --hdf5-filepath /data/colmet --hdf5-complevel 3 \
        --hdf5-complib blosc --elastic-host https://elastic:9200 --elastic-index-prefix site_ \
        -P /etc/colmet/user --no-check-certificates --buffer-size 5000";
    let (text, errors) = of_line_with(line, Some(("dahu-[1-32]", "10.1.0.0/16, 10.2.0.0/16")));
    assert_eq!(errors, [""; 0]);
    let expected = "# server: /etc/jobmeter/server.toml\n\
        # --buffer-size: no counterpart: the listener has no limit of messages for a period\n\
        # --hdf5-complib blosc: no counterpart: files are compressed with zlib, which each HDF5 library reads\n\
        # --http-credentials /etc/colmet/user: only its owner and group may read it: chmod 640\n\n\
        [inputs.colmet]\nlisten = [\"0.0.0.0:5556\"]\nhosts = \"dahu-[1-32]\"\n\
        networks = [\"10.1.0.0/16\", \"10.2.0.0/16\"]\ncluster = \"oar\"\n\n\
        [outputs.stdout]\nkind = \"file\"\npath = \"-\"\nformat = \"colmet\"\ncluster = \"oar\"\n\n\
        [outputs.hdf5]\npath = \"/data/colmet\"\ncomplevel = 3\ncluster = \"oar\"\n\n\
        [outputs.elasticsearch]\naddress = \"https://elastic:9200\"\nlayout = \"colmet\"\ncluster = \"oar\"\n\
        index = \"site_\"\nauth = \"basic\"\nauth_file = \"/etc/colmet/user\"\nverify = false\n";
    assert_eq!(text, expected);
    // Without hosts, the listener is a comment: the server would not start.
    let (text, _) =
        of_line("colmet-collector --zeromq-bind-uri tcp://*:5556 --hdf5-filepath /data/colmet");
    assert!(
        text.contains("# listen = [\"0.0.0.0:5556\"]\n# hosts") && !text.contains("\n[inputs"),
        "{text}"
    );
    let (text, _) = of_line("colmet-collector --zeromq-bind-uri tcp://127.0.0.1:5556");
    assert!(text.contains("\n[inputs.colmet]\nlisten = [\"127.0.0.1:5556\"]"), "{text}");
}

#[test]
fn a_password_of_a_url_becomes_a_file() {
    let (dir, mut draft) = (tempfile::tempdir().unwrap(), Draft::default());
    let line = format!(
        "colmet-collector --elastic-host http://us%40er:p%3Aw+d%2@elastic:9200/ \
         --enable-stdout-backend --hdf5-filepath {}/colmet",
        dir.path().display()
    );
    colmet(&line, None, &mut draft).unwrap();
    let (text, errors) = checked(&draft, dir.path());
    assert_eq!(errors, [""; 0]);
    let server = ConfigFile::Given(dir.path().join("server.toml"));
    let given = ConfigInputs { file: server, environment: &|_| None, flags: Vec::new() };
    let server = config::load_server(&given, &outputs::kinds()).unwrap().config;
    assert_eq!(server.outputs.len(), 3);
    let wrong: Vec<_> = server.outputs.iter().flat_map(outputs::check).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let file = dir.path().canonicalize().unwrap().join("elasticsearch-credentials");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "us@er:p:w+d%2\n");
    assert!(text.contains(&format!("auth_file = \"{}\"", file.display())), "{text}");
    assert!(
        text.contains("address = \"http://elastic:9200\"") && !text.contains("us%40er"),
        "{text}"
    );
}

#[test]
fn wrong_words_of_a_command_line_hide_no_others() {
    let line = "colmet-node --nonsense=1 stray -Z -s fast --enable-RAPL --perfhw-list nothing --enable-perfhw \
                --version --zeromq-uri tcp://c:1 -s";
    let (text, errors) = of_line(line);
    for wrong in ["--nonsense", "stray", "-Z", "fast", "nothing", "version", "--sample-period"] {
        assert!(errors.iter().any(|error| error.contains(wrong)), "{wrong}: {errors:?}");
    }
    assert!(text.contains("[sources.rapl]") && text.contains("https://c:8790"), "{text}");
    let failed = |line: &str| colmet(line, None, &mut Draft::default()).unwrap_err().to_string();
    assert!(failed("colmet-node 'a").contains("has no end"));
    for line in ["", "taktuk colmet", "/bin/cp a b"] {
        assert!(failed(line).contains("colmet-node, colmet-node-rust, colmet-collector"), "{line}");
    }
    assert!(failed(&"x".repeat(70_000)).contains("65536 bytes"));
}

#[test]
fn the_words_of_a_line_are_those_of_a_shell() {
    let words = |line| super::command_line::words(line).unwrap();
    assert_eq!(words(r#" a  'b c'd "e \" \x" f\ g '' "#), ["a", "b cd", r#"e " \x"#, "f g", ""]);
    assert_eq!(words("a \\\n  b"), ["a", "b"]);
}

const LAGENT: &str = "[lmaster]\nhost = master.example\nincoming data port = 7888\n\
    [Graphite]\nhost = carbon\n[logging]\nfilename = /var/log/fructosa.log\nlevel = WARNING\n\
    maxBytes = 100000\nbackupCount = 2\n[sensor:CPUPercent]\ntime_interval = 2\n\
    [sensor:SwapMemory]\ntime_interval = 7.5\n[sensor:VirtualMemory]\ntime_interval: 10\n\
    [sensor:NetIFAddrs]\ntime_interval = 60\n";

#[test]
fn sensors_become_sources_and_graphite_an_output() {
    let (text, errors) =
        of_file("lagent.conf", LAGENT, |file, draft| fructosa::import(file, None, draft));
    assert_eq!(errors, [""; 0]);
    let expected = "# agent: /etc/jobmeter/agent.toml\n\
        # lmaster: incoming data port: no counterpart: agents send nothing to it since FrUCToSA 0.3; \
        jobmeter's server has `listen`\n\
        # The server is assumed on master.example. It needs a token of the server:\n\
        # token_file = \"/etc/jobmeter/token\"\n\
        server = \"https://master.example:8790\"\nperiod = \"2000ms\"\n\n\
        [sources.cpu]\nperiod = \"2000ms\"\ncores = true\n\n\
        [sources.interfaces]\nperiod = \"60000ms\"\ninclude = \"*\"\n\n\
        [sources.memory]\nperiod = \"7500ms\"\n\n[sources.vmstat]\nperiod = \"7500ms\"\n\n\
        [log]\nfile = \"/var/log/jobmeter-agent.log\"\nlevel = \"warn\"\nbytes_max = 100000\nbackups = 2\n\n\
        # server: /etc/jobmeter/server.toml\n\n\
        [outputs.graphite]\naddress = \"carbon:2004\"\ntree = \"fructosa\"\n";
    assert_eq!(text, expected);
    let lmaster = "[lmaster]\nhost = 10.0.0.1\n[logging]\nlevel = 10\nmaxBytes = 0\n";
    let (text, errors) = of_file("lmaster.conf", lmaster, |file, draft| {
        fructosa::import(Path::new("/nonexistent/lagent.conf"), Some(file), draft);
    });
    assert!(errors.len() == 1 && errors[0].starts_with("/nonexistent/lagent.conf: "), "{errors:?}");
    assert!(text.contains("host 10.0.0.1: beyond") && text.contains("level = \"debug\""), "{text}");
    assert!(text.contains("# logging: maxBytes 0: no counterpart"), "{text}");
}

#[test]
fn every_sensor_has_sources_that_an_agent_knows() {
    let known: Vec<&str> = agent::sources().map(|spec| spec.name).collect();
    for group in colmet::fructosa::GROUPS {
        let content = format!("[sensor:{}]\ntime_interval = 20\n", group.name);
        let (text, errors) =
            of_file("lagent.conf", &content, |file, draft| fructosa::import(file, None, draft));
        assert_eq!(errors, [""; 0]);
        let sources = fructosa::sources(group);
        assert!(!sources.is_empty(), "{}", group.name);
        for source in sources {
            assert!(known.contains(&source), "{}: {source}", group.name);
            assert!(
                text.contains(&format!("[sources.{source}]\nperiod = \"20000ms\"\n")),
                "{text}"
            );
        }
    }
}

#[test]
fn wrong_lines_of_fructosa_hide_no_others() {
    let content = "stray = 1\n[sensor:Nothing]\ntime_interval = 1\n[sensor:BootTime]\ntime_interval = often\n\
        [Graphite]\ncarbon receiver pickle port = many\n[logging]\nlevel = LOUD\nbackupCount = -1\nmaxBytes = 5\n\
        [sensor:DiskUsage]\npath = /\ntime_interval = 3\n[other]\nkey = 1\n";
    let (text, errors) =
        of_file("lagent.conf", content, |file, draft| fructosa::import(file, None, draft));
    let mut lines: Vec<&str> = errors
        .iter()
        .filter_map(|error| error.strip_prefix("DIR/lagent.conf:")?.split(':').next())
        .collect();
    lines.sort_unstable_by_key(|line| line.parse::<u32>().unwrap());
    assert_eq!(lines, ["1", "3", "5", "7", "9", "10", "11", "13", "16"], "{errors:?}");
    assert!(text.contains("[sources.filesystem]\nperiod = \"3000ms\"\n"), "{text}");
}

#[test]
fn kwollector_becomes_a_server_with_its_database() {
    let content = "metrics_dir: /etc/kw/metrics.d\ndb_host: \"db 1\"\ndb_password: \"p'w\"\nworker: 4\nlog_level: info\n";
    let (dir, mut draft) = (tempfile::tempdir().unwrap(), Draft::default());
    let file = dir.path().join("kwollector.conf");
    std::fs::write(&file, content).unwrap();
    kwollect::import(&file, &mut draft);
    let (text, errors) = checked(&draft, dir.path());
    assert_eq!(errors, [""; 0]);
    let secret = dir.path().canonicalize().unwrap().join("kwollect-database-password");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "p'w\n");
    let settings = format!(
        "store = \"postgres\"\n\n[postgres]\ndatabase = \"host='db 1' user=kwuser dbname=kwdb\"\n\
         password_file = \"{}\"\n\n[poll]\nmetrics_dir = \"/etc/kw/metrics.d\"\n\n\
         # poller: /etc/jobmeter/poller.toml\n# worker: no counterpart: ",
        secret.display()
    );
    assert!(text.contains(&settings) && text.ends_with("[log]\nlevel = \"info\"\n"), "{text}");
    assert!(!text.contains("p'w"), "{text}");
}

#[test]
fn wrong_keys_of_kwollector_hide_no_others() {
    let content = "db_hosts: x\nlog_level: loud\nworker: many\ndb_name: site\n";
    let (text, errors) = of_file("kwollector.conf", content, kwollect::import);
    for line in 1..=3 {
        let place = format!("DIR/kwollector.conf:{line}: ");
        assert!(errors.iter().any(|error| error.starts_with(&place)), "{place}: {errors:?}");
    }
    assert!(text.contains("dbname=site") && text.contains("/etc/kwollect/metrics.d/"), "{text}");
    let (text, errors) = of_file("kwollector.conf", "a: [\n", kwollect::import);
    assert!(errors.len() == 1 && errors[0].starts_with("DIR/kwollector.conf:"), "{errors:?}");
    assert_eq!(text, "", "no defaults, and no password");
}
