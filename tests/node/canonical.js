'use strict';
// canonical.js EXCHANGES: every snapshot served must be the bytes that an independent RFC 8785 canonicalizer writes for
// the same value, and have the digest it is named by.
const crypto = require('crypto');
const canonicalize = require('canonicalize');
const exchanges = require('./exchanges');

const failures = [];
const seen = new Map(); // digest -> stage

for (const { method, target, status, headers, body } of exchanges.read(process.argv[2])) {
    if (method !== 'GET' || status !== 200 || !/^\/v1\/snapshots\/[^/]+$/.test(target))
        continue;
    const digest = 'sha256:' + crypto.createHash('sha256').update(body, 'utf8').digest('hex');
    if (seen.has(digest))
        continue;
    const snapshot = JSON.parse(body);
    seen.set(digest, snapshot.stage);
    if (headers.etag !== `"${digest}"`)
        failures.push(`${target}: the body's digest is ${digest}, the ETag ${headers.etag}`);
    if (canonicalize(snapshot) !== body)
        failures.push(`${target}: not the canonical bytes`);
}

const stages = new Set(seen.values());
for (const stage of ['model', 'distributed', 'portable', 'concrete'])
    if (!stages.has(stage))
        failures.push(`no snapshot of stage ${stage} was recorded`);
exchanges.finish('canonical snapshots', seen.size, failures);
