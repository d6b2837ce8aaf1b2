//! libFuzzer's entry point: `FUZZ_TARGET` names the target.
#![no_main]

use std::sync::OnceLock;

static TARGET: OnceLock<fuzz::Target> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let chosen = || {
        let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
        fuzz::target(&name).unwrap_or_else(|| {
            eprintln!(
                "set FUZZ_TARGET to one of: {:?}",
                fuzz::TARGETS.iter().map(|t| t.0).collect::<Vec<_>>()
            );
            std::process::exit(2)
        })
    };
    TARGET.get_or_init(chosen)(bytes);
});
