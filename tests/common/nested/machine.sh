#!/usr/bin/env bash
# Runs a script in a virtual machine with Debian's kernel and full cgroup v2, which the test machine may lack.
# It emulates the machine with qemu, copies the given programs into it, and prints the script's output.
#
#     machine.sh SCRIPT PROGRAM...
#
# The script runs under busybox sh as a child of /init, with NESTED_ARGUMENTS as its arguments. The programs
# are in /bin, and the kernel modules of NESTED_MODULES in /modules. NESTED_DEVICES are further arguments of
# qemu. Required packages: qemu-system-x86, busybox-static, cpio, and the package of Debian's current kernel,
# which is unpacked but not installed.
set -eu
script=$1
shift
cache=${NESTED_CACHE:-target/nested}
mkdir -p "$cache"
# If several run at once, only one downloads the kernel.
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
    # Copy the shared libraries of a dynamically linked program too.
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
