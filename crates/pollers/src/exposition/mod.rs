//! The text formats of exporters: Prometheus' text format 0.0.4 and OpenMetrics 1.0.
//!
//! - `lines`: a text as its lines
//! - `labels`: names, labels and quoted texts
//!
//! Sources: prometheus.io/docs/instrumenting/exposition_formats (0.0.4), the OpenMetrics specification 1.0.0
//! (2020-11), and the proposal of UTF-8 names in quotes (Prometheus 3).

mod labels;
mod lines;

pub use lines::{Format, Line, LineError, Lines, MetricType, Sample};
