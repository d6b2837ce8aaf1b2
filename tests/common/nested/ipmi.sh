# Runs the agent's IPMI source on the board's controller (BMC): once, then every second for some seconds.
for module in ipmi_msghandler ipmi_devintf ipmi_si; do insmod /modules/$module.ko || exit 1; done
tries=0
while [ ! -e /dev/ipmi0 ]; do
    tries=$((tries + 1))
    [ $tries -gt 100 ] && { dmesg | grep -i ipmi; exit 1; }
    sleep 0.2
done
jobmeter-agent --once --print --spool none --device nested | grep '^ipmi_'
echo "THEN"
jobmeter-agent --print --spool none --device nested --sources-ipmi-period 1s -v >/tmp/out 2>/tmp/errors &
agent=$!
sleep 6
kill $agent
wait $agent
code=$?
grep -E '^ipmi_' /tmp/out
grep -i ipmi /tmp/errors
exit $code
