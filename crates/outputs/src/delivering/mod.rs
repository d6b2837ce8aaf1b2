//! From the store to an output.
//!
//! - `outputs`: runs the outputs of a configuration, each in a thread: `worker`.
//! - `selection`: the samples that an output gets. `last_of_window`: one of each series and window. `recording`: Colmet's records
//!   of them. `marked_file`: what these two keep between slices.
//! - `fills`: the time ranges that were requested. `sent`: what a broken connection may lose. `filling`: sends both again.
//! - `set_aside`: what the receiver rejected.
//! - `status`: what is shown of an output. `stop`: ends its thread.

mod filling;
pub(crate) mod fills;
mod last_of_window;
mod marked_file;
pub(crate) mod outputs;
mod recording;
mod selection;
mod sent;
pub(crate) mod set_aside;
pub(crate) mod status;
mod stop;
mod worker;
