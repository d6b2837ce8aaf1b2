//! Commands about this node: capture, doctor, sources, top.
//!
//! - `capture`: records files. `doctor`: what keeps a node from measuring. `sources_of_node`, `describe`, `probe`: sources. `agent_file`: the settings of the agent here. `top`.

pub(crate) mod agent_file;
pub(crate) mod capture;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod probe;
pub(crate) mod sources_of_node;
pub(crate) mod top;
