//! The limits of senders: everything is bounded, and every reached limit is counted and reported.

use crate::share::Share;
use model::{Origin, Timestamp};
use storage::DeclaredMetrics;

/// Limits of what senders may have in a store. [`Limits::default`] suits one server on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most live series: sent by a batch within [`Self::series_idle_us`].
    pub series_max: usize,
    /// Most of them from one origin.
    pub series_per_origin_max: usize,
    /// Most series of one command of `jobmeter run`. All such commands together have a quarter of
    /// [`Self::series_max`] and of [`Self::origins_max`].
    pub series_per_run_max: usize,
    /// Most series of rows that one user inserts: they appear in the lists of a node that others read, too. They count in
    /// the quarter of commands.
    pub series_per_inserting_user_max: usize,
    /// Metrics with a built-in meaning; the catalogue's limits do not count them.
    pub declared: DeclaredMetrics,
    /// Most other metrics in the catalogue.
    pub metrics_max: usize,
    /// Most of them from one origin. All commands of `jobmeter run` count as one origin.
    pub metrics_per_origin_max: usize,
    /// Most known origins.
    pub origins_max: usize,
    /// A series without samples for this time is dropped from memory; its blocks remain.
    pub series_idle_us: i64,
    /// A batch within this time of its boot's last one is recognised as a duplicate; longer than any sender
    /// keeps batches.
    pub window_us: i64,
    /// Most boots of an origin in the window.
    pub boots_max: usize,
    /// Most holes in the numbers of a boot; beyond, the oldest is given up.
    pub missing_max: usize,
    /// Age at which a hole in the numbers of a boot counts as a gap.
    pub missing_grace_us: i64,
    /// Most gaps stored; beyond, the origin with the most gaps loses its oldest one, which is counted.
    pub gaps_max: usize,
    /// Most gaps of one origin; beyond, it loses its oldest one.
    pub gaps_per_origin_max: usize,
    /// Most gaps of one command of `jobmeter run`. All such commands together have a quarter of
    /// [`Self::gaps_max`].
    pub gaps_per_run_max: usize,
}

impl Limits {
    /// The same without limits of series, metrics and origins: acknowledged samples are kept.
    #[must_use]
    pub fn unlimited(self) -> Self {
        Self {
            series_max: usize::MAX,
            series_per_origin_max: usize::MAX,
            series_per_run_max: usize::MAX,
            series_per_inserting_user_max: usize::MAX,
            metrics_max: usize::MAX,
            metrics_per_origin_max: usize::MAX,
            origins_max: usize::MAX,
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        const MINUTE: i64 = 60 * Timestamp::SECOND;
        const DAY: i64 = 24 * 60 * MINUTE;
        Self {
            series_max: 2_000_000,
            series_per_origin_max: 200_000,
            series_per_run_max: 20_000,
            series_per_inserting_user_max: 1_000,
            declared: DeclaredMetrics::default(),
            metrics_max: 20_000,
            metrics_per_origin_max: 2_000,
            origins_max: 20_000,
            series_idle_us: 60 * MINUTE,
            window_us: 8 * DAY,
            boots_max: 256,
            missing_max: 4096,
            missing_grace_us: MINUTE,
            gaps_max: 200_000,
            gaps_per_origin_max: 10_000,
            gaps_per_run_max: 64,
        }
    }
}

/// Why a series' samples are rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejection {
    #[error("the server has {0} series, its limit")]
    Series(usize),
    #[error("origin {origin} has {max} series, its limit")]
    OriginSeries { origin: Origin, max: usize },
    #[error("{0} have {1} series, their limit")]
    ShareSeries(Share, usize),
    #[error("the server has {0} metrics that no source declares, its limit")]
    Metrics(usize),
    #[error("origin {origin} has {max} metrics that no source declares, its limit")]
    OriginMetrics { origin: Origin, max: usize },
    #[error("{0} have {1} metrics of their own, their limit")]
    ShareMetrics(&'static str, usize),
    #[error("{0}")]
    Meaning(String),
    #[error("label `{0}` is reserved: the server adds it to responses")]
    Label(&'static str),
}
