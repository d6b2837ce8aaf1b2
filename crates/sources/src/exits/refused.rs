//! Why ends and forks cannot be heard, and what to grant.

use crate::SourceError;
use kernel::Root;
use kernel::proc_connector::ConnectorError;
use kernel::taskstats::TaskstatsError;

pub(super) fn exits_error(root: &Root, error: &TaskstatsError) -> SourceError {
    match error {
        TaskstatsError::Absent => SourceError::absent(format!("exits: {error}")),
        TaskstatsError::Denied => SourceError::denied(
            "what ended tasks used (netlink TASKSTATS)",
            "CAP_NET_ADMIN, or root",
        ),
        TaskstatsError::OtherNamespace => SourceError::denied(
            "notifications of exits: the kernel gives them in its first process and user namespaces alone",
            "the host's process namespace to the agent, and root there",
        ),
        TaskstatsError::Unheard => {
            let namespace = |of: &str| root.read_link(&format!("proc/{of}/ns/net")).ok();
            match (namespace("thread-self"), namespace("1")) {
                (Some(own), Some(first)) if own == first => {
                    SourceError::broken("the kernel accepts to tell of exits, and tells none")
                }
                _ => SourceError::denied(
                    "notifications of exits: the kernel sends them to its first network namespace alone",
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
        ConnectorError::Denied => SourceError::denied(
            "who started whom (netlink process connector)",
            "CAP_NET_ADMIN, or root",
        ),
        ConnectorError::OtherNamespace => SourceError::denied(
            "fork events: the kernel gives them in its first process, user and network namespaces alone",
            "the host's namespaces to the agent",
        ),
        ConnectorError::Failed(_) => SourceError::broken(error.to_string()),
    }
}
