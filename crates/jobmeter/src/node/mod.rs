//! Commands about this node: capture, doctor, sources, top.

pub(crate) mod agent_file;
pub(crate) mod capture;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod probe;
pub(crate) mod sources_of_node;
pub(crate) mod top;
