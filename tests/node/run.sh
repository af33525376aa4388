#!/bin/sh
# run.sh: records every exchange of the API tests and holds it to the OpenAPI description; lints that; compares the
# canonical bytes of every snapshot with what an independent canonicalizer writes. BUILD is the build directory.
set -eu
build=${BUILD:-build}
here=tests/node

sh tests/deps.sh node
if ! cmp -s "$here/package-lock.json" "$here/node_modules/.installed"; then
    (cd "$here" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
    cp "$here/package-lock.json" "$here/node_modules/.installed"
fi

"$here/node_modules/.bin/redocly" lint --config "$here/redocly.yaml" --format=stylish "$build/gen/openapi.json"

rm -f "$build/exchanges.jsonl"
BP_RECORD=$build/exchanges.jsonl BP_BUILD=$build "$build/tests/api"
node "$here/validate.js" "$build/gen/openapi.json" "$build/exchanges.jsonl"
node "$here/canonical.js" "$build/exchanges.jsonl"
