//! The origin of each total of a job, and the nodes that the totals cover.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The origin of one total.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TotalOrigin {
    /// The field of `totals`.
    pub total: String,
    /// `cgroup`: read from the job's cgroup. `exits`: the kernel's accounting of its tasks (taskstats). `kill`: charged
    /// to the job's cgroup at its limit, as the kernel stated at an OOM kill. `killed`: the killed task, or a full cgroup
    /// below the job's. `run`: read by `jobmeter run`. `report`: reported by `jobmeter run` at the end, with precedence
    /// over the others. Several if the nodes differ: on each node the largest value counts.
    pub origins: Vec<String>,
    /// A restriction of the value, for people: `largest task`.
    pub note: Option<String>,
    /// Nodes with a value.
    pub nodes: u32,
}

/// The nodes that the totals of a job cover.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coverage {
    /// Nodes with samples up to the job's end, or up to now.
    pub nodes: u32,
    /// Nodes of the job.
    pub of: u32,
    /// Nodes without them, 100 at most.
    pub silent: Vec<SilentNode>,
}

/// A node that the totals cover only in part, or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SilentNode {
    /// The node.
    pub device: String,
    /// The time of its latest sample of the job; `null` if it has none.
    pub since: Option<f64>,
}

/// Number of silent nodes that a text names.
const NAMED: usize = 3;

impl Coverage {
    /// `63 of 64 nodes; n017 silent since 14:58`, with times as the caller prints them.
    pub fn text(&self, time: impl Fn(f64) -> String) -> String {
        let silent = self.silent_text(time);
        let separator = if silent.is_empty() { "" } else { "; " };
        format!("{} of {} nodes{separator}{silent}", self.nodes, self.of)
    }

    /// `n017 silent since 14:58`, with times as the caller prints them.
    pub fn silent_text(&self, time: impl Fn(f64) -> String) -> String {
        let node = |node: &SilentNode| match node.since {
            Some(since) => format!("{} silent since {}", node.device, time(since)),
            None => format!("{} without samples", node.device),
        };
        let named: Vec<String> = self.silent.iter().take(NAMED).map(node).collect();
        let more = self.silent.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        named.join(", ") + &more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_the_silent_nodes() {
        let node = |device: &str, since| SilentNode { device: device.to_owned(), since };
        let silent = vec![node("n017", Some(58.0)), node("n018", None)];
        let coverage = Coverage { nodes: 62, of: 64, silent };
        let text = coverage.text(|at| format!("14:{at}"));
        assert_eq!(text, "62 of 64 nodes; n017 silent since 14:58, n018 without samples");
        let silent = (0..5).map(|n| node(&format!("n{n}"), None)).collect();
        let text = Coverage { nodes: 0, of: 5, silent }.text(|at| at.to_string());
        assert!(text.ends_with("n2 without samples, and 2 more"), "{text}");
    }
}
