//! Authentication and access control: connections, certificates, tokens, groups, rights and the audit log.
//!
//! - `authentication`: identifies the caller of a request by `tokens`, `certificate` or the kernel (`peer`,
//!   `connection`). `page_origins`: what pages of other origins may read.
//! - `addresses`: addresses of clients, and the nodes that they identify.
//! - `caller`: the resulting rights. `access_settings`, `staff_groups`, `name_service`: the staff. `origin_policy`:
//!   the devices a sender may name.
//! - `audit`: a log of changes and reads. `file_trust`: whether others can write a file. `tls`: the
//!   server's keys and certificates.

pub(crate) mod access_settings;
pub(crate) mod addresses;
pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod caller;
pub(crate) mod certificate;
pub(crate) mod file_trust;
pub(crate) mod name_service;
pub(crate) mod origin_policy;
pub(crate) mod page_origins;
pub(crate) mod peer;
pub(crate) mod staff_groups;
pub(crate) mod tls;
pub(crate) mod tokens;

pub(crate) use addresses::connection;
pub(crate) use tokens::user_tokens;
