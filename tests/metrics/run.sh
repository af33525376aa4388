#!/bin/sh
# run.sh: starts a daemon and a Prometheus that scrapes it, both on loopback and in a directory that is thrown away, keeps
# the daemon busy, and holds /metrics to promtool and the Grafana dashboard to both. BUILD is the build directory.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${BUILD:-build}" && pwd)
python=${PYTHON:-/usr/bin/python3}
dashboard=$root/docs/grafana/blueprintd.json
scratch=$(mktemp -d)
daemon=
prometheus=
load=

sh "$root/tests/deps.sh" metrics

end() {
    if [ -n "$1" ] && kill "$1" 2>/dev/null; then
        wait "$1" || true
    fi
}
finish() {
    end "$load"
    end "$prometheus"
    end "$daemon"
    cd / && rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' INT TERM

# await PID LOG COMMAND...: until the command prints something, which is then in $awaited.
await() {
    process=$1 log=$2 tries=0
    shift 2
    until awaited=$("$@") && [ -n "$awaited" ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 600 ] || ! kill -0 "$process" 2>/dev/null; then
            tail -n 20 "$log" >&2
            echo "check-metrics: $* said nothing in time" >&2
            exit 1
        fi
        sleep 0.1
    done
}

# request LENGTH MEMORY: a plan of that sequence length, on devices with that much memory.
request() {
    printf '{"model": {"name": "gpt2"}, "workload": {"mode": "training", "sequence_length": %d, "micro_batch_size": 1,
        "global_batch_size": 1, "dtype": "bfloat16"}, "strategy": {"tensor_parallel": 1},
        "target": {"kind": "%s"}, "deployment": {"devices": 1, "memory_bytes": %d}}' "$1" "$3" "$2"
}
post() { curl -s -o "$2" "$url/v1/plans" -H 'Content-Type: application/json' -d "$1"; }

# Over the socket, where root may operate the daemon: admin WHAT BODY.
admin() {
    curl -s -o again.json --unix-socket admin.sock "http://localhost/v1/admin/$1" -H 'Content-Type: application/json' -d "$2"
}

# New plans and old ones, one too large, replays, snapshots twice, refusals of several codes, hostile paths.
busy() {
    n=16
    while [ "$n" -lt 1000 ]; do
        n=$((n + 8))
        post "$(request "$n" 85899345920 reference-queue)" plan.json
        post "$(request "$n" 85899345920 reference-queue)" again.json
        post "$(request "$n" 85899345920 reference-slot)" again.json
        post "$(request "$n" 4096 reference-queue)" again.json
        post '{"model": {}}' again.json
        post '{' again.json
        plan=$(sed -n 's/.*"id":"\(sha256:[0-9a-f]*\)","state":"committed".*/\1/p' plan.json)
        digest=$(sed -n 's/.*"stage":"model","digest":"\(sha256:[0-9a-f]*\)".*/\1/p' plan.json)
        curl -s -o again.json -X POST "$url/v1/plans/$plan/replays"
        curl -s -o again.json "$url/v1/snapshots/$digest" -o again.json "$url/v1/snapshots/$digest" \
            -o again.json "$url/readyz" -o again.json "$url/v1/plans?state=none" \
            -o again.json "$url/%22%7d%0a%5c{route=\"forged\"}"
        admin backups ''
        admin replays "{\"since\": \"2000-01-01T00:00:0$((n % 10))Z\"}"
        admin collections '{"older_than_seconds": 10}'
        sleep 0.1
    done
}

cd "$scratch"
"$build/blueprintd" --listen 127.0.0.1:0 --socket admin.sock --database blueprint.db >ready 2>log &
daemon=$!
await "$daemon" log sed -n 's/^blueprintd ready //p' ready
url=$awaited
cat >prometheus.yml <<END
global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs: [{job_name: blueprintd, static_configs: [{targets: ["${url#http://}"]}]}]
END
: >prometheus.log
prometheus --config.file=prometheus.yml --storage.tsdb.path=tsdb --web.listen-address=127.0.0.1:0 >prometheus.log 2>&1 &
prometheus=$!
await "$prometheus" prometheus.log sed -n 's/.*"Listening on" address=\([^ ]*\).*/\1/p' prometheus.log
prometheus_url=http://$awaited
busy &
load=$!

check() { "$python" "$root/tests/metrics/dashboard.py" "$dashboard" "$@"; }
check queries "$prometheus_url"
check metrics "$url"
check plans "$url" "$root/docs/operating.md"
check self-test "$prometheus_url" "$url"

# The page as it is with everything on it, and one that is not valid, which promtool must find.
curl -s --fail "$url/metrics" >metrics
promtool check metrics <metrics
if sed 's/^# TYPE blueprint_plans_derived_total .*/&\n&/' metrics | promtool check metrics >refused 2>&1; then
    echo 'check-metrics: promtool takes a page that is not valid' >&2
    exit 1
fi
! grep -q forged metrics
up=$(curl -s "$prometheus_url/api/v1/query" --data-urlencode 'query=min_over_time(up[1m])' | grep -c '"1"\]')
[ "$up" = 1 ] # no scrape failed
n=$(grep -c '^# TYPE ' metrics)
echo "check-metrics: $n families are valid; a Prometheus has data for every query of the dashboard"
