//! Jobs in the format of `/api/v1`.

use jobs::{Listed, NodeShare, Step};
use model::{Allocation, DeviceId, Resources, Timestamp};

/// Converts a job to the format of `/api/v1`.
pub fn shown(listed: Listed) -> api::Job {
    let job = listed.job;
    api::Job {
        cluster: job.key.cluster.to_string(),
        id: job.key.id.get(),
        display_id: job.display_id.into(),
        user: job.user.map(String::from),
        uid: job.uid,
        account: job.account.map(String::from),
        project: job.project.map(String::from),
        name: job.name.map(String::from),
        queue: job.queue.map(String::from),
        state: job.state.word().to_owned(),
        state_word: job.state_word.map(String::from),
        submit: job.submit.map(Timestamp::seconds),
        start: job.start.map(Timestamp::seconds),
        stop: job.stop.map(Timestamp::seconds),
        exit_code: job.exit_code,
        part_of: job.part_of,
        array_index: job.array_index,
        types: job.types.into_iter().map(String::from).collect(),
        requested: resources(&job.requested),
        used: resources(&job.used),
        devices: listed.devices.iter().map(DeviceId::to_string).collect(),
        usage: None,
    }
}

fn resources(of: &Resources) -> api::Resources {
    api::Resources {
        nodes: of.nodes,
        cpus: of.cpus,
        gpus: of.gpus,
        memory_bytes: of.memory_bytes,
        wall_seconds: of.wall_seconds,
        cpu_seconds: of.cpu_seconds,
    }
}

pub(crate) fn allocation(allocation: &Allocation) -> api::Allocation {
    api::Allocation {
        device: allocation.device.to_string(),
        start: allocation.start.seconds(),
        stop: allocation.stop.map(Timestamp::seconds),
    }
}

pub(crate) fn share(share: NodeShare) -> api::NodeShare {
    api::NodeShare {
        device: share.device.to_string(),
        cpus: share.cpus,
        cpu_list: share.cpu_list.into(),
        gpus: share.gpus,
        gpu_list: share.gpu_list.into(),
        memory_bytes: share.memory_bytes,
    }
}

pub(crate) fn step(step: Step) -> api::Step {
    api::Step {
        id: step.id.into(),
        name: step.name.into(),
        state_word: step.state_word.into(),
        start: step.start.map(Timestamp::seconds),
        stop: step.stop.map(Timestamp::seconds),
        exit_code: step.exit_code,
    }
}
