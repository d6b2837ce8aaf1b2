#!/bin/bash
# Runs OAR 2.5 from Debian's packages for a test: `machine.sh COMMAND DIR`.
#
# It runs as root in a network and a mount namespace of the test (`unshare --net --mount`). Bind mounts cover
# every path outside DIR that OAR and its packages read or write, so the machine does not change. OAR's server
# binds every address, but the namespace has only a loopback. The cgroups are the machine's.
set -eu
command=$1 dir=$2
postgres=$(echo /usr/lib/postgresql/*/bin) port=15432

# Jobs run as users that every Debian has, so that their UIDs are known outside too.
users='games news'

cover() {
    mount --make-rprivate /
    ip link set lo up
    mkdir -p "$dir"/{pg,lib,run,log,home} /run/oar /run/sshd
    chmod 755 "$dir" "$dir/home"
    chown postgres "$dir/pg"
    install -o postgres -m 600 "$dir/tls.key" "$dir/pg/tls.key"
    cp -a /var/lib/oar/. "$dir/lib/"
    cp -a /etc/oar "$dir/etc"
    printf '127.0.0.1 localhost oarnode1 oarserver %s\n' "$(hostname)" > "$dir/hosts"
    cp /etc/passwd "$dir/passwd"
    for user in $users; do
        sed -i "s,^$user:\([^:]*:[0-9]*:[0-9]*:[^:]*\):.*,$user:\1:$dir/home/$user:/bin/bash," "$dir/passwd"
        mkdir -p "$dir/home/$user"
        chown "$user" "$dir/home/$user"
    done
    mount --bind "$dir/hosts" /etc/hosts
    mount --bind "$dir/passwd" /etc/passwd
    mount --bind "$dir/etc" /etc/oar
    mount --bind "$dir/lib" /var/lib/oar
    mount --bind "$dir/run" /run/oar
    # OAR's server may lose a job's end near its own start. oarexec retries after 900 s by default, and here
    # after 5 s.
    sed -e 's/max_wait_time = 900;/max_wait_time = 5;/' -e 's/ \$wait_time = 30;/ $wait_time = 1;/' \
        /usr/lib/oar/oarexec > "$dir/oarexec"
    mount --bind "$dir/oarexec" /usr/lib/oar/oarexec
    chown -R oar:oar "$dir/lib" "$dir/run" "$dir/log"
}

configure() {
    sed -i -e 's/^DB_PORT=.*/DB_PORT="'$port'"/' -e 's/^DB_BASE_PASSWD=.*/DB_BASE_PASSWD="oar"/' \
        -e 's/^DB_BASE_PASSWD_RO=.*/DB_BASE_PASSWD_RO="oar_ro"/' \
        -e 's/^SERVER_HOSTNAME=.*/SERVER_HOSTNAME="oarserver"/' \
        -e "s,^LOG_LEVEL=.*,LOG_LEVEL=3," -e "s,^LOG_FILE=.*,LOG_FILE=\"$dir/log/oar.log\"," /etc/oar/oar.conf
    # By default, a request for a scheduler round within 5 s of the last one waits 10 s.
    echo 'SCHEDULER_MIN_TIME_BETWEEN_2_CALLS="0"' >> /etc/oar/oar.conf
    # Count memory and block I/O by job, which OAR does only if the site enables it. Linux 5.0 removed the
    # block I/O weight that OAR writes, so write it to a file that accepts any number.
    sed -i -e 's/^\(my $Enable_\(mem\|blkio\)_cg\) = "NO"/\1 = "YES"/' \
        -e "s,^\\(my @Tmp_dir_to_clear\\) = .*,\\1 = ();," -e 's,/blkio\.weight,/blkio.reset_stats,' /etc/oar/job_resource_manager_cgroups.pl
}

database_start() {
    su postgres -c "$postgres/pg_ctl -w -D $dir/pg/data -l $dir/pg/log -o '-p $port \
        -c listen_addresses=127.0.0.1 -k $dir/pg -c fsync=off \
        -c ssl=on -c ssl_cert_file=$dir/tls.pem -c ssl_key_file=$dir/pg/tls.key' start" > /dev/null
}

database_stop() {
    su postgres -c "$postgres/pg_ctl -w -m fast -D $dir/pg/data stop" > /dev/null
}

# Stops PostgreSQL like a crash, so that its next start has to recover.
database_kill() {
    su postgres -c "$postgres/pg_ctl -w -m immediate -D $dir/pg/data stop" > /dev/null
}

