//! Commands about this node: capture, colmet-node, doctor, sources, top.
//!
//! - `capture`: records the files that sources read. `doctor`: what a node cannot measure, and why. `top`:
//!   live usage. `colmet_node`: the agent for a collector of Colmet.
//! - `sources_of_node`, `describe`, `probe`: sources. `agent_file`: the settings of this node's agent.

pub(crate) mod agent_file;
pub(crate) mod capture;
pub(crate) mod colmet_node;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod probe;
pub(crate) mod sources_of_node;
pub(crate) mod top;
