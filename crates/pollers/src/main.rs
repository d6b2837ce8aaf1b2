//! `jobmeter-poller`: reads devices outside of the nodes.

use std::process::ExitCode;

fn main() -> ExitCode {
    pollers::program::main()
}
