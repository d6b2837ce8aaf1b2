//! What is drawn or listed for others: the page's files, metrics, the OpenAPI document.
//!
//! - `files`: the page itself, from `ui/`. `metrics`: `/metrics` for Prometheus. `openapi`: the document.

pub(crate) mod files;
pub(crate) mod metrics;
pub(crate) mod openapi;
