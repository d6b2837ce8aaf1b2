//! What is drawn or listed for others: the page's files, metrics, the OpenAPI document.

pub(crate) mod files;
pub(crate) mod metrics;
pub(crate) mod openapi;
