#!/bin/sh
# run.sh BUILD SECONDS: each fuzz target for that long, two at a time. What a run finds new stays in BUILD/corpus for the
# next one, an input that fails is in BUILD/found.
set -eu
build=$1 seconds=$2
here=$(dirname "$0")
export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=32" UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"

# one TARGET: its corpora are its own directory and what the other tests have that is of its kind.
if [ "${3-}" ]; then
    target=$3
    case $target in
    request) more="$here/../golden" ;;
    config) more="$here/../models" ;;
    *) more= ;;
    esac
    mkdir -p "$build/corpus/$target" "$build/found"
    log=$build/found/$target.log
    # shellcheck disable=SC2086 # a list of directories
    if ! "$build/fuzz/$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -mutate_depth=3 -max_len=65536 \
        -artifact_prefix="$build/found/$target-" -dict="$here/words.dict" -print_final_stats=1 \
        "$build/corpus/$target" "$here/corpus/$target" $more >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "check-fuzz: $target failed"
        exit 1
    fi
    awk -v target="$target" '
        /^stat::number_of_executed_units:/ { runs = $2 }
        / cov: / { cov = $4 }
        END { printf "check-fuzz: %s: %d runs, %d edges covered, clean\n", target, runs, cov }' "$log"
    exit 0
fi

printf '%s\n' snapshot request config canon target | xargs -n 1 -P 2 sh "$0" "$build" "$seconds"
