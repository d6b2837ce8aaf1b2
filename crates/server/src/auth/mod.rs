//! Who sends a request and what he may do: connections, certificates, tokens, groups, rights, the audit.

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
