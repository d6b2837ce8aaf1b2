#!/usr/bin/env bash
# Runs every part of `make test` and prints the time of each. `all.sh check` is the quick part, `all.sh soak`
# the long one. A part that cannot run on this machine prints the reason and is listed in docs/testing.md. No
# part is skipped silently.
set -u
cd "$(dirname "$0")/.."
export CARGO_TERM_PROGRESS_WHEN=never CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
mode=${1:-all}
agent=$PWD/target/release/jobmeter-agent
results=() passed=0 failed=0
mkdir -p target
unstable=$(mktemp) programs=$PWD/target/test-programs.json beside_pid= beside_dir=$(mktemp -d)
trap '[ -z "$beside_pid" ] || kill "$beside_pid" 2>/dev/null; rm -rf "$unstable" "$beside_dir"' EXIT

# part NAME COMMAND...: runs a part, and records its time and its result.
part() {
    local name=$1 start log
    shift
    log=$(mktemp)
    echo "== $name: $*"
    start=$(date +%s)
    "$@" 2>&1 | tee "$log"
    result "$name" "${PIPESTATUS[0]}" $(($(date +%s) - start)) "$log"
    rm -f "$log"
}

# result NAME STATUS SECONDS LOG: records the result of a part. Of a failed part it prints the last lines.
result() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        results+=("$3 s  ok      $1")
    else
        failed=$((failed + 1))
        results+=("$3 s  FAILED  $1")
        echo "== $1 failed; its last lines:"
        tail -n 40 "$4"
    fi
}

# beside NAME...: starts parts in the background, one after the other, with the lowest priority. They use the
# processors while the tests wait. `beside_end` waits for them.
beside() {
    (
        renice -n 19 -p "$BASHPID" >/dev/null
        for name; do
            start=$(date +%s)
            "$name" >"$beside_dir/$name" 2>&1
            echo "$? $(($(date +%s) - start))" >"$beside_dir/$name.result"
        done
    ) &
    beside_pid=$!
}
beside_end() {
    wait "$beside_pid"
    beside_pid=
    for name; do
        local status=1 seconds=0
        [ -f "$beside_dir/$name.result" ] && read -r status seconds <"$beside_dir/$name.result"
        result "$name (beside the tests)" "$status" "$seconds" "$beside_dir/$name"
    done
}