# Creates OAR's tables and allows the job type `monitor`, as sites with Kwollect do. It also adds a job that
# ended long ago, which jobmeter should not report.
database_create() {
    su postgres -c "$postgres/initdb -D $dir/pg/data -A trust -E UTF8 --locale=C.UTF-8" > "$dir/log/initdb"
    database_start
    oar-database --create --db-admin-user=postgres --db-admin-pass=x -y > "$dir/log/database" 2>&1
    psql -q -h "$dir/pg" -p $port -U oar oar -c "UPDATE admission_rules SET rule = replace(rule,
        'qr/^state=permissive\$/,', 'qr/^state=permissive\$/, qr/^monitor(?:=.*)?\$/,')"
    psql -q -h "$dir/pg" -p $port -U oar oar -c "INSERT INTO jobs (state, job_user, launching_directory,
        submission_time, start_time, stop_time, checkpoint_signal)
        VALUES ('Terminated', 'games', '/', 1700000000, 1700000010, 1700000020, 12)"
}

nodes() {
    /usr/sbin/sshd -f /etc/oar/sshd_config -o PidFile=/run/oar/oar_sshd.pid -o ListenAddress=127.0.0.1
    su -s /bin/bash oar -c 'for node in 127.0.0.1 oarnode1; do
        ssh -p 6667 -o StrictHostKeyChecking=no $node true; done'
    oarproperty -a cpu
    oarproperty -a core
    oarproperty -a gpudevice
    for cpu in 0 1; do
        oarnodesetting -a -h oarnode1 -p cpuset=$cpu -p cpu=1 -p core=$((cpu + 1)) \
            -p gpudevice=$cpu -s Alive
    done
}

server_start() {
    setsid /usr/sbin/Almighty < /dev/null > "$dir/log/almighty" 2>&1 &
    echo $! > "$dir/run/almighty.pid"
    soon 'has the server its port?' listens
}

listens() { [ -n "$(ss -Hltn 'sport = :6666')" ]; }
gone() { ! listens; }

# Kills every process of the server's session. A new server cannot start before its port is free.
server_stop() {
    local session
    session=$(cat "$dir/run/almighty.pid")
    pkill -KILL -s "$session" || true
    soon 'is the port free?' gone
}

# soon QUESTION COMMAND...: waits until the command succeeds.
soon() {
    local question=$1
    shift
    for _ in {1..200}; do
        ! "$@" || return 0
        sleep 0.05
    done
    echo "not within ten seconds: $question" >&2
    return 1
}

rest_start() {
    mkdir -p "$dir/apache"
    {
        printf 'ServerRoot /etc/apache2\nServerName oarserver\nPidFile %s/pid\n' "$dir/apache"
        printf 'ErrorLog %s/error.log\n' "$dir/apache"
        for module in mpm_prefork cgi alias env headers authz_core socache_shmcb ssl; do
            printf 'LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n' $module $module
        done
        printf 'SSLEngine on\nSSLCertificateFile %s/tls.pem\nSSLCertificateKeyFile %s/tls.key\n' "$dir" "$dir"
        printf 'Listen 127.0.0.1:18888\nUser oar\nGroup oar\nStartServers 2\n'
        printf 'ScriptAlias /oarapi /usr/lib/cgi-bin/oarapi/oarapi.cgi\n'
        printf '<Location /oarapi>\nRequestHeader set X_REMOTE_IDENT games\nRequire all granted\n</Location>\n'
    } > "$dir/apache/conf"
    /usr/sbin/apache2 -f "$dir/apache/conf"
}

case $command in
setup) cover; configure; database_create; nodes; server_start ;;
stop)
    server_stop || true
    for pid in "$dir"/run/oar_sshd.pid "$dir"/apache/pid; do
        [ ! -f "$pid" ] || kill "$(cat "$pid")" || true
    done
    database_stop
    # Remove processes and cgroups that jobs left behind.
    for tasks in /sys/fs/cgroup/cpu/oar/*/tasks; do
        [ ! -f "$tasks" ] || xargs -r kill -KILL < "$tasks" || true
    done
    sleep 0.2
    rmdir /sys/fs/cgroup/*/oar/*/ /sys/fs/cgroup/*/oar/ 2> /dev/null || true
    rm -rf /dev/oar_cgroups_links
    ;;
*) "$command" ;;
esac
