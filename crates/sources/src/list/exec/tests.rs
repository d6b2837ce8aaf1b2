//! Tests of the source `exec`: real programs, run by root or by an ordinary user, depending on the test's user.

#![expect(clippy::disallowed_methods, reason = "real programs in real time")]

use super::*;
use cgroups::Jobs;
use model::DeviceId;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

/// A user that this process can switch to: `nobody` if it is root, else its own user.
fn user() -> String {
    let own = rustix::process::geteuid();
    if own.is_root() { "nobody".to_owned() } else { own.as_raw().to_string() }
}

fn opened(settings: &[(&str, &str)], root: &Root) -> Result<Box<dyn Source>, SourceError> {
    let options = Options::of(&SPEC, settings.iter().copied()).unwrap();
    (SPEC.open)(&Open { root, options: &options, boot: Timestamp(0) })
}

fn sh(script: &str) -> String {
    format!("/bin/sh\0-c\0{script}\0")
}

struct Run {
    source: Box<dyn Source>,
    root: Root,
    sink: Sink,
    at: i64,
}

impl Run {
    fn of(script: &str, settings: &[(&str, &str)]) -> Self {
        let (command, user, root) = (sh(script), user(), Root::live().unwrap());
        let all = [&[("command", &*command), ("user", &*user)], settings].concat();
        let source = opened(&all, &root).unwrap();
        Self { source, root, sink: Sink::of_source(&SPEC, DeviceId::new("n1").unwrap()), at: 0 }
    }

    fn step(&mut self, is_tick: bool) -> Result<(), SourceError> {
        self.at += 1;
        let (now, jobs) = (Timestamp::from_seconds(self.at), Jobs::default());
        let cx = Context {
            root: &self.root,
            now,
            boot: Timestamp(0),
            jobs: &jobs,
            budget_us: 1_000_000,
            is_between: false,
        };
        self.sink.begin(now);
        let step = if is_tick { Source::collect } else { Source::drain };
        step(&mut *self.source, &cx, &mut self.sink)
    }

    fn tick(&mut self) -> Result<(), SourceError> {
        self.step(true)
    }

    /// The next samples, after the program has ended.
    fn drained(&mut self) -> Vec<(String, f64)> {
        let begun = Instant::now();
        while let Some(every) = self.source.drain_every() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the program does not end");
            std::thread::sleep(every);
            self.step(false).unwrap();
        }
        self.samples()
    }

    fn samples(&mut self) -> Vec<(String, f64)> {
        let line = |(entry, _, value): (&model::SeriesEntry, Timestamp, f64)| {
            (format!("{}{}", entry.metric.name, entry.labels), value)
        };
        let lines = self.sink.samples().map(line).collect();
        self.sink.sealed();
        lines
    }
}

#[test]
fn the_first_reading_waits_for_the_program_and_later_ones_do_not() {
    let settings = [("pattern", r".*: (\d+) .*"), ("metric", "exec_value_watts")];
    let mut run =
        Run::of("echo 'System Power Average : 245 Watts, at 3: 00'; sleep 0.1", &settings);
    let sample = [("exec_value_watts{\"name\": \"command\"}".to_owned(), 245.0)];
    run.tick().unwrap();
    assert_eq!(run.samples(), sample);
    assert_eq!(run.source.drain_every(), None);
    let begun = Instant::now();
    run.tick().unwrap();
    assert!(begun.elapsed() < Duration::from_millis(90), "the tick waited for the program");
    assert_eq!(run.samples(), []);
    assert_eq!(run.drained(), sample);
}

