//! Workers: processes that each answer one statement and end.
//!
//! One or two wait for the next statements, so that nobody waits for a process to start. None starts before the
//! first statement.

use super::child::{self, NewEncoder};
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Workers that wait for statements.
const IDLE_MAX: usize = 2;
/// What is read of a dead worker's last words.
const WORDS_MAX: u64 = 4096;

/// How workers are started.
#[derive(Clone)]
pub enum Launch {
    /// As processes of a program: these arguments, and then the number of threads. Its standard input is the socket.
    Program(PathBuf, Vec<OsString>),
    /// As threads of this process, which nothing confines: for tests.
    Threads(NewEncoder),
}

impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(path, arguments) => write!(f, "Program({path:?}, {arguments:?})"),
            Self::Threads(_) => f.write_str("Threads"),
        }
    }
}

/// A worker that has not ended.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) socket: UnixStream,
    body: Body,
}

#[derive(Debug)]
enum Body {
    Process(Child),
    Thread(JoinHandle<()>),
}

/// How a worker ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) signal: Option<i32>,
    /// What it wrote to standard error.
    pub(crate) words: String,
}

impl Worker {
    fn start(launch: &Launch, threads: usize) -> io::Result<Self> {
        let (socket, theirs) = UnixStream::pair()?;
        let body = match launch {
            Launch::Program(path, arguments) => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "starts the workers of decision 0020"
                )]
                let mut command = Command::new(path);
                command.args(arguments).arg(threads.to_string());
                // Without the environment of the server, which may hold tokens.
                command.env_clear().env("MALLOC_ARENA_MAX", "2").current_dir("/");
                command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
                Body::Process(command.spawn()?)
            }
            Launch::Threads(encoder) => {
                let encoder = *encoder;
                // What goes wrong in it, the server sees at its end of the socket.
                let work = move || {
                    child::run(theirs, encoder, threads, |_| Ok(())).ok();
                };
                Body::Thread(std::thread::Builder::new().name("sql".to_owned()).spawn(work)?)
            }
        };
        Ok(Self { socket, body })
    }

    fn is_alive(&mut self) -> bool {
        match &mut self.body {
            Body::Process(child) => matches!(child.try_wait(), Ok(None)),
            Body::Thread(thread) => !thread.is_finished(),
        }
    }

    /// Waits until it is gone; ends it before, unless it ends by itself. Blocks for as long as the kernel needs.
    pub(crate) fn end(self, by_itself: bool) -> Ending {
        self.socket.shutdown(Shutdown::Both).ok();
        let mut child = match self.body {
            Body::Process(child) => child,
            Body::Thread(thread) => {
                thread.join().ok();
                return Ending::default();
            }
        };
        if !by_itself {
            child.kill().ok();
        }
        let signal = child.wait().ok().and_then(|status| status.signal());
        let mut words = Vec::new();
        if let Some(errors) = child.stderr.take() {
            errors.take(WORDS_MAX).read_to_end(&mut words).ok();
        }
        Ending { signal, words: String::from_utf8_lossy(&words).into_owned() }
    }
}

/// The workers of an engine.
#[derive(Debug)]
pub(crate) struct Pool {
    launch: Launch,
    threads: usize,
    idle: Mutex<Vec<Worker>>,
}

impl Pool {
    pub(crate) fn new(launch: Launch, threads: usize) -> Self {
        Self { launch, threads, idle: Mutex::default() }
    }

    /// A worker that waits for a statement. May block while one starts.
    pub(crate) fn take(&self) -> io::Result<Worker> {
        loop {
            let waiting = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(mut worker) = waiting else {
                return Worker::start(&self.launch, self.threads);
            };
            if worker.is_alive() {
                return Ok(worker);
            }
            worker.end(true);
        }
    }

    /// Starts workers for the next statements. May block while they start.
    pub(crate) fn refill(self: &Arc<Self>) {
        let missing = || {
            let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.len() < IDLE_MAX
        };
        while missing() {
            // The next statement reports what hinders it.
            let Ok(worker) = Worker::start(&self.launch, self.threads) else { return };
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(worker);
        }
    }
}

/// Workers that wait end with their sockets; these threads and processes are waited for.
impl Drop for Pool {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner);
        idle.drain(..).for_each(|worker| drop(worker.end(false)));
    }
}
