//! Devices in groups, each an origin with a delivery of its own (docs/decisions/0041-origins-of-pollers.md).
//!
//! - `missing`: a missing time of a device
//! - `assignment`: which group a device belongs to
//! - `name_share`: a limit of the names of an exporter
//! - `patient_output`: a queue that waits for its reader
//! - `device_times`: a file with an instant for each device
//! - `first_descriptions`: since when each device is described
//! - `completeness`: until when samples and gaps of each device are complete, also across a kill
//! - `spool_folders`: the folders of the groups' spools
//! - `group`, `groups`: the devices of one origin with their samples; all of them

mod assignment;
mod completeness;
mod device_times;
mod first_descriptions;
mod group;
mod groups;
mod missing;
mod name_share;
mod patient_output;
mod spool_folders;

pub(crate) use assignment::chance;
pub(crate) use completeness::CompleteUntil;
pub(crate) use group::{Group, GroupStart, SEAL_EVERY};
pub use groups::GroupsError;
pub(crate) use groups::{Devices, Groups};
pub(crate) use missing::Missing;
pub(crate) use spool_folders::{earlier_groups, spool_folder};
