#!/bin/sh
# check_arrows.sh [ROOT]: holds the include lines of the tree to the order of its layers. --self-test: that it does.
set -eu

# Reads "file include" lines. A layer may include itself and what is before it; what else is forbidden is a row of
# `no`: files whose path begins so may not include paths that begin so.
judge() {
    awk '
    BEGIN {
        n = split("common/base common/model common/request common/ir common/gate common/passes common/pipeline common/view", layers, " ")
        for (i = 1; i <= n; i++)
            rank[layers[i]] = i

        forbid("common/", "daemon/ client/ tests/")
        forbid("client/", "daemon/ tests/")
        forbid("daemon/", "client/ tests/")
        core = "common/ir common/gate common/passes common/pipeline common/view"
        forbid("daemon/store/", core " daemon/access/ daemon/jobs/ daemon/service/ daemon/http/")
        forbid("daemon/jobs/", core " daemon/access/ daemon/store/ daemon/service/ daemon/http/")
        forbid("daemon/access/", core " daemon/store/ daemon/jobs/ daemon/service/ daemon/http/")
        forbid("daemon/http/", "common/ir common/gate common/passes daemon/store/ daemon/jobs/")
        forbid("daemon/service/", "daemon/http/")
    }
    function forbid(from, to,    parts, count, j) {
        count = split(to, parts, " ")
        for (j = 1; j <= count; j++) {
            n_no++
            no_from[n_no] = from
            no_to[n_no] = parts[j]
        }
    }
    function begins(path, prefix) { return substr(path, 1, length(prefix)) == prefix }
    function layer(path,    j) {
        for (j = 1; j <= n; j++)
            if (begins(path, layers[j] "/") || begins(path, layers[j] "."))
                return j
        return 0
    }
    function complain(why) { print $1 ": includes " $2 ": " why; bad = 1 }
    $2 == "<microhttpd.h>" {
        if ($1 != "daemon/http/http.c")
            complain("only daemon/http/http.c may")
        next
    }
    $2 ~ /^</ { next }
    {
        gsub(/"/, "", $2)
        from = layer($1)
        to = layer($2)
        if (begins($1, "common/") && !from)
            complain("this file is in no layer")
        if (begins($2, "common/") && !to)
            complain("it is in no layer")
        if (from && to > from)
            complain(layers[to] " is after " layers[from])
        for (j = 1; j <= n_no; j++)
            if (begins($1, no_from[j]) && begins($2, no_to[j])) {
                complain(no_from[j] " may not include " no_to[j])
                break
            }
    }
    END { exit bad }'
}

includes() {
    (cd "$1" && find common daemon client -name '*.[ch]' -o -name '*.def' | LC_ALL=C sort | xargs -r awk '
        /^[ \t]*#[ \t]*include[ \t]*[<"]/ { line = $0; sub(/^[ \t]*#[ \t]*include[ \t]*/, "", line)
            split(line, words, /[ \t]/); print FILENAME, words[1] }')
}

check() {
    includes "$1" | judge
}

# One tree that is right, then one wrong line at a time: every one must be found.
self_test() {
    root=$(mktemp -d)
    trap 'rm -rf "$root"' EXIT
    mkdir -p "$root"/common/base "$root"/common/model "$root"/common/request "$root"/common/ir "$root"/common/gate \
        "$root"/common/passes "$root"/common/view "$root"/daemon/access "$root"/daemon/store "$root"/daemon/jobs "$root"/daemon/service \
        "$root"/daemon/http "$root"/client
    right='common/view/a.c common/pipeline.h
common/pipeline.c common/passes/pass.h
common/passes/a.c common/gate/gate.h
common/gate/a.c common/ir/ir.h
common/ir/a.c common/request/request.h
common/request/a.c common/model/model.h
common/model/a.c common/base/err.h
client/main.c common/base/err.h
daemon/access/a.c common/base/err.h
daemon/store/a.c common/base/err.h
daemon/service/a.c common/pipeline.h
daemon/service/b.c daemon/store/store.h
daemon/service/c.c daemon/jobs/jobs.h
daemon/service/d.c daemon/access/access.h
daemon/http/a.c daemon/service/service.h
daemon/http/b.c daemon/access/access.h
daemon/main.c daemon/http/http.h'
    printf '%s\n' "$right" | while read -r file include; do
        printf '#include "%s"\n' "$include" >"$root/$file"
    done
    printf '#include <microhttpd.h>\n' >"$root/daemon/http/http.c"
    check "$root" || { echo "check-arrows: self-test: a right tree is refused" >&2; return 1; }

    wrong='common/base/x.c "common/model/model.h"
common/model/x.c "common/request/request.h"
common/request/x.c "common/ir/ir.h"
common/ir/x.c "common/gate/gate.h"
common/gate/x.c "common/passes/pass.h"
common/passes/x.c "common/pipeline.h"
common/pipeline.h "common/view/view.h"
common/base/x.c "common/pipeline.h"
common/base/x.c "daemon/config.h"
common/view/x.c "client/print.h"
common/x.c "common/base/err.h"
common/base/x.c "common/other/a.h"
client/x.c "daemon/config.h"
daemon/x.c "client/print.h"
daemon/x.c "tests/lib/runner.h"
daemon/store/x.c "common/ir/ir.h"
daemon/store/x.c "common/gate/gate.h"
daemon/store/x.c "common/passes/pass.h"
daemon/store/x.c "common/pipeline.h"
daemon/store/x.c "common/view/view.h"
daemon/store/x.c "daemon/http/http.h"
daemon/store/x.c "daemon/service/service.h"
daemon/store/x.c "daemon/jobs/jobs.h"
daemon/store/x.c "daemon/access/access.h"
daemon/access/x.c "common/view/view.h"
daemon/access/x.c "daemon/store/store.h"
daemon/access/x.c "daemon/jobs/jobs.h"
daemon/access/x.c "daemon/service/service.h"
daemon/access/x.c "daemon/http/http.h"
daemon/jobs/x.c "daemon/access/access.h"
daemon/jobs/x.c "common/pipeline.h"
daemon/jobs/x.c "daemon/store/store.h"
daemon/jobs/x.c "daemon/service/service.h"
daemon/http/x.c "daemon/store/store.h"
daemon/http/x.c "daemon/jobs/jobs.h"
daemon/http/x.c "common/ir/ir.h"
daemon/service/x.c "daemon/http/http.h"
daemon/http/x.c <microhttpd.h>
client/x.c <microhttpd.h>'
    printf '%s\n' "$wrong" | while read -r file include; do
        saved=$(cat "$root/$file" 2>/dev/null || true)
        printf '#  include %s /* wrong */\n' "$include" >"$root/$file"
        if check "$root" >/dev/null; then
            echo "check-arrows: self-test: $file including $include is not found" >&2
            return 1
        fi
        rm "$root/$file"
        [ -z "$saved" ] || printf '%s\n' "$saved" >"$root/$file"
    done
}

if [ "${1-}" = --self-test ]; then
    self_test
    echo "check-arrows: the self-test passes"
else
    check "${1-.}"
    echo "check-arrows: $(includes "${1-.}" | wc -l) includes run one way"
fi
