#!/bin/sh
# For the epilogue beside prologue.sh: reports the end of the job to the server.
#
#     epilogue.sh NUMBER [EXIT_CODE]
set -u
[ $# -ge 1 ] || { echo "usage: epilogue.sh NUMBER [EXIT_CODE]" >&2; exit 2; }
timeout 10 jobmeter job end "${CLUSTER:-site}:$1" ${2:+--exit-code "$2"} || :
