//! Style of the repository: layers, names, links, sizes.

pub(crate) mod agent_size;
pub(crate) mod docs_fresh;
pub(crate) mod layers;
pub(crate) mod tidy;
