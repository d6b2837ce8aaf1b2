#!/bin/sh
# Tells a server of jobs over HTTP: each line of the standard input is what POST /api/v1/jobs takes.
#
#     post.sh http://127.0.0.1:8790 < jobs.jsonl
#
# Beyond root on the server's own machine a token is needed, in TOKEN: one of scope `jobs` is good for this alone.
set -eu
while IFS= read -r line; do
    curl --silent --show-error --fail-with-body --max-time 10 ${TOKEN:+-H "Authorization: Bearer $TOKEN"} \
        -H 'Content-Type: application/json' --data-raw "$line" "$1/api/v1/jobs"
    echo
done
