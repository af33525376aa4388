'use strict';
// validate.js OPENAPI EXCHANGES: every recorded answer must be one that the OpenAPI document describes: route, status,
// media type, headers, and body to the last field. Every operation it describes must have been asked and succeeded.
const fs = require('fs');
const Ajv = require('ajv/dist/2020').default;
const addFormats = require('ajv-formats').default;
const exchanges = require('./exchanges');

const api = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
// The document around the schemas is not a schema: its words are no unknown keywords to stop at.
const ajv = new Ajv({ strict: false, allErrors: true });
addFormats(ajv);
ajv.addSchema(api, 'api');

function resolve(node) {
    while (node && node.$ref)
        node = node.$ref.slice(2).split('/').reduce((at, key) => at[key], api);
    return node;
}

const compiled = new Map();
function check(pointer, value) {
    if (!compiled.has(pointer))
        compiled.set(pointer, ajv.compile({ $ref: 'api#' + pointer }));
    const validate = compiled.get(pointer);
    if (validate(value))
        return null;
    return ajv.errorsText(validate.errors.filter((e) => e.keyword !== 'oneOf').slice(0, 5), { separator: '; ' });
}

const escape = (key) => encodeURIComponent(key.replace(/~/g, '~0').replace(/\//g, '~1'));
const pointerOf = (...keys) => keys.map((key) => '/' + escape(key)).join('');

const routes = Object.keys(api.paths).map((path) => ({
    path,
    pattern: new RegExp('^' + path.replace(/[.]/g, '\\.').replace(/\{[^}]+\}/g, '[^/]+') + '$'),
}));
const PROBLEM = '/components/schemas/Problem';

// Where the answer's description is: a pointer, or what is wrong.
function describe(exchange, route) {
    const method = exchange.method === 'HEAD' ? 'get' : exchange.method.toLowerCase();
    if (!route) // who may not be known learns no more
        return [401, 403, 404, 429].includes(exchange.status) ? { problem: true } : { wrong: 'the route is not described' };
    const operation = api.paths[route.path][method];
    if (!operation)
        return [401, 403, 405, 429].includes(exchange.status) ? { problem: true } : { wrong: 'the method is not described' };
    const answer = operation.responses[exchange.status];
    if (!answer)
        return { wrong: `status ${exchange.status} is not described` };
    const at = answer.$ref ? answer.$ref.slice(1) : pointerOf('paths', route.path, method, 'responses', String(exchange.status));
    return { answer: resolve(answer), at, operation };
}

function checkHeaders(answer, at, headers) {
    const wrong = [];
    for (const [name, reference] of Object.entries(answer.headers || {})) {
        const header = resolve(reference);
        const value = headers[name.toLowerCase()];
        if (value === undefined && header.required)
            wrong.push(`header ${name} is missing`);
        const schemaAt = reference.$ref ? reference.$ref.slice(1) : at + pointerOf('headers', name);
        if (value !== undefined) {
            const errors = check(schemaAt + '/schema', value);
            if (errors)
                wrong.push(`header ${name}: ${errors}`);
        }
    }
    return wrong;
}

function checkBody(answer, at, exchange) {
    const media = (exchange.headers['content-type'] || '').split(';')[0];
    if (!answer.content)
        return exchange.body ? ['a body is not described'] : [];
    if (exchange.method === 'HEAD')
        return [];
    if (!answer.content[media])
        return [`media type "${media}" is not described`];
    const value = media.endsWith('json') ? JSON.parse(exchange.body) : exchange.body;
    const errors = check(at + pointerOf('content', media, 'schema'), value);
    return errors ? [errors] : [];
}

const FORM = ['wrong_type', 'missing_key', 'unknown_key'];
let refusedByBoth = 0;

// What the daemon accepts, the description must allow. What it refuses for its form alone, the description must refuse;
// of a published config it describes no more than the type.
function checkRequest(exchange, operation, accepted) {
    let request;
    try {
        request = JSON.parse(exchange.request);
    } catch {
        return accepted ? ['the accepted request is not JSON'] : [];
    }
    const { schema } = operation.requestBody.content['application/json'];
    const refused = check(schema.$ref.slice(1), request);
    if (accepted)
        return refused ? [`the accepted request: ${refused}`] : [];
    // Of 1e3 and 1000 nothing differs once they are parsed.
    if (exchange.status === 400 && !/[0-9][.eE]/.test(exchange.request)) {
        const ofForm = JSON.parse(exchange.body).errors.filter(
            (error) => FORM.includes(error.code) && !error.path.startsWith('/model/huggingface'));
        if (ofForm.length && !refused)
            return [`the description allows the request refused for ${JSON.stringify(ofForm)}`];
        refusedByBoth += ofForm.length > 0;
    }
    return [];
}

function judge(exchange, succeeded) {
    const path = exchange.target.split('?')[0];
    const route = routes.find((candidate) => candidate.pattern.test(path));
    const { wrong, problem, answer, at, operation } = describe(exchange, route);
    if (wrong)
        return [wrong];
    if (problem) {
        if (exchange.headers['content-type'] !== 'application/problem+json')
            return ['not application/problem+json'];
        const errors = exchange.method === 'HEAD' ? null : check(PROBLEM, JSON.parse(exchange.body));
        return errors ? [errors] : [];
    }
    const accepted = exchange.status < 300;
    if (accepted)
        succeeded.add(operation.operationId);
    const errors = [...checkHeaders(answer, at, exchange.headers), ...checkBody(answer, at, exchange)];
    if (operation.requestBody && exchange.request)
        errors.push(...checkRequest(exchange, operation, accepted));
    return errors;
}

// The description must be closed: the same answer with a field, a status or a route more is refused.
function* mutations(exchange) {
    yield { ...exchange, status: 299 };
    yield { ...exchange, target: '/v1/nowhere', status: 200 };
    const media = exchange.headers['content-type'] || '';
    if (exchange.method !== 'HEAD' && media.includes('json') && exchange.target !== '/openapi.json')
        yield { ...exchange, body: exchange.body.replace('{', '{"unheard_of":1,') };
}

// Plans and distributed snapshots of one kind of block and of several, in both modes, must be among what is held to it.
function shapesOf(exchange) {
    if (exchange.status >= 300 || exchange.method === 'HEAD' || !/^.v1.(plans|snapshots)\b/.test(exchange.target))
        return [];
    const { facts, mode, stage, blocks, workload } = JSON.parse(exchange.body);
    if (facts)
        return [`${mode} plan of ${facts.by_block ? 'several kinds' : 'one kind'}`];
    return stage === 'distributed' ? [`${workload.mode} snapshot of ${blocks.length > 1 ? 'several kinds' : 'one kind'}`] : [];
}

const SHAPES = ['training', 'inference'].flatMap((mode) => ['plan', 'snapshot'].flatMap((what) =>
    ['one kind', 'several kinds'].map((kinds) => `${mode} ${what} of ${kinds}`)));

const failures = [];
const shapes = new Set();
const succeeded = new Set();
const mutated = new Set();
let passed = 0;
for (const exchange of exchanges.read(process.argv[3])) {
    const wrong = judge(exchange, succeeded);
    const kind = `${exchange.method} ${exchange.target.split('/').slice(0, 3).join('/')} ${exchange.status}`;
    if (!wrong.length && !mutated.has(kind)) {
        mutated.add(kind);
        for (const mutation of mutations(exchange))
            if (!judge(mutation, new Set()).length)
                failures.push(`${kind}: not refused: ${mutation.status} ${mutation.target} ${mutation.body.slice(0, 60)}`);
    }
    if (wrong.length)
        failures.push(`${exchange.method} ${exchange.target.slice(0, 120)} -> ${exchange.status}: ${wrong.join(' | ')}`);
    else {
        passed++;
        shapesOf(exchange).forEach((shape) => shapes.add(shape));
    }
}
for (const shape of SHAPES)
    if (!shapes.has(shape))
        failures.push(`no ${shape} was held to the description`);
for (const item of Object.values(api.paths))
    for (const operation of Object.values(item))
        if (operation.operationId && !succeeded.has(operation.operationId))
            failures.push(`operation ${operation.operationId} never succeeded in the API tests`);
if (refusedByBoth < 20)
    failures.push(`only ${refusedByBoth} requests were refused for their form`);
exchanges.finish('described answers', passed, [...new Set(failures)]);
