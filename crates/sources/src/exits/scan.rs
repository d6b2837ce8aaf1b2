//! The scan of the jobs' lists that detects moved tasks.

use super::tree::Account;
use super::{Exits, now_us};
use crate::Context;
use kernel::clock;

/// Minimum interval of scans.
const SCAN_EVERY_US: u64 = 1_000_000;
/// A scan uses at most one part in so many of a processor.
const SCAN_COST: u64 = 500;

impl Exits {
    /// Whether jobs are scanned for moved tasks: all other tasks are reported by forks.
    const fn scans(&self) -> bool {
        self.forks.is_some() && !self.jobs.is_empty()
    }

    /// Lists all jobs if a scan is due; returns whether it did.
    pub(super) fn scan(&mut self, cx: &Context<'_>, account: &mut impl Account) -> bool {
        if !self.scans() || now_us(cx) < self.scan_us {
            return false;
        }
        let began_us = clock::thread_cpu_us();
        self.jobs.iter_mut().for_each(|job| job.listed = false);
        self.tree.begin_round();
        for place in 0..self.jobs.len() {
            let Some(no) = self.jobs.get(place).map(|job| job.no) else { break };
            // Failed lists are detected and reported by the next reading.
            self.list(no, cx, account).ok();
        }
        let cost_us = clock::thread_cpu_us().saturating_sub(began_us);
        self.scan_us = now_us(cx) + SCAN_EVERY_US.max(cost_us.saturating_mul(SCAN_COST));
        true
    }

    /// Time until the next scan, if there is one.
    pub(super) fn scan_in_us(&self, cx: &Context<'_>) -> Option<u64> {
        self.scans().then(|| self.scan_us.saturating_sub(now_us(cx)))
    }
}
