#!/bin/sh
# demo.sh: a public model planned end to end, on a daemon and a database of the demo's own. BUILD is the build
# directory.
set -eu
build=$(cd "${BUILD:-build}" && pwd)
directory=$(mktemp -d)
daemon=
cd "$directory"

finish() {
    if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then
        wait "$daemon" || true
    fi
    cd / && rm -rf "$directory"
}
trap finish EXIT
trap 'exit 1' INT TERM

say() {
    printf '\n\033[1m$ %s\033[0m\n' "$*" | if [ -t 1 ]; then cat; else sed 's/\x1b\[[0-9]*m//g'; fi
}

"$build/blueprintd" --listen 127.0.0.1:0 --database demo.db >ready 2>log &
daemon=$!
tries=0
until url=$(sed -n 's/^blueprintd ready //p' ready) && [ -n "$url" ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 100 ] || ! kill -0 "$daemon" 2>/dev/null; then
        cat log >&2
        exit 1
    fi
    sleep 0.1
done

blueprint() {
    say "blueprint $*"
    "$build/blueprint" --server "$url" "$@"
}

# The id of the stored plan of the request in a file.
id_of() {
    "$build/blueprint" --server "$url" --json plan "$1" | grep -o '"id":"sha256:[0-9a-f]*"' | head -n 1 | cut -d'"' -f4
}

cat >llama.json <<'REQUEST'
{"model": {"name": "llama-3.1-8b"},
 "workload": {"mode": "training", "sequence_length": 8192, "micro_batch_size": 1, "global_batch_size": 128,
              "dtype": "bfloat16"},
 "strategy": {"tensor_parallel": 4, "data_parallel": 16, "sequence_parallel": true, "zero_stage": 1},
 "target": {"kind": "reference-queue"},
 "deployment": {"devices": 4, "memory_bytes": 85899345920}}
REQUEST
sed 's/"zero_stage": 1/"zero_stage": 1, "recompute": "selective"/' llama.json >selective.json

say "cat llama.json"
cat llama.json
blueprint plan llama.json
plan=$(id_of llama.json)
"$build/blueprint" --server "$url" plan selective.json >/dev/null
selective=$(id_of selective.json)

command=$("$build/blueprint" --server "$url" --json show "$plan" --stage concrete |
    grep -o '"id":"command:[0-9a-f]*"' | sed -n 4p | cut -d'"' -f4)
blueprint trace "$plan" "$command"
blueprint replay "$plan"
blueprint diff "$plan" "$selective"
blueprint list
