//! `jobmeter top` in a terminal of tmux: a job comes into the screen, keys order and filter, and whatever ends
//! it, the terminal is as it was.

use crate::programs::{Server, output, program, root, until};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// A tmux server of this test's own, with one window of a shell.
struct Window {
    dir: tempfile::TempDir,
}

impl Window {
    fn open() -> Self {
        let window = Self { dir: tempfile::tempdir().unwrap() };
        let shell = ["env", "PS1=ready> ", "HISTFILE=/dev/null", "bash", "--norc", "--noprofile"];
        window.tmux(&[&["new-session", "-d", "-x", "80", "-y", "24"][..], &shell].concat());
        window.wait("ready>");
        window
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.env_remove("TMUX").arg("-S").arg(self.dir.path().join("socket"));
        let (code, out, errors) = output(tmux.args(["-f", "/dev/null"]).args(words));
        assert_eq!(code, 0, "{words:?}: {errors}");
        out
    }

    /// Presses keys by their names.
    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"][..], keys].concat());
    }

    fn line(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
        self.press(&["Enter"]);
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen has this, and gives it.
    fn wait(&self, text: &str) -> String {
        self.wait_for(text, |screen| screen.contains(text))
    }

    fn wait_for(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let screen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(what, SOON, || {
                last = self.screen();
                is(&last).then(|| last.clone())
            })
        }));
        screen.unwrap_or_else(|_| panic!("{what} is not to be seen:\n{last}"))
    }

    /// The terminal's settings, which a program without care leaves raw.
    fn settings(&self, file: &str) -> String {
        let path = self.dir.path().join(file);
        self.line(&format!("stty -a > {}", path.display()));
        until("stty", SOON, || {
            std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        })
    }

    fn top(&self) {
        self.line(&format!("clear; {} top --period 500ms", program("jobmeter").display()));
        self.wait("q quit");
    }

    /// `top` has ended with this code, and left nothing on the screen.
    fn ended(&self, code: &str) {
        // What is typed before is still its own.
        self.wait_for("the shell", |screen| !screen.contains("q quit"));
        self.press(&["C-l"]);
        self.line("echo code=$?.");
        let screen = self.wait(&format!("code={code}."));
        assert!(!screen.contains("q quit"), "{screen}");
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let socket = self.dir.path().join("socket");
        Command::new("tmux").arg("-S").arg(socket).arg("kill-server").output().ok();
    }
}

/// A job that keeps a processor busy until it is told to end: what `top` calls it.
fn load(window: &Window, server: &str) -> String {
    let stop = window.dir.path().join("stop");
    let work = format!("until [ -e {} ]; do :; done", stop.display());
    let jobmeter = program("jobmeter");
    let run = format!("{} run --server {server} -- bash -c '{work}'", jobmeter.display());
    window.line(&format!("{run} 2>/dev/null >&2 &"));
    // Jobs of other tests run on this machine, too: its own cgroup says which one it is.
    until("the job's cgroup", SOON, || {
        let pattern = format!("^bash -c until .*{}", stop.display());
        let (_, pids, _) = output(Command::new("pgrep").args(["-f", &pattern]));
        let pid = pids.lines().next()?;
        let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let (_, rest) = cgroups.split_once("/jobmeter/job_")?;
        Some(format!("local:{}", rest.lines().next()?))
    })
}

/// The line of a job or a process, and its processor time in percent, where that is known.
fn row(screen: &str, begins: &str, has: &str) -> Option<Option<f64>> {
    // Below the head and the headings.
    let mut lines = screen.lines().skip(4);
    let line = lines.find(|line| line.starts_with(begins) && line.contains(has))?;
    // Behind 21 columns of the name and 9 of the user, with a blank after each.
    Some(line.get(32..40)?.trim().parse().ok())
}

fn is_busy(row: Option<Option<f64>>) -> bool {
    // A processor that others use, too.
    row.flatten().is_some_and(|percent| (2.0..=110.0).contains(&percent))
}

#[test]
fn top_shows_a_job_while_it_runs_and_gives_the_terminal_back() {
    if !root("top_shows_a_job_while_it_runs_and_gives_the_terminal_back") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let window = Window::open();
    let before = window.settings("before");
    let job = load(&window, &server.url);
    let name = format!("{job} ");
    let is_there = |screen: &str| is_busy(row(screen, &name, ""));
    window.top();
    let screen = window.wait_for("the job", is_there);
    assert!(screen.contains("CPU %v"), "{screen}");
    let usage = screen.lines().nth(1).unwrap();
    assert!(usage.starts_with("cpu ") && usage.contains(" cores   memory "), "{screen}");

    // By memory, then the other way round.
    window.press(&["m"]);
    window.wait("MEMORYv");
    window.press(&["m"]);
    window.wait("MEMORY^");
    // What the filter keeps out is not there, and comes back; what it lets through is alone.
    window.press(&["/", "n", "o", "s", "u", "c", "h"]);
    window.wait_for("an empty list", |screen| {
        screen.contains("filter: nosuch_") && !screen.contains("local:")
    });
    window.press(&["Escape", "/"]);
    window.tmux(&["send-keys", "-l", &job]);
    window.press(&["Enter"]);
    window.wait(&format!("filter: {job} ("));
    // The one that is first is chosen. Its processes, those of the node, and back.
    window.press(&["n", "Enter"]);
    let screen = window.wait(&format!("processes of {job}"));
    assert!(!screen.contains("tmux"), "{screen}");
    window.press(&["Escape", "c"]);
    window.wait_for("its process", |screen| is_busy(row(screen, "", " bash ")));
    window.press(&["p"]);
    window.press(&["/", "t", "m", "u", "x", "Enter"]);
    window.wait_for("all processes", |screen| row(screen, "", " tmux").is_some());
    window.press(&["Escape", "j"]);
    // Another size.
    window.tmux(&["resize-window", "-x", "60", "-y", "12"]);
    window.wait_for("twelve lines", |screen| {
        screen.lines().nth(11).is_some_and(|line| line.starts_with("q quit"))
    });
    window.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    window.wait_for("the job again", is_there);
    std::fs::write(window.dir.path().join("stop"), "").unwrap();
    window.wait_for("the job's end", |screen| row(screen, &name, "").is_none());
    window.press(&["q"]);
    window.wait("ready>");
    window.ended("0");
    window.line("wait");
    assert_eq!(window.settings("after"), before);
}

#[test]
fn top_gives_the_terminal_back_when_a_signal_ends_it() {
    let window = Window::open();
    let before = window.settings("before");
    for (signal, number) in [("TERM", 0), ("HUP", 1), ("INT", 2)] {
        window.top();
        let shell = window.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let (_, children, _) = output(Command::new("pgrep").args(["-P", shell.trim()]));
        let pid = children.split_whitespace().next().unwrap();
        let (code, _, errors) = output(Command::new("kill").args(["-s", signal, pid]));
        assert_eq!(code, 0, "{errors}");
        window.wait_for("the shell", |screen| !screen.contains("q quit"));
        assert_eq!(window.settings(&format!("after-{number}")), before, "SIG{signal}");
    }
    window.top();
    window.press(&["C-c"]);
    window.ended("0");
}

#[test]
fn top_needs_a_terminal() {
    let (code, out, errors) = output(Command::new(program("jobmeter")).arg("top"));
    assert_eq!((code, &*out), (2, ""), "{errors}");
    assert!(errors.contains("needs a terminal"), "{errors}");
}
