//! The cores and accelerators of a job on each node, from `scontrol show job --details --oneliner`: Slurm's
//! JSON lacks the cores.
//!
//! ```text
//! JobId=5 JobName=multi … JOB_GRES=gpu:tesla:4   Nodes=n1 CPU_IDs=0 Mem=300 GRES=gpu:tesla:1(IDX:0)
//! Nodes=n[2-4] CPU_IDs=1 …
//! ```
//!
//! `CPU_IDs` are Slurm's own numbers, counted socket by socket; the kernel's may differ.

use super::job::share;
use super::parsed_job::{ParseErrors, devices};
use super::tres;
use jobs::NodeShare;
use std::collections::HashMap;

/// The node shares of each job, by job ID. An ID that appears twice is ignored.
/// Users can forge lines: names and comments reach this text, line breaks included.
pub(super) fn read(text: &str, parse_errors: &mut ParseErrors) -> HashMap<i64, Vec<NodeShare>> {
    let mut all: HashMap<i64, Option<Vec<NodeShare>>> = HashMap::new();
    for line in text.lines() {
        let id = line.strip_prefix("JobId=").and_then(|rest| rest.split(' ').next());
        let Some(id) = id.and_then(|id| id.parse().ok()) else { continue };
        let shares = line_shares(line).unwrap_or_else(|error| {
            parse_errors.add(format!("job {id}: {error}"));
            Vec::new()
        });
        all.entry(id).and_modify(|twice| *twice = None).or_insert(Some(shares));
    }
    let is_unique = |(id, shares): (i64, Option<Vec<NodeShare>>)| match shares {
        Some(shares) => Some((id, shares)).filter(|(_, shares)| !shares.is_empty()),
        None => {
            parse_errors.add(format!("job {id}: scontrol lists it twice; its cores are ignored"));
            None
        }
    };
    all.into_iter().filter_map(is_unique).collect()
}

/// The nodes of one job: each `Nodes=` with the three fields after it.
fn line_shares(line: &str) -> Result<Vec<NodeShare>, String> {
    let mut shares = Vec::new();
    for group in line.split("   Nodes=").skip(1) {
        let mut fields = group.split(' ');
        let nodes = fields.next().unwrap_or_default();
        let mut field = |name: &str| fields.next().and_then(|field| field.strip_prefix(name));
        let (Some(cpus), Some(memory), Some(gres)) =
            (field("CPU_IDs="), field("Mem="), field("GRES="))
        else {
            continue;
        };
        let is_list = cpus.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b','));
        let cpu_list = if is_list { cpus } else { "" };
        let (gpus, gpu_list) = tres::gpus(gres);
        shares.extend(devices(nodes)?.into_iter().map(|device| NodeShare {
            cpu_list: cpu_list.into(),
            gpus,
            gpu_list: gpu_list.clone(),
            memory_bytes: tres::memory(memory),
            ..share(device)
        }));
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RECORDED: &str = include_str!("../../../../testdata/schedulers/slurm-22.05/scontrol.txt");

    #[test]
    fn cores_and_accelerators_of_a_recorded_answer() {
        let mut parse_errors = ParseErrors::default();
        let all = read(RECORDED, &mut parse_errors);
        let job: Vec<_> = all[&5]
            .iter()
            .map(|s| (s.device.as_str(), &*s.cpu_list, s.gpus, &*s.gpu_list, s.memory_bytes))
            .collect();
        let memory = Some(300 << 20);
        assert_eq!(
            job,
            [
                ("n1", "0", Some(1), "0", memory),
                ("n2", "1", Some(1), "0", memory),
                ("n3", "1", Some(1), "0", memory),
                ("n4", "1", Some(1), "0", memory),
            ]
        );
        assert!(!all.contains_key(&8), "a waiting job has no node");
        assert_eq!(parse_errors.done(), Vec::<String>::new());
    }

    /// A line break in a name cannot give cores to another's job.
    #[test]
    fn a_job_listed_twice_is_ignored() {
        let spoof = "JobId=5 x   Nodes=n9 CPU_IDs=7 Mem=1 GRES= y";
        let mut parse_errors = ParseErrors::default();
        let all = read(&format!("{RECORDED}\n{spoof}"), &mut parse_errors);
        assert!(!all.contains_key(&5) && all.contains_key(&1));
        assert_eq!(parse_errors.done().len(), 1);
    }

    #[test]
    fn every_truncated_text_is_read() {
        for (end, _) in RECORDED.char_indices() {
            read(RECORDED.get(..end).unwrap(), &mut ParseErrors::default());
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(JobId=[0-9]{1,3}|   Nodes=|n\\[1-3|CPU_IDs=|Mem=|GRES=|[ \n0-9a\\]]){0,30}") {
            read(&text, &mut ParseErrors::default());
        }
    }
}
