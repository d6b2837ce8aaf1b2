//! Parts of jobs in the format of `/api/v1`.

use jobs::{NodeShare, Step};
use model::{Allocation, Timestamp};

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
