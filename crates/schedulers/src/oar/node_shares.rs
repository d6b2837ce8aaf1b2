//! A job's resources on each node: the sum of its rows in OAR's `resources`.
//!
//! Sites define what a row is: mostly a core, with the node's name in `network_address` and the kernel's
//! processor numbers in `cpuset`.
//! Columns such as `core` and `gpudevice` are site-specific.

use jobs::NodeShare;
use model::DeviceId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Most numbers in a list of processors: the kernel's own limit is 8192.
const CPUS_MAX: usize = 8192;

/// A job's resources, node by node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeShares(BTreeMap<DeviceId, NodePart>);

/// A job's resources on one node.
#[derive(Clone, Debug, Default)]
struct NodePart {
    cpus: BTreeSet<u32>,
    /// Whether every processor has a number.
    numbered: bool,
    cores: BTreeSet<Box<str>>,
    gpus: BTreeSet<Box<str>>,
}

impl NodeShares {
    /// Adds resources of a node: comma-separated lists of `cpuset`, `core` and `gpudevice`, empty if the row
    /// lacks them.
    /// Returns whether the node's name is valid.
    pub(crate) fn add(&mut self, address: &str, cpusets: &str, cores: &str, gpus: &str) -> bool {
        let Ok(device) = DeviceId::new(host(address)) else { return false };
        let part =
            self.0.entry(device).or_insert(NodePart { numbered: true, ..NodePart::default() });
        part.numbered &= numbers(cpusets, &mut part.cpus);
        part.cores.extend(words(cores));
        part.gpus.extend(words(gpus));
        true
    }

    /// The job's share of each node, ordered by node name.
    pub(crate) fn shares(self) -> Vec<NodeShare> {
        let share = |(device, part): (DeviceId, NodePart)| {
            let NodePart { cpus, numbered, cores, gpus } = part;
            let known = numbered && !cpus.is_empty();
            let count = |count: usize| u32::try_from(count).ok().filter(|count| *count > 0);
            NodeShare {
                device,
                cpus: count(cores.len()).or(count(cpus.len()).filter(|_| known)),
                cpu_list: if known { ranges(&cpus).into() } else { "".into() },
                gpus: count(gpus.len()),
                gpu_list: gpus.iter().map(|gpu| &**gpu).collect::<Vec<_>>().join(",").into(),
                memory_bytes: None,
            }
        };
        self.0.into_iter().map(share).collect()
    }
}

/// The words of a comma-separated list.
fn words(list: &str) -> impl Iterator<Item = Box<str>> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(Box::from)
}

/// The device name of a node: the host name up to the first dot, or the whole IP address.
fn host(address: &str) -> &str {
    if address.parse::<IpAddr>().is_ok() {
        return address;
    }
    address.split('.').next().unwrap_or(address)
}

/// Adds the numbers of `0-3,8` or, as OAR also writes, `0+1`. Returns whether every word was a number or range.
fn numbers(list: &str, into: &mut BTreeSet<u32>) -> bool {
    for part in list.split([',', '+', ' ']).filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (Ok(from), Ok(to)) = (from.parse::<u32>(), to.parse::<u32>()) else { return false };
        for cpu in from..=to {
            if into.len() >= CPUS_MAX {
                return false;
            }
            into.insert(cpu);
        }
    }
    true
}

/// Formats numbers as `0-3,8`.
fn ranges(numbers: &BTreeSet<u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers.iter().copied() {
        match runs.last_mut() {
            Some((_, to)) if to.checked_add(1) == Some(number) => *to = number,
            _ => runs.push((number, number)),
        }
    }
    let text = |(from, to): &(u32, u32)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(rows: &[(&str, &str, &str, &str)]) -> NodeShare {
        let mut shares = NodeShares::default();
        for (address, cpusets, cores, gpus) in rows {
            assert!(shares.add(address, cpusets, cores, gpus));
        }
        let shares = shares.shares();
        assert_eq!(shares.len(), 1, "{shares:?}");
        shares.into_iter().next().unwrap()
    }

    #[test]
    fn a_row_for_each_core() {
        let share = one(&[("n1.site.example", "1", "17", ""), ("n1", "0", "16", "")]);
        assert_eq!((share.device.as_str(), share.cpus, &*share.cpu_list), ("n1", Some(2), "0-1"));
        assert_eq!((share.gpus, &*share.gpu_list), (None, ""));
        // The database aggregated the rows.
        assert_eq!(one(&[("n1", "0,1", "16,17", "")]), share);
    }

    #[test]
    fn a_row_for_each_node_or_thread_and_one_without_numbers() {
        let share = one(&[("n1", "0-3,8+9", "", "")]);
        assert_eq!((share.cpus, &*share.cpu_list), (Some(6), "0-3,8-9"));
        // Two threads of one core.
        let share = one(&[("n1", "0", "5", ""), ("n1", "4", "5", "")]);
        assert_eq!((share.cpus, &*share.cpu_list), (Some(1), "0,4"));
        let share = one(&[("n1", "all", "", "")]);
        assert_eq!((share.cpus, &*share.cpu_list), (None, ""));
        assert_eq!(one(&[("n1", "0-99999999", "", "")]).cpus, None);
        assert_eq!(one(&[("10.0.0.7", "0", "", "")]).device.as_str(), "10.0.0.7");
    }

    #[test]
    fn accelerators_are_listed_by_number() {
        let share = one(&[("n1", "0", "1", "1"), ("n1", "1", "2", "1"), ("n1", "2", "3", "0")]);
        assert_eq!((share.gpus, &*share.gpu_list, share.cpus), (Some(2), "0,1", Some(3)));
        assert!(!NodeShares::default().add(".site", "0", "", ""));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>()) {
            let mut shares = NodeShares::default();
            shares.add(&text, &text, &text, &text);
            shares.shares();
        }
    }
}
