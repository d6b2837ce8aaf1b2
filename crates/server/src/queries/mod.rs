//! Questions about what is stored, and their answers.

pub(crate) mod answers;
pub(crate) mod kwollect;
pub(crate) mod nodes;
pub(crate) mod series;
pub(crate) mod slow;
pub(crate) mod statements;
