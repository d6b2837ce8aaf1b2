//! Addresses from which agents send, and the nodes that they identify.

use crate::common::counts::Counter;
use crate::common::http_error::HttpError;
use model::{DeviceId, Origin, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// An agent sends from an address if its latest batch is not older.
const CURRENT_US: i64 = 120 * Timestamp::SECOND;
/// Time for which an agent that sent from an address shares it with others.
const SHARED_US: i64 = 3600 * Timestamp::SECOND;
/// Addresses that are remembered.
const ADDRESSES_MAX: usize = 65_536;
/// Agents of one address that are remembered: two of them suffice to identify none.
const AGENTS_MAX: usize = 4;

/// The agents of each address.
#[derive(Debug)]
pub(crate) struct AgentAddresses {
    known: Mutex<HashMap<IpAddr, AddressUse>>,
    /// Time after its first batch for which an address identifies no node: other agents may share it.
    new_us: i64,
    /// Addresses that could not be remembered.
    pub(crate) not_remembered: Counter,
}

/// The use of an address.
#[derive(Debug)]
struct AddressUse {
    since: Timestamp,
    agents: Vec<SeenAgent>,
}

/// An agent at an address.
#[derive(Debug)]
struct SeenAgent {
    origin: Origin,
    at: Timestamp,
    /// The latest batch with a token or certificate of its own.
    identified: Option<Timestamp>,
}

/// Why an address identifies no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoNode {
    /// No agent with an identity of its own sends from it.
    Unknown,
    /// Several agents send from it.
    Shared,
    /// It is known for too short a time, in seconds.
    New(u32),
}

impl NoNode {
    /// The error of a caller at such an address.
    pub(crate) fn error(self, address: IpAddr) -> HttpError {
        let unidentified = |what: &str| {
            HttpError::unidentified(format!("not authenticated: {what} {address}; send a token"))
        };
        match self {
            Self::Unknown => unidentified("no agent with a token of its own sends from"),
            Self::Shared => unidentified("several agents send from"),
            Self::New(seconds) => {
                let what = format!(
                    "the server has known {address} for a short time only; retry in {seconds} s"
                );
                HttpError { retry_after: seconds, ..HttpError::busy(what) }
            }
        }
    }
}

impl AgentAddresses {
    /// `new_time`: time after its first batch for which an address identifies no node.
    pub(crate) fn new(new_time: Duration) -> Self {
        let new_us = i64::try_from(new_time.as_micros()).unwrap_or(i64::MAX);
        Self { known: Mutex::default(), new_us, not_remembered: Counter::default() }
    }

    /// Records that an agent sent from an address. `is_identified`: by a token or certificate of its own.
    pub(crate) fn note(
        &self,
        address: IpAddr,
        origin: &Origin,
        is_identified: bool,
        now: Timestamp,
    ) {
        let mut known = self.known.lock();
        if known.len() >= ADDRESSES_MAX && !known.contains_key(&address) {
            known.retain(|_, one| one.agents.iter().any(|agent| agent.is_recent(now)));
            if known.len() >= ADDRESSES_MAX {
                return self.not_remembered.add(1);
            }
        }
        let new = || AddressUse { since: now, agents: Vec::new() };
        let of_address = known.entry(address).or_insert_with(new);
        // After an hour without an agent nothing is known of the address any more.
        if !of_address.agents.iter().any(|agent| agent.is_recent(now)) {
            *of_address = new();
        }
        let agents = &mut of_address.agents;
        let identified = is_identified.then_some(now);
        if let Some(agent) = agents.iter_mut().find(|agent| agent.origin == *origin) {
            agent.at = now;
            agent.identified = identified.or(agent.identified);
            return;
        }
        agents.retain(|agent| agent.is_recent(now));
        if agents.len() >= AGENTS_MAX
            && let Some(oldest) =
                (0..agents.len()).min_by_key(|place| agents.get(*place).map(|agent| agent.at))
        {
            agents.swap_remove(oldest);
        }
        agents.push(SeenAgent { origin: origin.clone(), at: now, identified });
    }

    /// The node whose agent alone sends from an address now.
    pub(crate) fn node(&self, address: IpAddr, now: Timestamp) -> Result<DeviceId, NoNode> {
        let known = self.known.lock();
        let found = known.get(&address).ok_or(NoNode::Unknown)?;
        let mut agents = found.agents.iter().filter(|agent| agent.is_recent(now));
        let (agent, other) = (agents.next().ok_or(NoNode::Unknown)?, agents.next());
        if other.is_some() {
            return Err(NoNode::Shared);
        }
        let is_current = |at: Timestamp| (0..=CURRENT_US).contains(&now.since(at));
        if !agent.identified.is_some_and(is_current) {
            return Err(NoNode::Unknown);
        }
        let age_us = now.since(found.since);
        if age_us < self.new_us {
            let left_us = self.new_us.saturating_sub(age_us.max(0));
            let seconds = u64::try_from(left_us).unwrap_or(0).div_ceil(1_000_000);
            return Err(NoNode::New(u32::try_from(seconds).unwrap_or(u32::MAX)));
        }
        DeviceId::new(agent.origin.as_str()).map_err(|_| NoNode::Unknown)
    }
}

