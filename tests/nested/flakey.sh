# The store's write side on a disk that loses power, and on one that fails for a while: ext4 on dm-flakey
# on a disk in memory. `numbered` writes and checks (crates/store/examples/numbered). The argument: how many
# rounds.
set -u
# What the kernel says of failed writes is as expected.
dmesg -n 1
for module in crc16 crc32c_generic mbcache jbd2 ext4 dm-mod dm-flakey; do
    insmod "/modules/$module.ko" || exit 1
done
insmod /modules/brd.ko rd_nr=1 rd_size=65536 || exit 1
mkdir /disk
ln -s /proc/mounts /etc/mtab
sectors=$(cat /sys/block/ram0/size)
mkfs.ext4 -q -F /dev/ram0 || exit 1

# state UP DOWN [FEATURES]: what becomes of writes from now on; nothing in flight is waited for, and what the
# file system has not written yet it writes to the disk as it is then.
state() {
    local up=$1 down=$2
    shift 2
    dmsetup suspend --nolockfs --noflush flakey &&
        dmsetup load flakey --table "0 $sectors flakey /dev/ram0 0 $up $down $# $*" &&
        dmsetup resume flakey || exit 1
}
dmsetup create flakey --table "0 $sectors flakey /dev/ram0 0 3600 0" || exit 1

# start: mounts what is on the disk, and goes on writing.
start() {
    mount -t ext4 /dev/dm-0 /disk || exit 1
    numbered write /disk/data >>/tmp/printed 2>>/tmp/told &
    writer=$!
    usleep $((300000 + RANDOM % 20 * 100000))
}
# stop WHAT: ends the writer at once, lets the file system go while nothing reaches the disk, then lets the
# disk work again and checks that what was acknowledged by then is there, once.
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
    # The power goes: what is not on the disk by now never will be, and what is acknowledged later is not.
    start
    cp /tmp/printed /tmp/by_then
    state 0 3600 drop_writes
    usleep $((RANDOM % 5 * 100000))
    stop "power cut"
    # Writes fail, twice where the file system stands it: what is acknowledged between and meanwhile counts.
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
