//! Who owns the other end of a connection within this machine: the kernel knows.
//!
//! The list names the owner of two ports, not of a connection. Two sockets of a machine never hold the same ports
//! towards the same address, so the owner is that of our connection as long as our own socket holds them. After a
//! reset it does not, and another user may get the port: the caller of [`Owners::of`] checks, after the answer, that
//! its socket still has a peer address. `docs/decisions/0019-local-callers.md`; `tests/stolen_port.py` is the attack.

use kernel::Root;
pub(crate) use kernel::tcp_owners::Ends;
use kernel::tcp_owners::owners;
use tokio::sync::{mpsc, oneshot};

/// Lookups that wait for one reading of the kernel's list; further ones wait for the next.
const WAITING_MAX: usize = 1024;

struct Question {
    ends: Ends,
    answer: oneshot::Sender<Option<u32>>,
}

/// Asks the kernel. Everyone who asks while the list is being read shares the next reading, so that a
/// thousand connections cost few readings of a list of a thousand lines.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    questions: mpsc::Sender<Question>,
}

impl Owners {
    /// The asking end, and the work that answers it until every asking end is gone.
    pub(crate) fn new(root: Root) -> (Self, impl Future<Output = ()> + Send) {
        let (questions, waiting) = mpsc::channel(WAITING_MAX);
        (Self { questions }, answer(root, waiting))
    }

    /// The number of the user who owns the other end, if the kernel names one.
    pub(crate) async fn of(&self, ends: Ends) -> Option<u32> {
        let (answer, told) = oneshot::channel();
        self.questions.send(Question { ends, answer }).await.ok()?;
        told.await.ok().flatten()
    }
}

async fn answer(root: Root, mut waiting: mpsc::Receiver<Question>) {
    let mut questions = Vec::with_capacity(WAITING_MAX);
    while waiting.recv_many(&mut questions, WAITING_MAX).await > 0 {
        let asked: Vec<Ends> = questions.iter().map(|question| question.ends).collect();
        let root = root.clone();
        let owners = tokio::task::spawn_blocking(move || owners(&root, &asked)).await;
        let owners = owners.unwrap_or_default();
        // Without an answer the asking end sees the channel closed: nobody.
        for (question, owner) in questions.drain(..).zip(owners) {
            // A connection that ended meanwhile wants no answer.
            question.answer.send(owner).ok();
        }
    }
}
