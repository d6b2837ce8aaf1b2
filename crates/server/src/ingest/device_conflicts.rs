//! Detects devices that several nodes claim. Two agents have the same name, so their samples are mixed. Programs that
//! insert rows are no nodes.

use model::Origin;
use std::collections::BTreeSet;
use storage::{Claim, Storage};

/// Returns the claims made by several nodes, each with the nodes. `jobmeter run` on node n1 sends as
/// `n1/run-7` beside the node's agent, and belongs to the same node.
pub(crate) fn contested(store: &dyn Storage) -> Vec<(BTreeSet<String>, Claim)> {
    let claims = store.claims().into_iter().map(|claim| (nodes(&claim), claim));
    claims.filter(|(nodes, _)| nodes.len() > 1).collect()
}

fn nodes(claim: &Claim) -> BTreeSet<String> {
    let senders = claim.origins.iter().map(|(origin, _)| origin);
    senders.filter(|origin| !origin.is_push()).map(|origin| node_of(origin).to_owned()).collect()
}

fn node_of(origin: &Origin) -> &str {
    origin.as_run().map_or(origin.as_str(), |(node, _)| node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_is_measured_is_no_other_node() {
        let of = |origins: [&str; 3]| {
            let origins = origins.map(|name| Origin::new(name).unwrap());
            origins.iter().map(|origin| node_of(origin).to_owned()).collect::<BTreeSet<_>>()
        };
        assert_eq!(of(["n1", "n1/run-7", "n1/run-8"]).len(), 1);
        assert_eq!(of(["n1", "n2/run-7", "n1/run-8"]).len(), 2);
    }
}
