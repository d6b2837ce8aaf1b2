//! The command line.

pub(crate) mod check_folder;
pub(crate) mod colmet;
pub(crate) mod device_states;
pub(crate) mod devices;
pub(crate) mod guide_commands;
pub(crate) mod insert_rows;
pub(crate) mod kwollect_commands;
pub(crate) mod outputs;
pub(crate) mod poll_devices;
pub(crate) mod poll_once;
pub(crate) mod top;
pub(crate) mod variables;
