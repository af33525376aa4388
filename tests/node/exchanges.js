'use strict';
// The exchanges that the API tests recorded, one JSON object a line:
// {method, target, status, headers: {name: value}, request, body}; `request` is null where it was not kept.
const fs = require('fs');

exports.read = function (file) {
    return fs.readFileSync(file, 'utf8').split('\n').filter(Boolean).map((line) => JSON.parse(line));
};

// Prints the outcome as a test runner closes; the exit status says the same.
exports.finish = function (what, passed, failures) {
    for (const failure of failures.slice(0, 50))
        console.error(failure);
    console.log(`${what}: ${passed} passed, ${failures.length} failed`);
    process.exit(failures.length || !passed ? 1 : 0);
};
