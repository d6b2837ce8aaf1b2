//! What a server runs with, beside its configuration: limits that nobody needs to set but tests.

use std::time::Duration;

/// Limits on the times of connections, on requests and their memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Longest time for a TLS handshake.
    pub handshake_time: Duration,
    /// Longest time until a request's header is complete, from the connection's start or the answer
    /// before it: also how long an idle connection is kept.
    pub header_time: Duration,
    /// Longest time from a body's first byte to its last.
    pub body_time: Duration,
    /// Longest time in which a client takes nothing of its answer.
    pub write_time: Duration,
    /// Longest header of a request, in bytes, and largest buffer of a connection.
    pub header_bytes_max: usize,
    /// Longest body of anything but batches.
    pub question_bytes_max: usize,
    /// Memory for bodies of agents' requests of batches that are being read or worked on.
    pub batch_bodies_bytes_max: usize,
    /// The same for batches of users.
    pub user_batch_bodies_bytes_max: usize,
    /// The same for all other bodies: questions, and what changes something.
    pub question_bodies_bytes_max: usize,
    /// Longest body of batches that a user may send.
    pub user_body_bytes_max: usize,
    /// Most frames in a request.
    pub frames_per_request_max: usize,
    /// Memory for batches that are decoded and not stored yet, in bytes of their decompressed payloads.
    pub decoded_bytes_max: usize,
    /// Most requests of one user under way.
    pub requests_per_user_max: usize,
    /// Most questions that wait for their turn.
    pub waiting_questions_max: usize,
    /// How long requests may take to end when the server stops.
    pub stop_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake_time: Duration::from_secs(10),
            header_time: Duration::from_secs(60),
            body_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            header_bytes_max: 64 << 10,
            question_bytes_max: 1 << 20,
            batch_bodies_bytes_max: 128 << 20,
            user_batch_bodies_bytes_max: 16 << 20,
            question_bodies_bytes_max: 16 << 20,
            user_body_bytes_max: 1 << 20,
            frames_per_request_max: 4096,
            decoded_bytes_max: 64 << 20,
            requests_per_user_max: 128,
            waiting_questions_max: 64,
            stop_time: Duration::from_secs(10),
        }
    }
}
