//! The rejected samples of a batch, and their gaps.

use crate::origin::device_named_like;
use model::{Cause, DeviceId, Gap, Origin, Timestamp};
use std::collections::BTreeMap;

/// Most gaps for the rejected samples of one batch.
const REJECTED_GAPS_MAX: usize = 64;

/// The rejected samples, by device and source.
#[derive(Debug, Default)]
pub(crate) struct RejectedSamples {
    pub(crate) count: u32,
    of: BTreeMap<(DeviceId, Box<str>), RejectedPart>,
    /// The others, if some did not fit into `of`.
    more: Option<RejectedPart>,
}

/// The rejected samples of a device and source.
#[derive(Debug)]
struct RejectedPart {
    why: String,
    first: Timestamp,
    last: Timestamp,
}

impl RejectedSamples {
    pub(crate) fn add(
        &mut self,
        (device, source): (&DeviceId, &str),
        at: Timestamp,
        why: impl FnOnce() -> String,
    ) {
        self.count = self.count.saturating_add(1);
        let key = (device.clone(), source.into());
        if let Some(part) = self.of.get_mut(&key) {
            part.extend(at);
        } else if self.of.len() < REJECTED_GAPS_MAX {
            self.of.insert(key, RejectedPart { why: why(), first: at, last: at });
        } else {
            let why = "samples of many devices".to_owned();
            self.more.get_or_insert(RejectedPart { why, first: at, last: at }).extend(at);
        }
    }

    pub(crate) fn reason(&self) -> String {
        self.of.values().next().map(|part| part.why.clone()).unwrap_or_default()
    }

    /// A gap for each device and source: from the origin's last batch, if it is earlier, to just after its own last sample.
    /// Other devices may have other instants.
    pub(crate) fn gaps(
        &self,
        origin: &Origin,
        sealed: Timestamp,
        received: Timestamp,
        is_possible: impl Fn(Timestamp) -> bool,
    ) -> Vec<Gap> {
        let gap = |device: DeviceId, source: Box<str>, part: &RejectedPart| {
            let (first, last) = match is_possible(part.first) && is_possible(part.last) {
                true => (part.first, part.last),
                false => (received, received),
            };
            let follows = sealed >= Timestamp::YEAR_2000 && sealed < first && first <= received;
            Gap {
                origin: origin.clone(),
                device,
                source,
                from: if follows { sealed } else { first.plus(-1) },
                to: last.plus(1),
                cause: Cause::SeriesRejected,
                detail: part.why.as_str().into(),
            }
        };
        let each = self.of.iter();
        let each = each.map(|((device, source), part)| gap(device.clone(), source.clone(), part));
        let more = self.more.as_ref().zip(device_named_like(origin));
        each.chain(more.map(|(part, device)| gap(device, "".into(), part))).collect()
    }
}

impl RejectedPart {
    fn extend(&mut self, at: Timestamp) {
        self.first = self.first.min(at);
        self.last = self.last.max(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_has_the_instants_of_its_own_device() {
        let device = |name: &str| DeviceId::new(name).unwrap();
        let year = Timestamp::YEAR_2000;
        let mut rejected = RejectedSamples::default();
        for (name, at) in
            [("old", 10), ("now", 1000), ("now", 1001), ("ahead", 9000), ("wrong", -5)]
        {
            rejected.add((&device(name), "power"), year.plus(at), || "why".to_owned());
        }
        let origin = Origin::new("poller-a/group-0").unwrap();
        let (sealed, received) = (year.plus(990), year.plus(1002));
        let gaps = rejected.gaps(&origin, sealed, received, |at| at >= year);
        let spans =
            gaps.iter().map(|gap| (gap.device.as_str(), gap.from.since(year), gap.to.since(year)));
        let spans: Vec<_> = spans.collect();
        let want =
            [("ahead", 8999, 9001), ("now", 990, 1002), ("old", 9, 11), ("wrong", 990, 1003)];
        assert_eq!(spans, want);
    }
}
