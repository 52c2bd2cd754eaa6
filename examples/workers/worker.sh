#!/bin/sh
# worker.sh - a worker in shell: `weir work` leases, keeps the heartbeat and settles; the program only
# reads its payload and writes its result. 75: try again; 65: never again.
#
#     weir enqueue greet '"ann"' --attempts 3 --wait &
#     examples/workers/worker.sh
exec weir work "${1:-greet}" -- sh -c '
    name=$(cat)
    [ -n "$name" ] || { echo "no name" >&2; exit 65; }
    printf "\"hello %s\"" "$(printf %s "$name" | tr -d \")"
'
