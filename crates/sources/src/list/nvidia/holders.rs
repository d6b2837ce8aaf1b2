//! Assignment of GPUs to jobs.
//!
//! A job's device cgroup (version 1; Documentation/admin-guide/cgroup-v1/devices.rst) lists the devices that
//! it may open. NVIDIA's GPUs have the major number 195, and one minor number each:
//!
//! ```text
//! c 195:3 rw
//! c 195:255 rw      /dev/nvidiactl, which every job may open
//! ```
//!
//! Version 2 uses a BPF program, which cannot be read. There the environment of one of the job's processes
//! is used.

use crate::Context;
use cgroups::{Hierarchy, JobCgroup, Members, processes};
use kernel::Root;
use kernel::nvml::{Gpu, Number};
use kernel::parse::{lines, number};
use kernel::process::whole_entries;
use model::{JobKey, Timestamp};
use std::ops::Range;

/// The major number of NVIDIA's devices.
const MAJOR: &[u8] = b"195";
/// Minors from here on are the driver's own devices: control and modeset.
const MINORS: u32 = 254;
/// Maximum number of bytes read of an environment.
const ENVIRON_BYTES_MAX: usize = 128 * 1024;
/// Interval of attempts to find a job's GPUs while they are unknown.
const LOOK_EVERY_US: i64 = 30 * Timestamp::SECOND;

/// The GPUs assigned to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    /// Neither the cgroup nor an environment names them.
    Unknown,
    /// The GPUs of these device files.
    Minors(Vec<u32>),
    /// GPUs with these UUID prefixes.
    Uuids(Vec<Box<str>>),
}

#[derive(Debug)]
struct Holder {
    job: JobKey,
    claim: Claim,
    looked: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Holding {
    holder: usize,
    gpu: usize,
    pids: Range<usize>,
}

/// A GPU assigned to a job.
#[derive(Debug)]
pub(super) struct Held<'a> {
    pub(super) job: &'a JobKey,
    /// Index of the GPU.
    pub(super) gpu: usize,
    pub(super) share: f64,
    /// The job's processes on it.
    pub(super) pids: &'a [u32],
}

/// The jobs of the node and their GPUs, as of the last update.
#[derive(Debug, Default)]
pub(super) struct Holders {
    generation: Option<u64>,
    holders: Vec<Holder>,
    holdings: Vec<Holding>,
    /// The job's processes on each GPU, in the order of the holdings.
    pids: Vec<u32>,
    members: Members,
    buf: Vec<u8>,
}

impl Holders {
    /// Updates the assignment.
    pub(super) fn update(&mut self, cx: &Context<'_>, gpus: &[Gpu]) {
        if self.generation != Some(cx.jobs.generation()) {
            self.generation = Some(cx.jobs.generation());
            self.holders.retain(|holder| cx.jobs.get(&holder.job).is_some());
            for job in cx.jobs.iter() {
                if !self.holders.iter().any(|holder| holder.job == job.key) {
                    let (job, claim) = (job.key.clone(), Claim::Unknown);
                    self.holders.push(Holder { job, claim, looked: None });
                }
            }
        }
        self.holdings.clear();
        self.pids.clear();
        let in_use = gpus.iter().any(|gpu| !gpu.processes.is_empty());
        for place in 0..self.holders.len() {
            self.update_job(place, cx, gpus, in_use);
        }
    }

    fn update_job(&mut self, place: usize, cx: &Context<'_>, gpus: &[Gpu], in_use: bool) {
        let Self { holders, members, buf, .. } = self;
        let Some(holder) = holders.get_mut(place) else { return };
        let Some(job) = cx.jobs.get(&holder.job) else { return };
        let is_due = |looked: Timestamp| cx.now.since(looked) >= LOOK_EVERY_US;
        let looks = holder.claim == Claim::Unknown && holder.looked.is_none_or(is_due);
        // A job that ended meanwhile has no processes.
        let listed = (in_use || looks) && processes(cx.root, job, members).is_ok();
        let ids = if listed { members.ids() } else { &[] };
        if looks && !ids.is_empty() {
            holder.claim = claim(cx.root, job, ids, buf);
            holder.looked = Some(cx.now);
        }
        for (gpu_place, gpu) in gpus.iter().enumerate() {
            let first = self.pids.len();
            let of_job = gpu.processes.iter().filter(|process| ids.contains(&process.pid));
            self.pids.extend(of_job.map(|process| process.pid));
            let is_divided = gpu.get(Number::Mig) == Some(1);
            let minor = gpu.get(Number::Minor).filter(|_| gpu.slice.is_none() && !is_divided);
            let has = match &holder.claim {
                // The processes of a divided GPU belong to its slices.
                Claim::Unknown => self.pids.len() > first && !is_divided,
                Claim::Minors(minors) => minors.iter().any(|one| minor == Some(u64::from(*one))),
                Claim::Uuids(uuids) => uuids.iter().any(|uuid| gpu.uuid.starts_with(&**uuid)),
            };
            if has {
                let pids = first..self.pids.len();
                self.holdings.push(Holding { holder: place, gpu: gpu_place, pids });
            } else {
                self.pids.truncate(first);
            }
        }
    }

