#!/bin/sh
# For the prologue of a scheduler that jobmeter does not know: tells the server that a job starts.
# On the first node of the job, with a token that is good for this alone (jobmeter token create --scope
# jobs:site) in JOBMETER_TOKEN_FILE; on the server's own machine root needs none. The server's address is in
# JOBMETER_SERVER or /etc/jobmeter/client.toml. A prologue must not hold up a job: it ignores errors of the report.
#
#     prologue.sh NUMBER USER [ACCOUNT [QUEUE [NODES]]]
#
# NODES: names with commas or lines between them, also lists such as n[1-3]; this node when left out. CLUSTER
# names the scheduler.
set -u
[ $# -ge 2 ] || { echo "usage: prologue.sh NUMBER USER [ACCOUNT [QUEUE [NODES]]]" >&2; exit 2; }
timeout 10 jobmeter job start "${CLUSTER:-site}:$1" --user "$2" \
    ${3:+--account "$3"} ${4:+--queue "$4"} ${5:+--nodes "$5"} >/dev/null || :
