//! Readings and failures of requests.

use crate::descriptions::Description;
use crate::meaning::{Exposed, Meaning};
use model::{Cause, DeviceId, Labels, Metric, Timestamp};
use std::borrow::Cow;
use std::sync::Arc;

/// A value of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The metric's name as it is stored.
    pub metric: String,
    /// Its kind and unit.
    pub meaning: Meaning,
    /// Its help; empty if nothing states it.
    pub help: Arc<str>,
    /// The device.
    pub device: DeviceId,
    /// Labels.
    pub labels: Labels,
    /// The instant.
    pub at: Timestamp,
    /// Whether the target states the instant.
    pub is_stated: bool,
    /// The value.
    pub value: f64,
}

impl Reading {
    /// A value that a description requests, scaled by its factor.
    pub(super) fn of(description: &Description, labels: Labels, at: Timestamp, value: f64) -> Self {
        let exposed = Exposed::default();
        Self::exposed(description, description.name.clone(), &exposed, (labels, at, value))
    }

    /// A metric of an exporter under its stored name.
    pub(super) fn exposed(
        description: &Description,
        metric: String,
        exposed: &Exposed,
        (labels, at, value): (Labels, Timestamp, f64),
    ) -> Self {
        let declared = &description.declared;
        Self {
            meaning: Meaning::of(&metric, declared.kind, declared.unit, exposed),
            metric,
            help: declared.help.clone().unwrap_or_else(|| Arc::clone(&exposed.help)),
            device: description.device.clone(),
            labels,
            at,
            is_stated: false,
            value: scaled(description, value),
        }
    }

    /// The definition of its metric.
    pub(crate) fn definition(&self) -> Metric {
        Metric {
            name: self.metric.clone().into(),
            unit: self.meaning.unit,
            kind: self.meaning.kind,
            help: self.help.to_string().into(),
            divisor: 1,
            assumed: !self.meaning.is_declared,
        }
    }
}

fn scaled(description: &Description, value: f64) -> f64 {
    description.rare().scale_factor.map_or(value, |factor| value * factor)
}

/// Why a request has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// The cause of the gap.
    pub cause: Cause,
    /// The problem, without secrets.
    pub what: Cow<'static, str>,
    /// Whether the user or password was rejected: further attempts may lock the account.
    pub is_account: bool,
    /// Whether there was no reply.
    pub is_silence: bool,
}

impl Failure {
    fn of(cause: Cause, what: impl Into<Cow<'static, str>>) -> Self {
        Self { cause, what: what.into(), is_account: false, is_silence: false }
    }

    /// The answer of the device is wrong, or has no value.
    pub(crate) fn broken(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Cause::SourceBroken, what)
    }

    /// The device is not reachable.
    pub(crate) fn unreachable(what: impl Into<Cow<'static, str>>) -> Self {
        Self { is_silence: true, ..Self::broken(what) }
    }

    /// The device permits no reading, or its certificate is rejected.
    pub(crate) fn denied(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Cause::PermissionLost, what)
    }

    /// The user or password is rejected.
    pub(crate) fn rejected_user(what: impl Into<Cow<'static, str>>) -> Self {
        Self { is_account: true, ..Self::denied(what) }
    }

    /// No answer in time.
    pub(crate) fn timeout(what: impl Into<Cow<'static, str>>) -> Self {
        Self { is_silence: true, ..Self::of(Cause::SourceTimeout, what) }
    }

    /// Polls that an earlier one delayed.
    pub(crate) fn missed_ticks(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(Cause::MissedTicks, what)
    }
}
