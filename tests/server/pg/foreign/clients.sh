#!/usr/bin/env bash
# Runs drivers of PostgreSQL in Go (lib/pq, pgx) and Java (JDBC) against the server that `make build-server` built. They need
# Go 1.22 or later, a JDK of version 17 or later, and Maven, and download their packages.
set -euo pipefail
cd "$(dirname "$0")/../../../.."
export PATH=$PATH:/usr/local/go/bin
missing=()
for program in go javac java mvn; do command -v $program >/dev/null || missing+=($program); done
[ ${#missing[@]} = 0 ] || { echo "missing: ${missing[*]}; install Go 1.22, a JDK and Maven" >&2; exit 1; }
here=$PWD/tests/server/pg/foreign built=$PWD/target/clients dir=$(mktemp -d) server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
mkdir -p "$built/classes"
(cd "$here/go" && go build -o "$built/go-clients" .)
mvn -q -f "$here/jdbc/pom.xml" dependency:copy-dependencies -DoutputDirectory="$built/jars"
javac -cp "$built/jars/*" -d "$built/classes" "$here/jdbc/Clients.java"

(umask 077 && printf 'staff reader-of-everything\npush:kw program-that-inserts\n' >"$dir/tokens")
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
target/debug/jobmeter-server --data "$dir/data" --listen 127.0.0.1:0 --pg-listen "127.0.0.1:$port" \
    --token-file "$dir/tokens" "$@" >"$dir/out" 2>&1 &
server=$!
for _ in $(seq 200); do grep -q '^ready' "$dir/out" && break; sleep 0.1; done
grep -q '^ready' "$dir/out" || { cat "$dir/out"; exit 1; }
"$built/go-clients" "$port" reader-of-everything program-that-inserts
java -cp "$built/classes:$built/jars/*" Clients "$port" reader-of-everything program-that-inserts
