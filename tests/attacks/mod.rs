//! Attacks by an ordinary user, each of which must fail.

pub(crate) mod authorities;
pub(crate) mod forged_oom_kill;
pub(crate) mod hostile;
pub(crate) mod hostile_corpus;
pub(crate) mod injection;
pub(crate) mod injection_corpus;
pub(crate) mod injection_requests;
pub(crate) mod listener;
pub(crate) mod pg_sessions;
pub(crate) mod statements;

pub(crate) mod stolen_port;
