//! Whole-program tests: one binary that links no part of jobmeter and runs its programs.
//!
//! The programs are in the same build folder as this binary; `make test` builds them first.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "tests end at the first surprise, start programs, and take the time"
)]

mod agent_size;
mod authorities;
mod backup;
mod conservation;
mod demand;
mod docs_fresh;
mod doctor;
mod exec;
mod faults;
mod formula;
mod golden;
mod guide_commands;
mod held_port;
mod hostile;
mod hostile_corpus;
mod ipmi;
mod layers;
mod line;
mod listener;
mod nested;
mod nvml;
mod oar;
mod on_demand;
mod oom_kills;
mod openapi;
mod orders;
mod outputs;
mod page;
mod programs;
mod readers;
mod restarts;
mod runs;
mod sensors;
mod slurm;
mod statements;
mod stolen_port;
mod stops;
mod tidy;
mod told;
mod top;
mod truth;
mod truth_table;
mod two_servers;
mod variables;
