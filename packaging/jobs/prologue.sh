#!/bin/sh
# For the prologue of a scheduler that jobmeter does not know: reports the start of a job to the server.
# Run it on the first node of the job, with a token of scope `jobs` (jobmeter token create --scope jobs:site) in
# JOBMETER_TOKEN_FILE. On the server's own machine root needs no token. The server's address is in JOBMETER_SERVER or
# /etc/jobmeter/client.toml. A prologue must not delay a job, so it ignores errors of the report.
#
#     prologue.sh NUMBER USER [ACCOUNT [QUEUE [NODES]]]
#
# NODES: names separated by commas or lines, or lists such as n[1-3]; default: this node. CLUSTER names the scheduler.
set -u
[ $# -ge 2 ] || { echo "usage: prologue.sh NUMBER USER [ACCOUNT [QUEUE [NODES]]]" >&2; exit 2; }
timeout 10 jobmeter job start "${CLUSTER:-site}:$1" --user "$2" \
    ${3:+--account "$3"} ${4:+--queue "$4"} ${5:+--nodes "$5"} >/dev/null || :
