#!/bin/sh
# coverage.sh BUILD LEAST: line coverage of common/ from an instrumented build that ran its tests; fails below LEAST
# per cent. GCOV is the gcov of the compiler.
set -eu
build=$1
least=$2

find "$build/obj/common" -name '*.gcno' | LC_ALL=C sort | while read -r notes; do
    "${GCOV:-gcov}" -n "$notes" 2>/dev/null
done | awk -v least="$least" '
    /^File / { file = $2; gsub(/\x27/, "", file); next }
    /^Lines executed:/ && file ~ /^common\/.*\.c$/ {
        split($0, words, /[:% ]+/)
        executed = int(words[3] * words[5] / 100 + 0.5)
        lines += words[5]
        hit += executed
        printf "%6.2f %%  %4d of %4d  %s\n", words[3], executed, words[5], file
        file = ""
    }
    END {
        if (!lines) {
            print "coverage: nothing was measured"
            exit 1
        }
        percent = 100 * hit / lines
        printf "coverage of common/: %.2f %% of %d lines, at least %s %% wanted\n", percent, lines, least
        exit percent < least
    }'
