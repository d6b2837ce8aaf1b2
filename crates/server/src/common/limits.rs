//! Limits of the server beyond its configuration, set only by tests.

use std::time::Duration;

/// Time limits of connections, and limits on requests and their memory.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time limit of a TLS handshake.
    pub handshake_time: Duration,
    /// Time limit for a complete request header, from the start of the connection or the previous response.
    /// Idle connections are closed after the same time.
    pub header_time: Duration,
    /// Time limit from the first byte of a body to its last.
    pub body_time: Duration,
    /// Longest time in which a client reads nothing of its response.
    pub write_time: Duration,
    /// Maximum size of a request header and of a connection's buffer, in bytes.
    pub header_bytes_max: usize,
    /// Maximum size of any body except batches, in bytes.
    pub question_bytes_max: usize,
    /// Memory for batch bodies of agents that are being received or processed, in bytes.
    pub batch_bodies_bytes_max: usize,
    /// Memory for batch bodies of users, in bytes.
    pub user_batch_bodies_bytes_max: usize,
    /// Memory for all other bodies, in bytes: queries and changes.
    pub question_bodies_bytes_max: usize,
    /// Maximum size of a user's body of batches, in bytes.
    pub user_body_bytes_max: usize,
    /// Maximum size of a body of rows that a token or an administrator inserts, in bytes. That of a user has the limit
    /// of their batches.
    pub push_body_bytes_max: usize,
    /// Maximum number of frames in a request.
    pub frames_per_request_max: usize,
    /// Memory for decoded batches that are not stored yet, in bytes of their decompressed payloads.
    pub decoded_bytes_max: usize,
    /// Maximum number of concurrent requests per user.
    pub requests_per_user_max: usize,
    /// Maximum size of a user's answers that clients have not received yet, in bytes. One answer may be larger.
    pub unsent_bytes_per_user_max: usize,
    /// Maximum number of queued queries.
    pub waiting_questions_max: usize,
    /// Time for which a new address of an agent identifies no node: other agents may share it.
    pub address_new_time: Duration,
    /// Time limit for requests in progress when the server stops.
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
            push_body_bytes_max: 8 << 20,
            frames_per_request_max: 4096,
            decoded_bytes_max: 64 << 20,
            requests_per_user_max: 128,
            unsent_bytes_per_user_max: 64 << 20,
            waiting_questions_max: 64,
            address_new_time: Duration::from_secs(120),
            stop_time: Duration::from_secs(10),
        }
    }
}
