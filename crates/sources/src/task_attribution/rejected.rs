//! Errors of listening to ends and forks, and the permissions that are needed.

use crate::SourceError;
use kernel::Root;
use kernel::proc_connector::ConnectorError;
use kernel::taskstats::TaskstatsError;

pub(super) fn exits_error(root: &Root, error: &TaskstatsError) -> SourceError {
    match error {
        TaskstatsError::Absent => SourceError::absent(format!("exits: {error}")),
        TaskstatsError::Denied => SourceError::denied(
            "the accounting of ended tasks (netlink TASKSTATS)",
            "CAP_NET_ADMIN, or root",
        ),
        TaskstatsError::OtherNamespace => SourceError::denied(
            "exit records: the kernel sends them only to its first process and user namespaces",
            "the host's process namespace to the agent, and root there",
        ),
        TaskstatsError::Unheard => {
            let namespace = |of: &str| root.read_link(&format!("proc/{of}/ns/net")).ok();
            match (namespace("thread-self"), namespace("1")) {
                (Some(own), Some(first)) if own == first => SourceError::broken(
                    "the kernel accepts the registration for exit records, but sends none",
                ),
                _ => SourceError::denied(
                    "exit records: the kernel sends them only to its first network namespace",
                    "the host's network namespace to the agent",
                ),
            }
        }
        TaskstatsError::Failed(_) => SourceError::broken(format!("exits: {error}")),
    }
}

pub(super) fn forks_error(error: &ConnectorError) -> SourceError {
    match error {
        ConnectorError::Absent => SourceError::absent(error.to_string()),
        ConnectorError::Denied => {
            SourceError::denied("fork events (netlink process connector)", "CAP_NET_ADMIN, or root")
        }
        ConnectorError::OtherNamespace => SourceError::denied(
            "fork events: the kernel sends them only to its first process, user and network namespaces",
            "the host's namespaces to the agent",
        ),
        ConnectorError::Failed(_) => SourceError::broken(error.to_string()),
    }
}
