//! How much an agent returns in one response.

use async_snmp::Oid;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of the variables of a response: with the security of version 3 it is one packet of Ethernet.
const BYTES_MAX: usize = 1300;
/// Bytes of a variable beside its OID, with a number of 64 bits.
const VALUE_BYTES: usize = 14;
/// Time after which an agent may have longer responses again.
const LOWERED_FOR: Duration = Duration::from_secs(3600);

/// How much an agent returns in one response.
#[derive(Debug)]
pub(super) struct Limits {
    /// Most bytes of the variables in a response to GET, and to GETBULK.
    pub(super) get: usize,
    pub(super) bulk: usize,
    /// Whether GETBULK was sent and nothing has answered it.
    pub(super) is_unanswered: bool,
    /// When lowered limits end: an agent may have changed, or only one of its values was broken.
    until: Option<Instant>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { get: BYTES_MAX, bulk: BYTES_MAX, is_unanswered: false, until: None }
    }
}

impl Limits {
    /// The limits of an exchange that begins.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.until.is_some_and(|until| until <= now) {
            let is_unanswered = self.is_unanswered;
            *self = Self { is_unanswered, ..Self::default() };
        }
        // An exchange that ended without the response was too short to notice.
        if std::mem::take(&mut self.is_unanswered) {
            self.lower_bulk(0);
        }
    }

    pub(super) fn lower_get(&mut self, most: usize) {
        self.get = self.get.min(most).max(1);
        self.lower_bulk(most);
    }

    pub(super) fn lower_bulk(&mut self, most: usize) {
        self.bulk = self.bulk.min(most);
        self.until = self.until.or_else(|| Some(Instant::now() + LOWERED_FOR));
    }
}

/// About the bytes of a variable in a response.
pub(super) fn bytes(oid: &Oid) -> usize {
    let bits = |arc: &u32| u32::BITS - arc.leading_zeros();
    let arcs = oid.arcs().iter().map(|arc| bits(arc).div_ceil(7).max(1));
    VALUE_BYTES + usize::try_from(arcs.sum::<u32>()).unwrap_or(usize::MAX - VALUE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_the_bytes_of_its_oid_and_its_value() {
        assert_eq!(bytes(&Oid::from_slice(&[1, 3, 6, 1, 127, 0])), VALUE_BYTES + 6);
        assert_eq!(bytes(&Oid::from_slice(&[1, 3, 128, u32::MAX])), VALUE_BYTES + 9);
    }

    #[test]
    fn an_agent_that_is_silent_about_getbulk_has_get_for_an_hour() {
        let (mut limits, now) = (Limits::default(), Instant::now());
        limits.begin(now);
        assert_eq!((limits.get, limits.bulk), (BYTES_MAX, BYTES_MAX));
        // The exchange ended before the response.
        limits.is_unanswered = true;
        limits.begin(now);
        assert_eq!((limits.get, limits.bulk, limits.is_unanswered), (BYTES_MAX, 0, false));
        limits.lower_get(650);
        limits.lower_bulk(900);
        limits.begin(now + LOWERED_FOR / 2);
        assert_eq!((limits.get, limits.bulk), (650, 0), "limits only fall");
        limits.begin(now + LOWERED_FOR * 2);
        assert_eq!((limits.get, limits.bulk), (BYTES_MAX, BYTES_MAX));
        limits.lower_get(0);
        assert_eq!((limits.get, limits.bulk), (1, 0), "something is always requested");
    }
}
