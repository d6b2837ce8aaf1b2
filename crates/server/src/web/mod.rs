//! The web page's files, the metrics, and the OpenAPI document.
//!
//! - `files`: the web page, from `ui/`. `metrics`: `/metrics` for Prometheus. `openapi`: the document.

pub(crate) mod files;
pub(crate) mod metrics;
pub(crate) mod openapi;
