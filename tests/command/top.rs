//! `jobmeter top` in a tmux terminal: a job appears, keys sort and filter, and every exit restores the
//! terminal.

use crate::common::programs::{Server, output, program, root, until};
use crate::common::up::{Up, alone};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// A tmux server of this test, with one window that runs a shell.
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

    /// Presses keys, given by their tmux names.
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

    /// Waits until the screen contains the text, and returns the screen.
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

    /// Returns the terminal's settings. A program that exits without care leaves the terminal raw.
    fn settings(&self, file: &str) -> String {
        let path = self.dir.path().join(file);
        self.line(&format!("stty -a > {}", path.display()));
        until("stty", SOON, || {
            std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))
        })
    }

    fn top(&self) {
        self.top_with("");
    }

    fn top_with(&self, flags: &str) {
        self.line(&format!("clear; {} top --period 500ms {flags}", program("jobmeter").display()));
        self.wait("q quit");
    }

    /// Checks that `top` exited with this code and left nothing on the screen.
    fn ended(&self, code: &str) {
        // `top` still receives keys that are typed before it exits.
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

/// Starts a job that keeps a processor busy until a stop file exists. Returns the job's key as `top` shows
/// it.
fn load(window: &Window, flags: &str) -> String {
    let stop = window.dir.path().join("stop");
    let work = format!("until [ -e {} ]; do :; done", stop.display());
    let jobmeter = program("jobmeter");
    let run = format!("{} run {flags} -- bash -c '{work}'", jobmeter.display());
    window.line(&format!("{run} 2>/dev/null >&2 &"));
    // Jobs of other tests run on this machine too, so the job's cgroup identifies it.
    until("the job's cgroup", SOON, || {
        let pattern = format!("^bash -c until .*{}", stop.display());
        let (_, pids, _) = output(Command::new("pgrep").args(["-f", &pattern]));
        let pid = pids.lines().next()?;
        let cgroups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        // The cgroup is `run_N` if no agent of this name reports the job.
        let of_job = cgroups.split_once("/jobmeter/job_");
        let (_, rest) = of_job.or_else(|| cgroups.split_once("/jobmeter/run_"))?;
        let (number, _server) = rest.lines().next()?.split_once('@')?;
        Some(format!("local:{number}"))
    })
}

/// Returns the row of a job or a process: `Some(percent)` of processor time, or `Some(None)` if that is
/// unknown.
fn row(screen: &str, begins: &str, has: &str) -> Option<Option<f64>> {
    // Skip the head and the column headings.
    let mut lines = screen.lines().skip(4);
    let line = lines.find(|line| line.starts_with(begins) && line.contains(has))?;
    // The name has 21 columns and the user 9, each followed by a blank.
    Some(line.get(32..40)?.trim().parse().ok())
}

fn is_busy(row: Option<Option<f64>>) -> bool {
    // Other processes use the processor too.
    row.flatten().is_some_and(|percent| (2.0..=110.0).contains(&percent))
}

#[test]
fn top_shows_a_job_while_it_runs_and_gives_the_terminal_back() {
    if !root("top_shows_a_job_while_it_runs_and_gives_the_terminal_back") {
        return;
    }
    let _alone = alone();
    let data = tempfile::tempdir().unwrap();
    let server = Server::start(data.path(), &[]);
    let window = Window::open();
    let before = window.settings("before");
    let job = load(&window, &format!("--server {}", server.url));
    let name = format!("{job} ");
    let is_there = |screen: &str| is_busy(row(screen, &name, ""));
    window.top();
    let screen = window.wait_for("the job", is_there);
    assert!(screen.contains("CPU %v") && screen.contains(" TASKS"), "{screen}");
    let usage = screen.lines().nth(1).unwrap();
    assert!(usage.starts_with("cpu ") && usage.contains(" cores   memory "), "{screen}");

    // Sort by memory, then in reverse order.
    window.press(&["m"]);
    window.wait("MEMORYv");
    window.press(&["m"]);
    window.wait("MEMORY^");
    // The filter hides rows that do not match. Without the filter they return; with the job's key only its
    // row remains.
    window.press(&["/", "n", "o", "s", "u", "c", "h"]);
    window.wait_for("an empty list", |screen| {
        screen.contains("filter: nosuch_") && !screen.contains("local:")
    });
    window.press(&["Escape", "/"]);
    window.tmux(&["send-keys", "-l", &job]);
    window.press(&["Enter"]);
    window.wait(&format!("filter: {job} ("));
    // The first row is selected. Open its processes, then those of the node, and go back.
    window.press(&["n", "Enter"]);
    let screen = window.wait(&format!("processes of {job}"));
    assert!(!screen.contains("tmux"), "{screen}");
    window.press(&["Escape", "c"]);
    window.wait_for("its process", |screen| is_busy(row(screen, "", " bash ")));
    window.press(&["p"]);
    window.press(&["/", "t", "m", "u", "x", "Enter"]);
    window.wait_for("all processes", |screen| row(screen, "", " tmux").is_some());
    window.press(&["Escape", "j"]);
    // Resize the terminal.
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
fn top_shows_jobs_and_nodes_of_a_server() {
    if !root("top_shows_jobs_and_nodes_of_a_server") {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let mut up = Up::start(data.path(), &["--period", "500ms", "--device", "node-7"]);
    let window = Window::open();
    let before = window.settings("before");
    let job = load(&window, &format!("--server {} --device node-7 --name fit", up.url));
    let name = format!("{job} ");
    window.top_with(&format!("--server {}", up.url));
    // The node's processor usage is known after its second reading.
    let is_reported = |screen: &str| {
        is_busy(row(screen, &name, "fit"))
            && screen.lines().nth(1).is_some_and(|line| line.starts_with("cpu "))
    };
    let screen = window.wait_for("the job and the node's use", is_reported);
    let head = screen.lines().next().unwrap();
    assert!(head.starts_with(&up.url) && head.contains("1 job   1 of 1 node alive"), "{screen}");
    let usage = screen.lines().nth(1).unwrap();
    assert!(usage.starts_with("cpu ") && usage.contains(" cores   memory "), "{screen}");

    // Open the list of nodes, which has one node; then its jobs; then the nodes of the first job.
    window.press(&["d"]);
    let is_node = |screen: &str| row(screen, "node-7 ", " alive ").flatten().is_some();
    let screen = window.wait_for("the node", is_node);
    assert!(screen.contains("STATE") && screen.contains("JOBS"), "{screen}");
    let usual = row(&screen, "node-7 ", "").flatten().unwrap();
    assert!(usual > 2.0 && usual < 100.0 * 1024.0, "{screen}");
    window.press(&["Enter"]);
    window.wait("jobs on node-7");
    window.wait_for("its job", |screen| is_busy(row(screen, &name, "fit")));
    window.press(&["Enter"]);
    window.wait(&format!("nodes of {job}"));
    window.wait_for("its node", |screen| is_busy(row(screen, "node-7 ", " alive ")));
    window.press(&["Escape"]);
    // Filter and sort.
    window.press(&["/", "n", "o", "n", "e", "Enter"]);
    window.wait_for("an empty list", |screen| row(screen, &name, "").is_none());
    window.press(&["Escape", "m"]);
    window.wait_for("the job", |screen| row(screen, &name, "").is_some());
    window.wait("MEMORYv");
    std::fs::write(window.dir.path().join("stop"), "").unwrap();
    window.wait_for("the job's end", |screen| row(screen, &name, "").is_none());
    window.wait("no job runs");
    // `top` shows that the server is unreachable, and keeps the last data.
    window.press(&["d"]);
    window.wait_for("the node", is_node);
    assert_eq!(up.running.end(), 0);
    let screen = window.wait("no response: no server responds at http://");
    assert!(row(&screen, "node-7 ", " alive ").is_some(), "{screen}");
    window.press(&["q"]);
    window.ended("0");
    assert_eq!(window.settings("after"), before);
}

#[test]
fn top_of_a_server_that_is_not_there_takes_no_terminal() {
    let window = Window::open();
    window.line(&format!(
        "clear; {} top --server http://127.0.0.1:1; echo code=$?.",
        program("jobmeter").display()
    ));
    let screen = window.wait("code=2.");
    assert!(screen.contains("no server responds at http://127.0.0.1:1"), "{screen}");
}

#[test]
fn top_shows_its_keys() {
    let (code, out, errors) = output(Command::new(program("jobmeter")).args(["top", "--help"]));
    assert_eq!(code, 0, "{errors}");
    for words in
        ["Keys: ", "c m r w ", "t n u ", "Enter ", "j shows", "p all", "d all", "/ filters"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
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
