//! The server's side of PostgreSQL's protocol 3.0, without input or output.
//!
//! - `frontend`: messages of clients, from bytes. `backend`: messages of the server, as bytes.
//! - `scanner`: tokens of SQL, and the statements of a text. `parser`: takes tokens. `command`: statements that need no engine. `call`: statements that only call a function.
//! - `transaction`: modes of transactions. `setting`: parameters of a session. `cast`: types of literals. `insert`, `copy`: rows that a client writes. `prepare`: statements with a name. `parameters`: values of statements, from text or binary.
//!
//! Every function returns for any bytes. The limits of sizes are those of the caller; [`frontend`] has those of the protocol.

pub mod backend;
pub mod call;
pub mod cast;
pub mod command;
pub mod copy;
pub mod frontend;
pub mod insert;
pub mod oid;
pub mod parameters;
mod parser;
mod prepare;
pub mod scanner;
mod setting;
pub mod transaction;