    /// Every pair of job and assigned GPU.
    pub(super) fn held(&self) -> impl Iterator<Item = Held<'_>> {
        self.holdings.iter().filter_map(|Holding { holder, gpu, pids }| {
            let sharers = self.holdings.iter().filter(|other| other.gpu == *gpu).count();
            let job = &self.holders.get(*holder)?.job;
            let pids = self.pids.get(pids.clone()).unwrap_or_default();
            Some(Held { job, gpu: *gpu, share: 1.0 / sharers.max(1) as f64, pids })
        })
    }
}

/// Finds a job's GPUs: by its device cgroup, else by the environment of one of its processes.
fn claim(root: &Root, job: &JobCgroup, pids: &[u32], buf: &mut Vec<u8>) -> Claim {
    if let Some(dir) = job.dir(Hierarchy::Devices)
        && root.read(&format!("{dir}/devices.list"), buf).is_ok()
        && let Some(minors) = listed(buf)
    {
        return Claim::Minors(minors);
    }
    let found = pids.iter().find_map(|pid| {
        let (environ, is_whole) = root.environment(*pid, ENVIRON_BYTES_MAX).ok()?;
        named(if is_whole { &environ } else { whole_entries(&environ) })
    });
    found.unwrap_or(Claim::Unknown)
}

/// The minors of the GPUs that a device cgroup permits; `None` if it permits all devices, or is not readable.
pub(super) fn listed(text: &[u8]) -> Option<Vec<u32>> {
    let mut minors = Vec::new();
    for line in lines(text) {
        let mut words = line.split(|byte| *byte == b' ');
        let (kind, device) = (words.next()?, words.next()?);
        if kind == b"a" {
            return None;
        }
        let Some((MAJOR, minor)) = device.iter().position(|byte| *byte == b':').and_then(|colon| {
            let (major, rest) = device.split_at_checked(colon)?;
            Some((major, rest.get(1..)?))
        }) else {
            continue;
        };
        if minor == b"*" {
            return None;
        }
        let minor = number(minor).and_then(|minor| u32::try_from(minor).ok());
        minors.extend(minor.filter(|minor| *minor < MINORS));
    }
    Some(minors)
}

/// Finds the job's GPUs in the environment of a process.
pub(super) fn named(environ: &[u8]) -> Option<Claim> {
    let value = |name: &str| {
        let mut pairs = environ.split(|byte| *byte == 0);
        let text = pairs.find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(text).ok()
    };
    if let Some(list) = value("SLURM_JOB_GPUS").or_else(|| value("SLURM_STEP_GPUS")) {
        return numbers(list).map(Claim::Minors);
    }
    // Plain numbers may be relative to the devices that the cgroup permits.
    let uuids: Vec<Box<str>> = value("CUDA_VISIBLE_DEVICES")?
        .split(',')
        .map(str::trim)
        .filter(|word| word.starts_with("GPU-") || word.starts_with("MIG-"))
        .map(Box::from)
        .collect();
    (!uuids.is_empty()).then_some(Claim::Uuids(uuids))
}

/// `0,2-3` as 0, 2, 3.
fn numbers(list: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MINORS || first > last {
            return None;
        }
        all.extend(first..=last);
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_device_cgroup_lists_gpus_or_permits_everything() {
        let slurm = b"c 1:3 rwm\nc 195:255 rw\nc 195:254 rw\nc 195:3 rw\nb 8:0 r\nc 195:1 rwm\n";
        assert_eq!(listed(slurm), Some(vec![3, 1]));
        assert_eq!(listed(b"c 1:3 rwm\nc 195:255 rw\n"), Some(Vec::new()));
        assert_eq!(listed(b"a *:* rwm\n"), None);
        assert_eq!(listed(b"c 195:* rwm\n"), None);
    }

    #[test]
    fn an_environment_names_gpus() {
        assert_eq!(
            named(b"HOME=/x\0SLURM_JOB_GPUS=0,2-3\0CUDA_VISIBLE_DEVICES=0,1,2\0"),
            Some(Claim::Minors(vec![0, 2, 3]))
        );
        let uuids = Claim::Uuids(vec!["GPU-ab".into(), "MIG-cd".into()]);
        assert_eq!(named(b"CUDA_VISIBLE_DEVICES=GPU-ab, MIG-cd\0"), Some(uuids));
        // Such numbers may be relative, so the GPUs are unknown.
        assert_eq!(named(b"CUDA_VISIBLE_DEVICES=0,1\0"), None);
        assert_eq!(named(b"SLURM_JOB_GPUS=3-1\0"), None);
        assert_eq!(named(b""), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            listed(&bytes);
            named(&bytes);
        }

        #[test]
        fn every_list_is_bounded(list in "[0-9,-]{0,12}") {
            prop_assert!(numbers(&list).is_none_or(|all| all.len() <= 254 * 13));
        }
    }
}
