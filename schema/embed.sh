#!/bin/sh
# sh schema/embed.sh SYMBOL FILE... >OUT.c
#
# Writes a C file that defines `const struct bp_embedded SYMBOL[]` (common/base/embedded.h): one row per FILE, in the
# order given. The migrations are built in as
#
#   sh schema/embed.sh bp_migrations schema/migrations/*.sql >build/gen/migrations.c
set -eu

if [ $# -lt 2 ]; then
    echo "usage: sh schema/embed.sh SYMBOL FILE..." >&2
    exit 2
fi
symbol=$1
shift

echo "/* Written by schema/embed.sh. */"
echo '#include "common/base/embedded.h"'
i=0
for file in "$@"; do
    echo "static const unsigned char file_${i}[] = {"
    od -An -v -tx1 "$file" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'
    echo "0};"
    i=$((i + 1))
done
echo "extern const struct bp_embedded ${symbol}[];"
echo "const struct bp_embedded ${symbol}[] = {"
i=0
for file in "$@"; do
    echo "{\"${file##*/}\", file_$i, sizeof file_$i - 1},"
    i=$((i + 1))
done
echo "{0, 0, 0}};"
