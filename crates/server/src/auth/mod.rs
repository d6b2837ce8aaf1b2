//! Who sends a request and what he may do: connections, certificates, tokens, groups, rights, the audit.
//!
//! - `authentication`: who sends a request, by `tokens`, `made_tokens`, `certificate` or the kernel (`peer`, `connection`).
//! - `caller`: the rights that result. `access`, `staff_groups`, `name_service`: the staff. `origin_policy`: which device a sender may name.
//! - `audit`: what was changed and read. `file_trust`: whether others can write a file. `tls`: keys and certificates of the server.

pub(crate) mod access;
pub(crate) mod audit;
pub(crate) mod authentication;
pub(crate) mod caller;
pub(crate) mod certificate;
pub(crate) mod connection;
pub(crate) mod file_trust;
pub(crate) mod made_tokens;
pub(crate) mod name_service;
pub(crate) mod origin_policy;
pub(crate) mod peer;
pub(crate) mod staff_groups;
pub(crate) mod tls;
pub(crate) mod tokens;
