//! ZeroMQ's protocol (ZMTP 3.0 and 3.1) as Colmet uses it: TCP, no security, PUSH connects, PULL listens (decision 0064).
//!
//! Everything is bounded, and nothing is allocated by a length that a peer announces. A wrong peer ends alone.
//!
//! - `error`: why a connection ends. `frame`: the header of a frame. `command`: READY, PING, PONG, ERROR.
//! - `session`: one end of a connection, from received bytes to messages, without input or output.
//! - `stream`: a session on a TCP connection. `address`: `tcp://HOST:PORT`.
//! - `pull`: [`Pull`] receives from many peers. `push`: [`Push`] sends to one. `queue`: [`PushQueue`] sends in a thread.

mod address;
mod command;
mod error;
mod frame;
mod pull;
mod push;
mod queue;
mod session;
mod stream;

pub use address::tcp_address;
pub use error::PeerError;
pub use pull::{Admits, Event, Limits, Pull};
pub use push::Push;
pub use queue::{PushQueue, QueueCounts};
pub use session::{Role, Session};
