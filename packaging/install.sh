#!/usr/bin/env bash
# Installs the programs of a release build with their manual pages and what makes shells complete their words, and the
# systemd units where there is systemd. PREFIX (/usr/local), DESTDIR and UNITS (/etc/systemd/system) say where; BUILT
# (target/release) where the programs lie. Nothing is started or enabled.
set -eu
cd "$(dirname "$0")/.."
prefix=${DESTDIR:-}${PREFIX:-/usr/local}
units=${DESTDIR:-}${UNITS:-/etc/systemd/system}
built=${BUILT:-target/release}
install -d "$prefix/bin"
install -m 755 "$built"/jobmeter{,-agent,-server} "$prefix/bin/"
told=$(mktemp -d)
trap 'rm -r "$told"' EXIT
mkdir "$told/man"
"$built/jobmeter" man "$told/man"
install -d "$prefix/share/man/man1"
install -m 644 "$told"/man/*.1 "$prefix/share/man/man1/"
completions() { # SHELL FOLDER BEFORE AFTER: where the shell looks, and what stands around a program's name
    install -d "$prefix/share/$2"
    for program in jobmeter jobmeter-agent jobmeter-server; do
        "$built/jobmeter" completions "$1" "$program" >"$told/script"
        install -m 644 "$told/script" "$prefix/share/$2/$3$program$4"
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
