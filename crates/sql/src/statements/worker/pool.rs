//! Workers: each process runs one statement and exits.
//!
//! Up to two idle workers wait for the next statements, so that no statement waits for a process to start. The
//! first statement starts the first worker.

use super::child::{self, NewEncoder};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Maximum number of idle workers.
const IDLE_MAX: usize = 2;
/// Maximum number of bytes read from the standard error of a crashed worker.
const WORDS_MAX: u64 = 4096;

/// Method for starting workers.
#[derive(Clone)]
pub enum Launch {
    /// Processes of a program. The number of threads follows these arguments. Standard input is the socket.
    Program(PathBuf, Vec<OsString>),
    /// Threads of this process without confinement, for tests.
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

/// A worker that has not exited.
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

/// Exit of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ending {
    pub(crate) signal: Option<i32>,
    /// Text that the worker wrote to standard error.
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
                // The worker does not inherit the server's environment, which may contain tokens.
                command.env_clear().env("MALLOC_ARENA_MAX", "2").current_dir("/");
                command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
                Body::Process(command.spawn()?)
            }
            Launch::Threads(encoder) => {
                let encoder = *encoder;
                // The server sees errors of the worker at its end of the socket.
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

    /// Waits until the worker has exited. Kills it first, unless it exits by itself. Blocks as long as the kernel
    /// needs.
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

    /// Takes an idle worker, or starts one. May block during the start.
    pub(crate) fn take(&self) -> io::Result<Worker> {
        loop {
            let waiting = self.idle.lock().pop();
            let Some(mut worker) = waiting else {
                return Worker::start(&self.launch, self.threads);
            };
            if worker.is_alive() {
                return Ok(worker);
            }
            worker.end(true);
        }
    }

    /// Starts idle workers for the next statements. May block during the start.
    pub(crate) fn refill(self: &Arc<Self>) {
        let missing = || {
            let idle = self.idle.lock();
            idle.len() < IDLE_MAX
        };
        while missing() {
            // The next statement reports the cause of a failed start.
            let Ok(worker) = Worker::start(&self.launch, self.threads) else { return };
            self.idle.lock().push(worker);
        }
    }
}

/// Ends the idle workers by closing their sockets, and waits for their threads and processes.
impl Drop for Pool {
    fn drop(&mut self) {
        let idle = self.idle.get_mut();
        idle.drain(..).for_each(|worker| drop(worker.end(false)));
    }
}