# The version of PostgreSQL that this machine has, or that its package `postgresql` installs.
postgresql_version() {
    local installed=(/usr/lib/postgresql/*/bin/initdb)
    if [ -x "${installed[-1]}" ]; then
        basename "$(dirname "$(dirname "${installed[-1]}")")"
    else
        local found
        found=$(apt-cache depends postgresql 2>/dev/null | sed -n 's/.*Depends: postgresql-\([0-9]\+\)$/\1/p')
        # Without lists of packages: that of Debian 12.
        echo "${found:-15}"
    fi
}

# Maps each missing command to its Debian package and installs these packages.
packages() {
    local missing=()
    command -v chromium >/dev/null || missing+=(chromium)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    command -v setpriv >/dev/null || missing+=(util-linux)
    command -v git >/dev/null || missing+=(git)
    command -v tmux >/dev/null || missing+=(tmux)
    command -v zsh >/dev/null || missing+=(zsh)
    command -v fish >/dev/null || missing+=(fish)
    command -v pgrep >/dev/null || missing+=(procps)
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv)
    command -v qemu-system-x86_64 >/dev/null || missing+=(qemu-system-x86)
    busybox --list >/dev/null 2>&1 || missing+=(busybox-static)
    command -v cpio >/dev/null || missing+=(cpio)
    [ -x /usr/sbin/dmsetup ] || missing+=(dmsetup)
    [ -x /usr/sbin/mkfs.ext4 ] || missing+=(e2fsprogs)
    command -v perf >/dev/null || missing+=(linux-perf)
    command -v prometheus-node-exporter >/dev/null || missing+=(prometheus-node-exporter)
    [ -x /usr/sbin/snmpd ] || missing+=(snmpd)
    command -v snmpget >/dev/null || missing+=(snmp)
    command -v ipmi_sim >/dev/null || missing+=(openipmi)
    command -v ipmitool >/dev/null || missing+=(ipmitool)
    command -v openssl >/dev/null || missing+=(openssl)
    command -v h5dump >/dev/null || missing+=(hdf5-tools)
    [ -x /usr/sbin/slurmctld ] || missing+=(slurmctld)
    [ -x /usr/sbin/slurmd ] || missing+=(slurmd)
    [ -x /usr/sbin/slurmdbd ] || missing+=(slurmdbd)
    [ -x /usr/sbin/slurmrestd ] || missing+=(slurmrestd)
    command -v sbatch >/dev/null || missing+=(slurm-client)
    [ -x /usr/sbin/munged ] || missing+=(munge)
    [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server)
    [ -x /usr/sbin/Almighty ] || missing+=(oar-server oar-server-pgsql oar-node oar-user oar-user-pgsql)
    [ -f /usr/lib/oar/oarapi.pl ] || missing+=(oar-restful-api apache2)
    command -v carbon-cache >/dev/null || missing+=(graphite-carbon)
    [ -d /usr/lib/python3/dist-packages/graphite ] || missing+=(graphite-web)
    command -v gunicorn >/dev/null || missing+=(gunicorn)
    command -v psql >/dev/null || missing+=(postgresql-client)
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
    command -v mvn >/dev/null || missing+=(maven)
    ls /usr/lib/jvm/java-17-openjdk-*/bin/java >/dev/null 2>&1 || missing+=(openjdk-17-jre-headless)
    ls /usr/lib/postgresql/*/lib/plpython3.so >/dev/null 2>&1 || missing+=("postgresql-plpython3-$(postgresql_version)")
    [ ${#missing[@]} = 0 ] && { echo "every package is there"; return; }
    local sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    # RUNLEVEL=1: the installation starts no service.
    $sudo apt-get -o DPkg::Lock::Timeout=300 update -q &&
        $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -o DPkg::Lock::Timeout=300 \
            install -y --no-install-recommends "${missing[@]}"
}

# Installs the Python packages in a virtual environment below target/.
python() {
    local stamp=target/python/installed
    cmp -s tests/requirements.txt "$stamp" && { echo "every package is there"; return; }
    local alone install=(target/python/bin/pip install -q --disable-pip-version-check)
    alone=$(sed -n 's/^# Without its dependencies: //p' tests/requirements.txt)
    python3 -m venv --clear target/python &&
        "${install[@]}" -r tests/requirements.txt &&
        "${install[@]}" --no-deps "$alone" &&
        cp tests/requirements.txt "$stamp"
}
# Installs the packages of npm below target/: types, a compiler, PostgreSQL. Nothing of them runs at installation.
node_packages() {
    local from=tests/server/pg/npm to=target/npm
    cmp -s "$from/package-lock.json" "$to/installed" && { echo "every package is there"; return; }
    mkdir -p "$to" && cp "$from"/package*.json "$to/" &&
        (cd "$to" && npm ci --ignore-scripts --no-audit --no-fund) &&
        cp "$from/package-lock.json" "$to/installed"
}
# Fetches real receivers of outputs with Maven, and unpacks them below target/.
downloads() {
    local sum artifact name to=target/downloads
    mkdir -p "$to"
    while read -r sum artifact; do
        name=$(cut -d: -f2,3 --output-delimiter=- <<<"$artifact")
        [ -f "$to/$name/unpacked" ] && { echo "$name is there"; continue; }
        mvn -q -B -Dmaven.repo.local="$PWD/$to/maven" dependency:copy -Dartifact="$artifact" -DoutputDirectory="$PWD/$to" &&
            echo "$sum $to/$name.zip" | sha256sum --check --quiet &&
            rm -rf "${to:?}/$name" && python3 -m zipfile -e "$to/$name.zip" "$to" && touch "$to/$name/unpacked" || return 1
    done <<'END'
af7152d8b7f6f1cee09d47276b32b70479fe6dd8cdbb61213f84eb7f8098b261 org.opensearch.distribution.integ-test-zip:opensearch:2.19.1:zip
14833b2d86c30656901f92049f81fb5777a8e4545413c8656cd1a21b55173033 org.elasticsearch.distribution.integ-test-zip:elasticsearch:8.19.0:zip
END
}
fetch() { cargo fetch --locked; }
# cargo fmt does not reach modules that only a macro names.
format() {
    cargo fmt --all --check &&
        rustfmt --edition 2024 --check --config-path . \
            crates/sources/src/list/*.rs crates/sources/src/list/*/*.rs
}
lints() { cargo clippy --locked --workspace --all-targets -- -D warnings; }
rustdoc() { RUSTDOCFLAGS='-D warnings' cargo doc --locked --workspace --no-deps --exclude whole; }
doctests() { cargo test --locked --workspace --doc; }
# The agent's last step takes one processor for a minute. Meanwhile the other builds go on. Same options as in
# the Makefile.
build() {
    CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_OPT_LEVEL=s cargo build --locked --release -p agent &
    cargo build --locked --workspace --bins && python3 -B tests/common/programs.py build "$programs" --locked --workspace
    local status=$?
    wait $! && [ $status = 0 ]
}
crates() { python3 -B tests/common/programs.py run "$programs" "$unstable" --except whole; }
whole() { JOBMETER_AGENT_PROGRAM=$agent python3 -B tests/common/programs.py run "$programs" "$unstable" --only whole "$@"; }
# Real schedulers, and a hundred jobs at a load of 6, keep both processors busy. So these tests run one after
# the other.
# The store, both stores beside each other and the commands of the database on the oldest and the newest PostgreSQL, at once. Each is
# copied to where the user postgres can read it.
versions() {
    local folder version pids=() status=0
    folder=$(mktemp -d) && chmod 755 "$folder"
    for version in 13 17; do
        cp -r "target/npm/node_modules/postgresql-$version" "$folder/$version" &&
            (cd "$folder/$version" && node scripts/hydrate-symlinks.js && chmod -R a+rX .) || return 1
        on_version "$version" "$folder/$version/native/bin" >"$folder/log$version" 2>&1 &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || status=1; done
    cat "$folder"/log*
    echo "not run there, as these binaries have no plpython3: the answers of Kwollect's own functions; pg_dump of version 17"
    rm -rf "$folder"
    return $status
}
on_version() {
    echo "== PostgreSQL $1"
    export POSTGRESQL_PROGRAMS=$2 JOBMETER_AGENT_PROGRAM=$agent
    python3 -B tests/common/programs.py run "$programs" "$unstable" --only postgres &&
        python3 -B tests/common/programs.py run "$programs" "$unstable" --only "query tests/both_stores.rs" &&
        python3 -B tests/common/programs.py run "$programs" "$unstable" --only whole database:: --skip database::faults --skip database::both_stores
}
schedulers() { whole --test-threads=1 oar:: slurm:: truth_table::; }
page() { one_page || { one_page && echo "page: one of its checks" >>"$unstable"; }; }
one_page() { node --test ui/ && node tests/browser/page.mjs; }

if [ "$mode" = soak ]; then
    export ROUNDS=${ROUNDS:-1000} AWAY_SECONDS=${AWAY_SECONDS:-900} PROPTEST_CASES=${PROPTEST_CASES:-20000}
    export RACES=${RACES:-10000} STRIDE=${STRIDE:-1} POWER_CUTS=${POWER_CUTS:-20} JOBS=${JOBS:-20000} RESTARTS=${RESTARTS:-50}
    export OUTAGE_SECONDS=${OUTAGE_SECONDS:-60} DATABASE_KILLS=${DATABASE_KILLS:-30} FULL_ROUNDS=${FULL_ROUNDS:-3}
    export STOPS=${STOPS:-100} KILLS=${KILLS:-50} HOSTILE_SECONDS=${HOSTILE_SECONDS:-3600}
fi
part packages packages
part fetch fetch
part format format
if [ "$mode" = check ]; then
    part lints lints
    part tidy cargo test --locked -p whole -- layers tidy docs_fresh
    part references cargo test --locked -p jobmeter --test docs
else
    part python python
    part node_packages node_packages
    part downloads downloads
    part build build
    beside lints rustdoc doctests
    part crates crates
    part whole whole --skip oar:: --skip slurm:: --skip truth_table::
    part versions versions
    part schedulers schedulers
    part page page
    beside_end lints rustdoc doctests
fi

echo
echo "== slowest parts"
printf '%s\n' "${results[@]}" | sort -rn
echo
[ -s "$unstable" ] && echo "== failed beside others, passed alone: each is a defect of the test or of the program" &&
    sort "$unstable" && echo
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
