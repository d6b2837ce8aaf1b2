#!/usr/bin/env bash
# Fuzzes each target for SECONDS_EACH seconds (60) under libFuzzer. Stable Rust: the coverage pass is LLVM's
# own, asked for by flags. What makes a target fail is kept in fuzz/corpus and fails `make test` until it
# is mended; what merely reached new code stays in target/fuzz.
set -eu
cd "$(dirname "$0")/.."
command -v c++ >/dev/null || { echo "libFuzzer needs a C++ compiler: apt-get install g++" >&2; exit 1; }
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 -Cdebug-assertions"
cargo build --locked -q --release -p fuzz --features libfuzzer --target x86_64-unknown-linux-gnu --target-dir target/fuzz
for corpus in fuzz/corpus/*/; do
    target=$(basename "$corpus")
    [ $# = 0 ] || [ "$1" = "$target" ] || continue
    mkdir -p "target/fuzz/corpus/$target"
    echo "== $target"
    FUZZ_TARGET=$target target/fuzz/x86_64-unknown-linux-gnu/release/fuzz -max_total_time="${SECONDS_EACH:-60}" \
        -artifact_prefix="$corpus" -verbosity=0 -print_final_stats=1 "target/fuzz/corpus/$target" "$corpus"
done
