"""bundle.py OPENAPI.yaml ROUTES.def: one JSON document of it and the *.schema.json files beside it, on standard output.

What an operation's caller must be allowed to do, and how it is refused, is made from the scopes of the routes. A reference to FILE.schema.json becomes one to /components/schemas/FILE, and so does a reference within such a file;
what is served at /openapi.json refers to nothing outside itself.
"""
import json
import pathlib
import re
import sys

import yaml

SUFFIX = ".schema.json"


def target(reference, home):
    """The bundled form of a $ref found in the schema `home` (None: in the OpenAPI document)."""
    file, _, pointer = reference.partition("#")
    if file.endswith(SUFFIX):
        home = file.removeprefix("./").removesuffix(SUFFIX)
    elif file:
        raise SystemExit(f"bundle.py: cannot bundle {reference}")
    return f"#/components/schemas/{home}{pointer}" if home else reference


def rewrite(node, home):
    if isinstance(node, list):
        return [rewrite(item, home) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: target(value, home) if key == "$ref" and isinstance(value, str) else rewrite(value, home)
        for key, value in node.items()
        if key not in ("$schema", "$id")
    }


REFUSALS = {"401": "Unauthenticated", "403": "Forbidden", "429": "TooManyRequests"}


def secure(document, routes):
    """Gives each operation the scope of its route; the two must be of the same routes."""
    rows = re.findall(r'^BP_ROUTE\("(\w+)", "([^"]+)", (\w+), \w+, "(\w+)"\)', routes, re.M)
    scopes = {(method.lower(), path, name): scope for method, path, scope, name in rows}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method == "parameters":
                continue
            scope = scopes.pop((method, path, operation["operationId"]), None)
            if scope is None:
                raise SystemExit(f"bundle.py: {method} {path} {operation['operationId']} is no route")
            operation["security"] = [] if scope == "NONE" else [{"token": [scope.lower()]}, {}]
            for status, name in REFUSALS.items() if scope != "NONE" else ():
                operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
    if scopes or not rows:
        raise SystemExit(f"bundle.py: routes that are not described: {sorted(scopes)}")


def main():
    source = pathlib.Path(sys.argv[1])
    document = rewrite(yaml.safe_load(source.read_text(encoding="utf-8")), None)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for file in sorted(source.parent.glob("*" + SUFFIX)):
        name = file.name.removesuffix(SUFFIX)
        if name in schemas:
            raise SystemExit(f"bundle.py: {name} is defined twice")
        schemas[name] = rewrite(json.loads(file.read_text(encoding="utf-8")), name)
    secure(document, pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
    json.dump(document, sys.stdout, separators=(",", ":"))
    print()


main()
