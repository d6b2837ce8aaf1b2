# Tests the store's writer on a disk that loses power, and on a disk that fails for a while. The disk is ext4
# on dm-flakey on a RAM disk. `numbered` writes and checks (crates/store/examples/numbered). The argument is
# the number of rounds.
set -u
# The kernel's messages about failed writes are expected, so keep them off the console.
dmesg -n 1
for module in crc16 crc32c_generic mbcache jbd2 ext4 dm-mod dm-flakey; do
    insmod "/modules/$module.ko" || exit 1
done
insmod /modules/brd.ko rd_nr=1 rd_size=65536 || exit 1
mkdir /disk
ln -s /proc/mounts /etc/mtab
sectors=$(cat /sys/block/ram0/size)
mkfs.ext4 -q -F /dev/ram0 || exit 1

# state UP DOWN [FEATURES]: sets the behaviour of later writes. It does not wait for writes in flight
# (--noflush), and does not make the file system write its dirty pages first (--nolockfs).
state() {
    local up=$1 down=$2
    shift 2
    dmsetup suspend --nolockfs --noflush flakey &&
        dmsetup load flakey --table "0 $sectors flakey /dev/ram0 0 $up $down $# $*" &&
        dmsetup resume flakey || exit 1
}
dmsetup create flakey --table "0 $sectors flakey /dev/ram0 0 3600 0" || exit 1

# start: mounts the disk and continues to write.
start() {
    mount -t ext4 /dev/dm-0 /disk || exit 1
    numbered write /disk/data >>/tmp/printed 2>>/tmp/told &
    writer=$!
    usleep $((300000 + RANDOM % 20 * 100000))
}
# stop REASON: kills the writer and unmounts the file system while no write reaches the disk. Then it makes
# the disk work again, and checks that everything acknowledged by /tmp/by_then is stored exactly once.
stop() {
    kill -9 $writer
    wait $writer 2>/dev/null
    umount /disk && echo 3 >/proc/sys/vm/drop_caches && state 3600 0 || exit 1
    mount -t ext4 /dev/dm-0 /disk || exit 1
    if ! numbered check /disk/data /tmp/by_then /tmp/printed >/tmp/newest 2>/tmp/check; then
        echo "$1 in round $round: $(cat /tmp/check)"
        ls -la /disk/data/*
        exit 1
    fi
    echo "ROUND $round $1 of $(tail -n 1 /tmp/by_then): $(cat /tmp/check)"
    mv /tmp/newest /tmp/printed
    umount /disk || exit 1
}

touch /tmp/printed
round=0
while [ $round -lt "$1" ]; do
    round=$((round + 1))
    # Power cut: data that has not reached the disk by now is lost, and no later write may be acknowledged.
    start
    cp /tmp/printed /tmp/by_then
    state 0 3600 drop_writes
    usleep $((RANDOM % 5 * 100000))
    stop "power cut"
    # Failing writes, twice if the file system survives the first time. Data acknowledged in between or
    # meanwhile counts.
    start
    state 0 3600 error_writes
    usleep $((100000 + RANDOM % 5 * 100000))
    state 3600 0
    usleep $((RANDOM % 5 * 100000))
    state 0 3600 error_writes
    usleep 100000
    cp /tmp/printed /tmp/by_then
    stop "writes failed"
done
echo "KERNEL refused $(grep -c 'the disk failed' /tmp/told)"
exit 0
