#!/usr/bin/env bash
# Installs the programs of a release build, their manual pages and shell completions, and the systemd units if systemd
# exists. PREFIX (/usr/local), DESTDIR and UNITS (/etc/systemd/system) set the folders; BUILT (target/release) is the
# folder of the programs. The script starts and enables nothing.
set -eu
cd "$(dirname "$0")/.."
prefix=${DESTDIR:-}${PREFIX:-/usr/local}
units=${DESTDIR:-}${UNITS:-/etc/systemd/system}
built=${BUILT:-target/release}
install -d "$prefix/bin"
install -m 755 "$built"/jobmeter{,-agent,-server,-poller} "$prefix/bin/"
generated=$(mktemp -d)
trap 'rm -r "$generated"' EXIT
mkdir "$generated/man"
"$built/jobmeter" man "$generated/man"
install -d "$prefix/share/man/man1"
install -m 644 "$generated"/man/*.1 "$prefix/share/man/man1/"
completions() { # SHELL FOLDER PREFIX SUFFIX: the shell's folder, and the file name around a program's name
    install -d "$prefix/share/$2"
    for program in jobmeter jobmeter-agent jobmeter-server; do
        "$built/jobmeter" completions "$1" "$program" >"$generated/script"
        install -m 644 "$generated/script" "$prefix/share/$2/$3$program$4"
    done
}
completions bash bash-completion/completions '' ''
completions zsh zsh/site-functions _ ''
completions fish fish/vendor_completions.d '' .fish
if [ -n "${DESTDIR:-}" ] || [ -d /run/systemd/system ]; then
    install -d "$units"
    for unit in packaging/*.service packaging/*.socket; do
        sed "s|/usr/local|${PREFIX:-/usr/local}|" "$unit" >"$units/$(basename "$unit")"
    done
    echo "to start at boot: systemctl enable --now jobmeter-server jobmeter-agent"
fi
