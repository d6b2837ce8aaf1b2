#!/usr/bin/env bash
# The store beside VictoriaMetrics, on the same samples in the same run: crates/query/benches/victoria. What
# stands in docs/performance.md was printed by this.
#
# VictoriaMetrics is the program of Debian's package victoria-metrics. One that is installed is used as it is;
# else the package is unpacked below target/bench and not installed, so that no service of it is ever started or
# enabled. It needs libzstd.so.1 (Debian's libzstd1, there on every Debian). It listens on a free port of
# loopback, keeps its data in a directory of its own, and is ended with the bench.
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
    # Lists that are old name a package that is there no more; who is not root lives with them.
    [ "$(id -u)" != 0 ] || apt-get -o DPkg::Lock::Timeout=300 update -q >&2
    (cd "$place/victoria" && apt-get download -q "$package" >&2) || {
        echo "$package is missing: as root, type: apt-get update" >&2
        exit 1
    }
    dpkg-deb -x "$place/victoria/${package}"_*.deb "$place/victoria"
fi
exec "${CARGO:-cargo}" bench --locked -p query --bench victoria -- "$program"
