//! From the store to an output.
//!
//! - `outputs`: runs the outputs of a configuration, each in a thread: `worker`.
//! - `selection`: the samples that an output gets. `last_of_window`: one of each series and window.
//! - `status`: what is shown of an output. `stop`: ends its thread.

mod last_of_window;
pub(crate) mod outputs;
mod selection;
pub(crate) mod status;
mod stop;
mod worker;