#[test]
fn a_group_for_the_name_gives_many_numbers() {
    let settings =
        [("pattern", r"(?m)^(?P<name>\w+)=(-?[\d.]+|n/a)$"), ("metric", "exec_value_celsius")];
    let mut run = Run::of("printf 'inlet=21.5\\nnone=n/a\\noutlet=-3\\ninlet=9\\n'", &settings);
    run.tick().unwrap();
    let named = |name: &str| format!("exec_value_celsius{{\"name\": \"{name}\"}}");
    assert_eq!(run.samples(), [(named("inlet"), 21.5), (named("outlet"), -3.0)]);
    assert!(matches!(run.sink.parts(), [("numbers", PartState::Not(_))]));
    let mut run = Run::of("seq -f 'n%.0f=1' 1000", &settings);
    run.tick().unwrap();
    assert_eq!(run.samples().len(), NUMBERS_MAX);
}

#[test]
fn a_counter_starts_at_its_first_reading_and_restarts_when_it_falls() {
    let settings = [("metric", "exec_value_joules_total")];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("n");
    let mut run = Run::of(&format!("cat {}", file.display()), &settings);
    // If the test runs as root, the program runs as another user.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let mut counts = |number: &str| {
        std::fs::write(&file, number).unwrap();
        run.tick().unwrap();
        run.drained();
        run.tick().unwrap();
        let samples = run.drained();
        samples.last().map(|(_, value)| *value)
    };
    assert_eq!(counts("1000.5"), Some(0.0));
    assert_eq!(counts("1010.5"), Some(10.0));
    assert_eq!(counts("7"), Some(0.0));
    assert_eq!(counts("8e0"), Some(1.0));
}

#[test]
fn a_failed_run_is_reported_at_the_next_tick_without_a_number() {
    for (script, why) in [
        ("echo 7; echo no sensor >&2; exit 3", "broken: /bin/sh: exit code 3: no sensor"),
        ("echo 7; kill -11 $$", "broken: /bin/sh: ended by signal 11"),
        ("echo 7; sleep 100", "broken: /bin/sh: timed out: it ran longer than 200ms"),
        ("yes 7", "broken: /bin/sh: wrote more than 65536 bytes"),
        ("echo none", "broken: /bin/sh: no number in its output matches `pattern`"),
        (":", "broken: /bin/sh: no number in its output matches `pattern`"),
    ] {
        let time_max = if script.contains("sleep") { "200ms" } else { "10s" };
        let mut run = Run::of(script, &[("time_max", time_max)]);
        for reading in ["first", "later"] {
            let result = match (reading, run.tick()) {
                ("first", result) => result,
                // The tick that starts the next run reports the error of the previous one.
                (_, result) => {
                    run.drained();
                    result.and_then(|()| run.tick())
                }
            };
            assert_eq!(result.unwrap_err().to_string(), why, "{script}: {reading}");
            assert_eq!(run.samples(), [], "{script}");
        }
    }
}

#[test]
fn absent_denied_and_broken_are_reported_before_anything_runs() {
    let root = Root::live().unwrap();
    let why = |settings: &[(&str, &str)]| opened(settings, &root).err().unwrap().to_string();
    assert_eq!(why(&[]), "absent: `command` in [sources.exec] names no program");
    let command = ("command", "/bin/true\0");
    assert!(why(&[command, ("user", "root")]).starts_with("denied: `user` in [sources.exec] is"));
    assert!(why(&[command, ("user", "0")]).contains("programs do not run as root"));
    assert!(why(&[command, ("user", "no such")]).contains("which is not in /etc/passwd"));
    let user = user();
    let begin = |command: &str| {
        let mut run = Run::of("", &[("command", command), ("user", &user)]);
        run.tick().unwrap_err().to_string()
    };
    assert_eq!(begin("/no/such/tool\0"), "absent: /no/such/tool: not there");
    assert!(begin("/etc/passwd\0").starts_with("denied: /etc/passwd cannot be run as user "));
}

