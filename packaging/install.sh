#!/usr/bin/env bash
# Installs the programs of a release build, and the systemd units where there is systemd. PREFIX (/usr/local), DESTDIR and
# UNITS (/etc/systemd/system) say where. Nothing is started or enabled.
set -eu
cd "$(dirname "$0")/.."
prefix=${DESTDIR:-}${PREFIX:-/usr/local}
units=${DESTDIR:-}${UNITS:-/etc/systemd/system}
install -d "$prefix/bin"
install -m 755 target/release/jobmeter{,-agent,-server} "$prefix/bin/"
if [ -n "${DESTDIR:-}" ] || [ -d /run/systemd/system ]; then
    install -d "$units"
    for unit in packaging/*.service; do
        sed "s|/usr/local|${PREFIX:-/usr/local}|" "$unit" >"$units/$(basename "$unit")"
    done
    echo "to start at boot: systemctl enable --now jobmeter-server jobmeter-agent"
fi
