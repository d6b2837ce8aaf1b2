#!/usr/bin/env bash
# A nested machine: Debian's kernel under qemu's own emulation, with all of cgroup v2, which the tests'
# machine may not have. Runs a script inside it, with the programs given, and prints what the script
# prints.
#
#     machine.sh SCRIPT PROGRAM...
#
# The script runs under busybox sh as /init's child, with the words of NESTED_ARGUMENTS; the programs lie in
# /bin, and the kernel modules that NESTED_MODULES names in /modules. NESTED_DEVICES are
# more words for qemu. Packages: qemu-system-x86,
# busybox-static, cpio and the package of Debian's current kernel, unpacked and not installed.
set -eu
script=$1
shift
cache=${NESTED_CACHE:-target/nested}
mkdir -p "$cache"
# Of several that run at once, one fetches the kernel.
exec 9>"$cache/lock"
flock 9
if ! ls "$cache"/kernel/boot/vmlinuz-* >/dev/null 2>&1; then
    package=$(apt-cache depends linux-image-amd64 | sed -n 's/ *Depends: \(linux-image-[^ ]*\)/\1/p' | head -n 1)
    (cd "$cache" && apt-get download -q "$package" >/dev/null && dpkg -x linux-image-*.deb kernel && rm linux-image-*.deb)
fi
exec 9>&-
kernel=$(ls "$cache"/kernel/boot/vmlinuz-* | head -n 1)
tree=$(mktemp -d)
initrd=$(mktemp)
trap 'rm -rf "$tree" "$initrd"' EXIT
mkdir -p "$tree"/{bin,proc,sys,dev,tmp,run,etc,lib64}
cp /bin/busybox "$tree/bin/busybox"
for program in "$@"; do
    cp "$program" "$tree/bin/"
    # A program linked against the system's libraries brings them along.
    for library in $(ldd "$program" 2>/dev/null | grep -o '/[^ ]*'); do
        mkdir -p "$tree$(dirname "$library")"
        cp -n "$library" "$tree$library"
    done
done
cp "$script" "$tree/script"
echo "${NESTED_ARGUMENTS:-}" >"$tree/arguments"
mkdir "$tree/modules"
for module in ${NESTED_MODULES:-}; do
    find "$cache/kernel/lib/modules" -name "$module.ko" -exec cp -t "$tree/modules" {} +
done
cat >"$tree/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo nested > /proc/sys/kernel/hostname
ip link set lo up
sh /script $(cat /arguments)
echo "NESTED EXIT $?"
poweroff -f
INIT
chmod +x "$tree/init"
(cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$initrd"
timeout "${NESTED_SECONDS:-120}" qemu-system-x86_64 -accel tcg -cpu Skylake-Server -smp 2 -m 768 -nographic \
    -no-reboot -kernel "$kernel" -initrd "$initrd" -net none ${NESTED_DEVICES:-} \
    -append "console=ttyS0 quiet psi=1 panic=1" </dev/null 2>&1 | tr -d '\r' | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g'