#[test]
fn malformed_options_are_rejected_with_the_closest_name() {
    for (option, value, expected) in [
        ("pattern", "(", "`(`: not a regular expression: "),
        ("metric", "exec_value_wats", "; did you mean `exec_value_watts`?"),
        ("name", "", "``: needs 1 to 64 characters without control characters"),
        ("name", "a\tb", "needs 1 to 64 characters without control characters"),
        ("command", "sh\0", "the absolute path of a program, then each WORD"),
    ] {
        let error = Options::of(&SPEC, [(option, value)]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn options_are_checked_against_the_machine_if_a_program_is_named() {
    let (root, user) = (Root::live().unwrap(), user());
    let wrong = |settings: &[(&str, &str)]| {
        let options = Options::of(&SPEC, settings.iter().copied()).unwrap();
        check(&root, &options)
    };
    let command = ("command", "/bin/true\0");
    assert_eq!(wrong(&[command, ("user", &user)]), []);
    assert_eq!(wrong(&[("user", "nobdy")]), [], "no program is configured");
    let found = wrong(&[command, ("user", "nobdy")]);
    let expected =
        "`user` in [sources.exec] is `nobdy`, which is not in /etc/passwd; did you mean `nobody`?";
    assert_eq!(found, [("user", expected.to_owned())]);
    assert!(
        matches!(&wrong(&[command, ("user", "root")])[..], [("user", why)] if why.contains("grant"))
    );
}

#[test]
fn a_program_that_others_can_change_is_not_run() {
    let dir = tempfile::tempdir().unwrap();
    let (bin, tool) = (dir.path().join("bin"), dir.path().join("bin/tool"));
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(&tool, "#!/bin/sh\necho 7\n").unwrap();
    [dir.path(), &bin, &tool].iter().for_each(|path| mode(path, 0o755));
    let command = format!("{}\0", tool.display());
    let user = user();
    let mut run = Run::of("", &[("command", &command), ("user", &user)]);
    run.tick().unwrap();
    assert_eq!(run.samples().len(), 1);
    let options = Options::of(&SPEC, [("command", &*command), ("user", &user)]).unwrap();
    for (path, open) in [(&tool, 0o775), (&tool, 0o757), (&bin, 0o775)] {
        mode(path, open);
        let why = run.tick().unwrap_err().to_string();
        let begin = format!("denied: {} is not run: users other than root", tool.display());
        let end = format!("(mode {open:o}): chmod go-w {}", path.display());
        assert!(why.starts_with(&begin) && why.ends_with(&end), "{why}");
        assert!(
            matches!(&check(&run.root, &options)[..], [("command", why)] if why.ends_with(&end))
        );
        assert_eq!(run.samples(), []);
        mode(path, 0o755);
    }
    assert_eq!(check(&run.root, &options), []);
    let own = rustix::process::geteuid();
    if own.is_root() {
        // The configured user may own the program; another user may not.
        std::os::unix::fs::chown(&tool, Some(65_534), None).unwrap();
        run.tick().unwrap();
        run.drained();
        std::os::unix::fs::chown(&tool, Some(1), None).unwrap();
        assert!(run.tick().unwrap_err().to_string().contains("belongs to user 1, not to root"));
    }
}

#[test]
fn a_configuration_that_others_can_write_runs_nothing() {
    let root = Root::live().unwrap();
    let command = sh("echo 7");
    let options = Options::of(&SPEC, [("command", &*command)]).unwrap();
    let options = options.distrusted(Some("/f belongs to user 7: chown root /f".to_owned()));
    let error = (SPEC.open)(&Open { root: &root, options: &options, boot: Timestamp(0) }).err();
    let error = error.unwrap().to_string();
    assert!(error.starts_with("denied: ") && error.ends_with("chown root /f"), "{error}");
}

#[test]
fn a_recorded_machine_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(".jobmeter")).unwrap();
    std::fs::write(dir.path().join(REPLY), "power: 12.5 W\n").unwrap();
    let root = Root::recorded(dir.path()).unwrap();
    let source = opened(&[("command", "/no/such/tool\0")], &root).unwrap();
    let sink = Sink::of_source(&SPEC, DeviceId::new("n1").unwrap());
    let mut run = Run { source, root, sink, at: 0 };
    run.tick().unwrap();
    assert_eq!(run.samples(), [("exec_value{\"name\": \"command\"}".to_owned(), 12.5)]);
}
