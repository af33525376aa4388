"""bundle.py OPENAPI.yaml: one JSON document of it and the *.schema.json files beside it, on standard output.

A reference to FILE.schema.json becomes one to /components/schemas/FILE, and so does a reference within such a file;
what is served at /openapi.json refers to nothing outside itself.
"""
import json
import pathlib
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


def main():
    source = pathlib.Path(sys.argv[1])
    document = rewrite(yaml.safe_load(source.read_text(encoding="utf-8")), None)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for file in sorted(source.parent.glob("*" + SUFFIX)):
        name = file.name.removesuffix(SUFFIX)
        if name in schemas:
            raise SystemExit(f"bundle.py: {name} is defined twice")
        schemas[name] = rewrite(json.loads(file.read_text(encoding="utf-8")), name)
    json.dump(document, sys.stdout, separators=(",", ":"))
    print()


main()
