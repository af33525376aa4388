#!/bin/bash
# completion.sh: the completions, driven as the shell drives them, against what the programs say of themselves and a
# daemon that runs, one that does not, and one that does not answer. BUILD is the build directory.
set -euo pipefail
build=$(readlink -f "${BUILD:-build}")
work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT
cd "$work"
PATH=$build:$PATH

fail() {
    echo "check-completion: $*" >&2
    exit 1
}

# complete LINE: what is offered at its end, a word a line, sorted. A shell of its own, as strict as a user's is lax.
complete_line() {
    bash -c '
        source "$1/completions/blueprint" && source "$1/completions/blueprintd" || exit 1
        COMP_LINE=$2 COMP_POINT=${#2}
        function=$(complete -p "${2%% *}" | sed "s/.*-F \([^ ]*\).*/\1/")
        "$function"
        printf "%s\n" "${COMPREPLY[@]}"' bash "$build" "$1" | sed '/^$/d' | LC_ALL=C sort
}
offers() {
    local line=$1
    shift
    diff -u <(printf '%s\n' "$@" | sed '/^$/d' | LC_ALL=C sort) <(complete_line "$line") || fail "\"$line\""
    tried=$((tried + 1))
}
tried=0

blueprintd --listen 127.0.0.1:0 --database completion.db >ready 2>log &
pids+=($!)
for _ in $(seq 600); do
    url=$(sed -n 's/^blueprintd ready //p' ready)
    [ -z "$url" ] || break
    sleep 0.1
done
export BLUEPRINT_SERVER=$url
printf '%s' '{"model": {"name": "llama-2-7b"}, "strategy": {}, "workload": {"mode": "training", "sequence_length": 512,
    "micro_batch_size": 1, "global_batch_size": 1, "dtype": "bfloat16"}}' >request.json
blueprint --json plan request.json >plan.json
id=$(grep -o '"id":"sha256:[0-9a-f]*' plan.json | head -n 1 | cut -d : -f 3)
mapfile -t digests < <(grep -o '"digest":"sha256:[0-9a-f]*' plan.json | cut -d : -f 3 | LC_ALL=C sort -u)
[ ${#digests[@]} -ge 3 ] || fail "the plan has no snapshots"

# Commands and options.
mapfile -t commands < <(blueprint --help | sed -n 's/^  \([a-z][a-z-]*\( [a-z][a-z-]*\)\{0,1\}\)\( .*\)\{0,1\}$/\1/p')
[ ${#commands[@]} -ge 13 ] || fail "blueprint --help lists no commands"
mapfile -t general < <(blueprint --help | sed -n 's/^  \(--[a-z-]*\) .*/\1/p')
[ ${#general[@]} -ge 4 ] || fail "blueprint --help lists no options"
mapfile -t first < <(printf '%s\n' "${commands[@]}" | cut -d ' ' -f 1 | sort -u)
offers 'blueprint ' "${first[@]}"
for word in "${first[@]}"; do
    mapfile -t next < <(printf '%s\n' "${commands[@]}" | sed -n "s/^$word //p")
    [ ${#next[@]} -eq 0 ] || offers "blueprint $word " "${next[@]}"
done
offers 'blueprint --' "${general[@]}"
offers 'blueprint --json sh' show
for command in "${commands[@]}"; do
    # shellcheck disable=SC2086 # some commands are two words
    mapfile -t options < <(blueprint $command --help | sed -n 1p | grep -o -- '--[a-z-]*')
    offers "blueprint --server x $command -" "${general[@]}" "${options[@]}"
done
mapfile -t options < <(blueprintd --help | sed -n 's/^  \(--[a-z-]*\).*/\1/p')
[ ${#options[@]} -ge 12 ] || fail "blueprintd --help lists no options"
offers 'blueprintd ' "${options[@]}"
offers 'blueprintd --check-config --dat' --database

# Every value that is offered is taken.
takes() {
    local option=$1 value status
    shift
    mapfile -t values < <(complete_line "blueprint $1 x --$option ")
    [ ${#values[@]} -ge 2 ] || fail "--$option of $1 has no values"
    offers "blueprint $1 x --$option=" "${values[@]}"
    for value in "${values[@]}"; do
        status=0
        blueprint "$@" "--$option" "$value" >out 2>err || status=$?
        if [ $status -gt 1 ] || grep -q 'must be\|unknown' err; then
            cat err
            fail "$1 --$option $value"
        fi
    done
}
takes stage show "$id"
takes state list
takes mode list
takes model list
takes direction lineage "${digests[0]}"
takes unit capacity "$id"
printf -- '--seq-length 128\n' >megatron
for value in $(complete_line 'blueprint fit x --from '); do
    # Refused it is, for what the files say and not for the program's name.
    ! blueprint fit megatron megatron --from "$value" 2>err || fail "--from $value takes anything"
    ! grep -q "$value is no\|unknown program" err || fail "--from $value"
done
! blueprint fit megatron --from nothing 2>err || fail "--from nothing is taken"
for value in $(complete_line 'blueprintd --log-level '); do
    blueprintd --log-level "$value" --check-config || fail "--log-level $value"
done

# Arguments.
mapfile -t models < <(blueprint --json models | grep -o '"name":"[^"]*"' | cut -d '"' -f 4)
mapfile -t passes < <(blueprint passes | awk 'NF { print $1 }' | grep -x '[a-z-]*-[a-z-]*')
[ ${#passes[@]} -ge 4 ] || fail "blueprint passes lists none"
BLUEPRINT_SERVER=127.0.0.1:1 offers 'blueprint models ' "${models[@]}"
BLUEPRINT_SERVER=127.0.0.1:1 offers 'blueprint passes ' "${passes[@]}"
offers 'blueprint passes bind-reference-queue '
offers 'blueprint model llama-2-7' llama-2-7b
offers 'blueprint plan req' request.json
offers 'blueprint admin backup --force req' request.json
offers 'blueprint admin gc --dry-run --older' --older-than
offers 'blueprint plan request.json req' request.json
offers 'blueprint plan request.json request.json '
offers 'blueprint --token-file req' request.json
offers "blueprint --cacert=req" request.json
offers 'blueprintd --config re' ready request.json
offers 'blueprint show ' "${id:0:16}"
offers 'blueprint admin pin ' "${id:0:16}"
offers "blueprint show ${id:0:20}" "$id"
offers "blueprint show sha256:${id:0:10}" "${id:0:16}"
offers "blueprint diff ${id:0:16} " "${id:0:16}"
offers "blueprint --server $url show " "${id:0:16}"
offers "blueprint --server=$url show " "${id:0:16}"
offers "blueprint show --server $url " "${id:0:16}"
BLUEPRINT_SERVER=127.0.0.1:1 offers "blueprint show --json " 
diff <(printf '%.16s\n' "${digests[@]}" | LC_ALL=C sort -u) <(complete_line 'blueprint snapshot ') || fail "digests"

# A daemon that is not there, or does not answer, does not keep the shell waiting.
python3 -c 'import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(600)' >silent &
pids+=($!)
until [ -s silent ]; do sleep 0.1; done
for server in 127.0.0.1:1 "127.0.0.1:$(cat silent)" unix:/nonexistent; do
    begun=$SECONDS
    offers "blueprint --server $server show "
    [ $((SECONDS - begun)) -le 10 ] || fail "$server kept the shell waiting for $((SECONDS - begun)) s"
done
echo "check-completion: $tried lines are completed as the programs have it"
