#!/usr/bin/env bash
# Compares the store with VictoriaMetrics on the same samples in the same run: crates/query/benches/victoria.
# This program printed the figures in docs/performance.md.
#
# VictoriaMetrics comes from Debian's package victoria-metrics. An installed one is used as it is. Otherwise
# the package is unpacked below target/bench but not installed, so that no service of it is ever enabled or
# started. It needs libzstd.so.1 (Debian's libzstd1, part of every Debian). It listens on a free loopback
# port, keeps its data in a directory of its own, and ends with the bench.
#
# Arguments: none. VICTORIA_PROGRAM names another program.
set -eu
cd "$(dirname "$0")/.."
place=$PWD/target/bench
package=victoria-metrics

program=${VICTORIA_PROGRAM:-$(command -v "$package" || echo "$place/victoria/usr/bin/$package")}
if [ ! -x "$program" ]; then
    if ! command -v apt-get >/dev/null; then
        echo "$package is missing: name its program by VICTORIA_PROGRAM; on Debian the package $package has it" >&2
        exit 1
    fi
    mkdir -p "$place/victoria"
    # Old package lists name a package version that the mirror no longer has. Only root can update them.
    [ "$(id -u)" != 0 ] || apt-get -o DPkg::Lock::Timeout=300 update -q >&2
    (cd "$place/victoria" && apt-get download -q "$package" >&2) || {
        echo "$package is missing: as root, type: apt-get update" >&2
        exit 1
    }
    dpkg-deb -x "$place/victoria/${package}"_*.deb "$place/victoria"
fi
exec "${CARGO:-cargo}" bench --locked -p query --bench victoria -- "$program"
