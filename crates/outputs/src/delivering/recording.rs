//! Colmet's records of the slices of an output.

use crate::delivering::marked_file::MarkedFile;
use crate::records::{Layout, LeftOut, Records};
use colmet::record::Record;
use model::Timestamp;
use std::io;
use std::path::Path;
use storage::{FollowMark, TimeSlice};

/// Makes records, and keeps what is not complete in a file.
#[derive(Debug)]
pub(super) struct Recording {
    layout: Layout,
    file: MarkedFile,
    /// `None`: the last slice comes again, or none has come.
    records: Option<Records>,
}

impl Recording {
    /// For an output of this name and folder.
    pub(super) fn new(layout: Layout, name: &str, folder: &Path) -> Self {
        log::info!(
            "output `{name}` writes Colmet's records: a missing value is -1, and 0 in columns that hold no sign"
        );
        if layout.events_left_out > 0 {
            log::warn!(
                "output `{name}`: perfhw has five counters; the last {} of `perf_counters` are left out",
                layout.events_left_out
            );
        }
        Self { layout, file: MarkedFile::new(folder, "records"), records: None }
    }

    /// The records that are complete after a slice, and the samples that no record has. Everything before `ended` was
    /// delivered; `now` is the present time.
    ///
    /// # Errors
    /// The file cannot be read or written. The same slice must follow.
    pub(super) fn take(
        &mut self,
        slice: &TimeSlice,
        mark: FollowMark,
        (ended, now): (Option<Timestamp>, Timestamp),
    ) -> io::Result<(Vec<Record>, LeftOut)> {
        let mut records = match self.records.take() {
            Some(records) => records,
            None => match self.file.read(mark)? {
                Some(kept) => Records::with(self.layout.clone(), &kept).map_err(|error| {
                    io::Error::other(format!("records.json is damaged ({error}); delete it"))
                })?,
                None => Records::new(self.layout.clone()),
            },
        };
        let taken = records.take(slice, ended, now);
        self.file.write(&records.kept()?, mark)?;
        self.records = Some(records);
        Ok(taken)
    }

    /// Forgets what is in memory: the last slice comes again.
    pub(super) fn forget(&mut self) {
        self.records = None;
    }
}