impl SeenAgent {
    /// Also after the clock was set back.
    fn is_recent(&self, now: Timestamp) -> bool {
        now.since(self.at) <= SHARED_US
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "10.0.0.7";

    struct Lab(AgentAddresses);

    impl Lab {
        fn sends(&self, second: i64, origin: &str, is_identified: bool) {
            self.sends_from(ADDRESS, second, origin, is_identified);
        }

        fn sends_from(&self, address: &str, second: i64, origin: &str, is_identified: bool) {
            let origin = Origin::new(origin).unwrap();
            self.0.note(
                address.parse().unwrap(),
                &origin,
                is_identified,
                Timestamp::from_seconds(second),
            );
        }

        fn node(&self, second: i64) -> Result<String, NoNode> {
            let node = self.0.node(ADDRESS.parse().unwrap(), Timestamp::from_seconds(second));
            node.map(|node| node.to_string())
        }
    }

    fn lab() -> Lab {
        Lab(AgentAddresses::new(Duration::from_secs(120)))
    }

    #[test]
    fn an_agent_identifies_its_node_while_it_sends() {
        let lab = lab();
        assert_eq!(lab.node(0), Err(NoNode::Unknown));
        lab.sends(0, "n1", true);
        assert_eq!(lab.node(0), Err(NoNode::New(120)));
        assert_eq!(lab.node(119), Err(NoNode::New(1)));
        lab.sends(100, "n1", true);
        assert_eq!(lab.node(120).as_deref(), Ok("n1"));
        assert_eq!(lab.node(220).as_deref(), Ok("n1"));
        assert_eq!(lab.node(221), Err(NoNode::Unknown), "it no longer sends");
        assert_eq!(lab.node(90), Err(NoNode::Unknown), "the clock was set back");
        lab.sends(400, "n1", true);
        assert_eq!(lab.node(400).as_deref(), Ok("n1"));
    }

    #[test]
    fn an_address_is_new_after_an_hour_without_an_agent() {
        let lab = lab();
        lab.sends(0, "n1", true);
        lab.sends(3600, "n1", true);
        assert_eq!(lab.node(3600).as_deref(), Ok("n1"), "an hour is not over");
        lab.sends(7201, "n1", true);
        assert_eq!(lab.node(7201), Err(NoNode::New(120)));
        lab.sends(7300, "n1", true);
        assert_eq!(lab.node(7321).as_deref(), Ok("n1"));
    }

    #[test]
    fn an_agent_without_a_token_of_its_own_never_counts_but_shares_the_address() {
        let lab = lab();
        for second in (0..600).step_by(10) {
            lab.sends(second, "n1", false);
        }
        assert_eq!(lab.node(600), Err(NoNode::Unknown));
        for second in (600..900).step_by(10) {
            lab.sends(second, "n2", true);
        }
        assert_eq!(lab.node(900), Err(NoNode::Shared));
    }

    #[test]
    fn a_shared_address_identifies_no_node_for_an_hour() {
        let lab = lab();
        lab.sends(0, "n1", true);
        lab.sends(1000, "n2", true);
        for second in (1000..5000).step_by(60) {
            lab.sends(second, "n1", true);
            let shared = second <= 1000 + 3600;
            let expected = if shared { Err(NoNode::Shared) } else { Ok("n1".to_owned()) };
            assert_eq!(lab.node(second), expected, "{second}");
        }
        // Many agents behind one address keep it shared.
        for second in 5000..5100 {
            lab.sends(second, &format!("n{}", second % 50), true);
            assert_eq!(lab.node(second), Err(NoNode::Shared));
        }
        assert!(lab.0.known.lock()[&ADDRESS.parse().unwrap()].agents.len() <= AGENTS_MAX);
    }

    #[test]
    fn the_number_of_addresses_is_bounded() {
        let lab = lab();
        for number in 0..=ADDRESSES_MAX {
            let address =
                format!("10.{}.{}.{}", 1 + number / 65_536, number / 256 % 256, number % 256);
            lab.sends_from(&address, 0, "n1", true);
        }
        assert_eq!((lab.0.known.lock().len(), lab.0.not_remembered.get()), (ADDRESSES_MAX, 1));
        lab.sends(3601, "n1", true);
        assert_eq!(lab.0.known.lock().len(), 1, "those of the last hour remain");
    }
}
