//! The folders on disk, opened as the settings say.

use crate::batches::pending_gaps_and_job_events::PendingEvents;
use crate::common::counters::Counters;
use crate::common::error::DeliveryError;
use crate::connection::endpoints::spool_dir;
use crate::disk::durable_watermark::DurableWatermark;
use crate::disk::rejected_batches::RejectedBatches;
use crate::disk::spool::{Spool, SpoolLimits};
use config::SpoolSettings;
use model::Timestamp;
use std::path::Path;
use std::sync::Arc;

/// The folders on disk, if the settings enable them.
#[derive(Debug, Default)]
pub struct Folders {
    pub(crate) spool: Option<Spool>,
    pub(crate) kept: Option<DurableWatermark>,
    /// Time until which an earlier start kept everything.
    pub kept_until: Option<Timestamp>,
    pub(crate) rejected: Option<RejectedBatches>,
}

impl Folders {
    /// Opens the folders. An unusable default folder is only logged; a configured one must be usable.
    ///
    /// # Errors
    /// The configured folder cannot be used, or other users may write to the folder.
    pub fn open(
        settings: &SpoolSettings,
        notes: &Arc<PendingEvents>,
        counters: &Arc<Counters>,
    ) -> Result<Self, DeliveryError> {
        if matches!(settings.spool, Some(config::Spool::None)) {
            return Ok(Self::default());
        }
        let named = settings.spool.is_some();
        let Some(dir) = spool_dir(settings) else {
            log::warn!(
                "no folder for a spool; samples are lost while the server is unavailable; \
                        set `spool`"
            );
            return Ok(Self::default());
        };
        let open = || {
            let limits = spool_limits(settings);
            let spool = Spool::open(&dir, limits, Arc::clone(notes), Arc::clone(counters))?;
            let (kept, kept_until) = DurableWatermark::open(&dir, notes.origin())?;
            let rejected = RejectedBatches::open(&dir, settings.rejected_bytes_max.0)?;
            let (spool, kept, rejected) = (Some(spool), Some(kept), Some(rejected));
            Ok(Self { spool, kept, kept_until, rejected })
        };
        match open() {
            Ok(folders) => Ok(folders),
            Err(why) if named || kernel::trust::is_untrusted(&why) => {
                Err(DeliveryError::Spool { dir, why })
            }
            Err(why) => {
                log::warn!(
                    "no spool in {}: {why}; samples are lost while the server is unavailable; set \
                     `spool`",
                    dir.display()
                );
                Ok(Self::default())
            }
        }
    }

    /// Folder of the spool.
    pub fn dir(&self) -> Option<&Path> {
        self.spool.as_ref().map(Spool::dir)
    }
}

/// Finds why an agent could not use a spool that is set, without creating it.
pub fn check_spool(settings: &SpoolSettings) -> Option<String> {
    settings.spool.as_ref()?;
    let dir = spool_dir(settings)?;
    let why = kernel::trust::check_own_folder(&dir).err()?;
    // An agent of the folder's owner can use it.
    let is_usable = kernel::trust::is_anothers(&dir, &why);
    (!is_usable).then(|| DeliveryError::Spool { dir, why }.to_string())
}

pub(crate) const fn spool_limits(settings: &SpoolSettings) -> SpoolLimits {
    let age = settings.spool_age_max.as_micros();
    #[expect(clippy::cast_possible_truncation, reason = "a year at most, by the setting's bounds")]
    let age_max_us = age as i64;
    SpoolLimits { bytes_max: settings.spool_bytes_max.0, age_max_us, sync: settings.spool_sync }
}
