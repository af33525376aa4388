#!/bin/sh
# check_symbols.sh OBJECT...: fails when an object keeps writable state. Constant tables of pointers
# (.data.rel.ro, which the loader writes once) are no state. Instrumented builds add their own: use a plain one.
set -u
[ $# -gt 0 ] || { echo "check_symbols: no objects" >&2; exit 2; }
found=$(objdump -t "$@" | awk '
    /file format/ { object = $1; next }
    { for (i = 1; i <= NF; i++)
          if (($i ~ /^\.(data|bss|tdata|tbss)(\.|$)/ && $i !~ /^\.data\.rel\.ro/) || $i == "*COM*") {
              if ($NF != $i) print object " " $i " " $NF
          } }')
if [ -n "$found" ]; then
    echo "$found"
    echo "check_symbols: writable state in a pass" >&2
    exit 1
fi
echo "check-symbols: $# objects without writable state"
