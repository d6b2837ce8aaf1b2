//! Devices read by `jobmeter poll`.

pub(crate) mod ipmi;
pub(crate) mod redfish;
pub(crate) mod restarts;
pub(crate) mod snmpsim;
