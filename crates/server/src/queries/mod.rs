//! Questions about what is stored, and their answers.
//!
//! - `answers`: a question is answered as JSON. `series`, `nodes`, `statements` (SQL), `kwollect`: the questions. `slow`: slow ones in the log.

pub(crate) mod answers;
pub(crate) mod kwollect;
pub(crate) mod nodes;
pub(crate) mod series;
pub(crate) mod slow;
pub(crate) mod statements;
