#!/bin/sh
# readme.sh [--write]: runs the session of README.md on a daemon and a database of its own, and compares what it prints
# with the page, but for times and the ids that are made of them. --write puts what it prints into the page instead. Then
# runs the examples of docs/api.md and docs/operating.md on what the session left: each must succeed, and a query must
# find something; every metric is in docs/metrics.md, and every scope but the usual one in docs/access.md. BUILD is the build directory.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${BUILD:-build}" && pwd)
scratch=$(mktemp -d)
daemon=
url=
page_url=http://127.0.0.1:7433

finish() {
    if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then
        wait "$daemon" || true
    fi
    cd / && rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' INT TERM

# The page's command, on a port that is free.
serve() {
    : >ready
    eval "$1 --listen 127.0.0.1:0 >ready 2>log &"
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
    export BLUEPRINT_SERVER="$url"
    sed "s|$url|$page_url|" ready
}

# In this shell, so that what a command exports stays. Status 1 is an answer: two plans differ.
run() {
    case $1 in
    'blueprintd '*' &') serve "${1% &}" ;;
    *)
        eval "$(printf '%s\n' "$1" | sed "s|$page_url|$url|g")" </dev/null 2>err || [ $? -eq 1 ] || {
            cat err >&2
            printf 'README.md: its session fails at: %s\nThe plans of a new revision have new ids:\n' "$1" >&2
            blueprint list >&2
            exit 1
        }
        ;;
    esac
}

# A line of the page from descriptor 3; in a block of the session the lines after a command are what it printed, or its
# here-document.
session() {
    inside=
    while IFS= read -r line <&3; do
        case $inside$line in
        '```console') inside=: ;;
        ':```') inside= ;;
        ':$ '*"<<'END'")
            command=${line#??}
            printf '%s\n' "$line"
            until [ "$line" = END ]; do
                IFS= read -r line <&3 || exit 1
                printf '%s\n' "$line"
                command="$command
$line"
            done
            run "$command"
            continue
            ;;
        ':$ '*)
            printf '%s\n' "$line"
            run "${line#??}"
            continue
            ;;
        :*) continue ;;
        esac
        printf '%s\n' "$line"
    done
}

without_times() {
    sed -E 's/[0-9]{4}(-[0-9]{2}){2}T[0-9:.]+Z/TIME/; s/^(replay +sha256:)[0-9a-f]{64}$/\1ID/' "$1"
}

# The blocks of shell in a page, from a heading on.
examples() {
    sed -n "/^$2/,\$p" "$1" | sed -n '/^```sh$/,/^```$/p' | sed "/^\`\`\`/d; s|$page_url|$url|g"
}

# What fails ends the script, in the middle of a pipe too.
strictly='set -euo pipefail
curl() { command curl --fail --max-time 30 "$@"; }
sqlite3() {
    local found
    found=$(command sqlite3 "$@")
    [ -n "$found" ] || { echo "no rows: ${*: -1}" >&2; return 1; }
    printf "%s\n" "$found"
}'

run_examples() {
    { printf '%s\n' "$strictly" && examples "$root/$1" "$2"; } >examples
    if ! bash -x examples >examples.out 2>&1 </dev/null; then
        tail -n 20 examples.out
        echo "$1: an example failed" >&2
        exit 1
    fi
}

# Whatever the daemon measures is explained.
metrics_are_named() {
    curl -s --fail "$url/metrics" | sed -n 's/^# TYPE \([a-z_]*\) .*/\1/p' >metrics
    [ -s metrics ]
    while read -r metric; do
        grep -q "\`$metric\`" "$root/docs/metrics.md" || {
            echo "docs/metrics.md: does not name $metric" >&2
            exit 1
        }
    done <metrics
}

# What a route asks of its caller is said where callers look; READ is that of all others.
scopes_are_named() {
    sed -n 's/^BP_ROUTE("\([A-Z]*\)", "\([^"]*\)", \([A-Z]*\),.*/\3 \1 \2/p' "$root/daemon/http/routes.def" >routes
    [ -s routes ]
    while read -r scope method path; do
        called="\`$method $path\`"
        case $path in /v1/admin/*) called="all of \`/v1/admin\`" ;; esac
        case $scope in
        READ) continue ;;
        NONE) wanted=none ;;
        *) wanted="\`$(printf %s "$scope" | tr '[:upper:]' '[:lower:]')\`" ;;
        esac
        grep -F "$called" "$root/docs/access.md" | grep -q "| $wanted" || {
            echo "docs/access.md: does not say that $method $path asks for $wanted" >&2
            exit 1
        }
    done <routes
}

ln -s "$build" "$scratch/build"
cd "$scratch"
export BLUEPRINT_SERVER="unix:$scratch/none" # until the session serves
session 3<"$root/README.md" >README.md
[ -n "$daemon" ]
without_times "$root/README.md" >page
without_times README.md >now
if cmp -s page now; then
    :
elif [ "${1-}" = --write ]; then
    cat README.md >"$root/README.md"
else
    diff -u --label README.md --label "what its session prints" page now || true
    echo 'README.md is stale: "make docs" renews it; read the difference' >&2
    exit 1
fi
run_examples docs/api.md '# The API'
run_examples docs/operating.md '## Looking into the database'
metrics_are_named
scopes_are_named
echo "check-docs: the session of README.md and the examples of docs/api.md and docs/operating.md hold"
