"""Values that fit a JSON schema, made of given texts and numbers: what scripted agents put into a tool's arguments.

Schemas come from environments and may be anything: an unknown type is text, depth and breadth are bounded.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from harness.core import Json, ToolSpec

MOST_DEPTH = 6
MOST_ITEMS = 3

Leaf = Callable[[str, Mapping[str, Json]], Json]
"""The type a schema asks for, and the schema, to a value."""


def arguments(tool: ToolSpec, leaf: Leaf) -> str:
    """Fill every parameter of a tool: objects and arrays by their schema, all else by `leaf`. One item an array."""
    return msgspec.json.encode(filled({"type": "object", **tool.parameters}, leaf)).decode()


def filled(schema: Json, leaf: Leaf, depth: int = 0) -> Json:
    """Fill one schema."""
    schema = _resolved(schema)
    kind = kind_of(schema)
    if kind == "object" and depth < MOST_DEPTH:
        properties = schema.get("properties")
        named = properties if isinstance(properties, Mapping) else {}
        return {str(name): filled(inner, leaf, depth + 1) for name, inner in named.items()}
    if kind == "array" and depth < MOST_DEPTH:
        value = leaf("array", schema)
        return value if isinstance(value, list) else [filled(schema.get("items", {}), leaf, depth + 1)]
    return leaf(kind, schema)


def sampled(schema: Json, draw: random.Random, words: Sequence[str], depth: int = 0) -> Json:
    """Draw a value that fits a schema; texts are of `words`. Optional parameters come half of the time."""
    schema = _resolved(schema, draw)
    if "const" in schema:
        return schema["const"]
    if options := options_of(schema):
        return draw.choice(options)
    kind = kind_of(schema, draw)
    if kind == "object":
        properties = schema.get("properties")
        if depth >= MOST_DEPTH or not isinstance(properties, Mapping):
            return {}
        required = schema.get("required")
        needed = required if isinstance(required, (list, tuple)) else ()  # of whatever it holds
        return {
            str(name): sampled(inner, draw, words, depth + 1)
            for name, inner in properties.items()
            if name in needed or draw.random() < 0.5
        }
    if kind == "array":
        many = 0 if depth >= MOST_DEPTH else draw.randint(1, MOST_ITEMS)
        return [sampled(schema.get("items", {}), draw, words, depth + 1) for _ in range(many)]
    return _scalar(kind, schema, draw, words)


def _scalar(kind: str, schema: Mapping[str, Json], draw: random.Random, words: Sequence[str]) -> Json:
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "null":
        return None
    if kind in {"integer", "number"}:
        low, high = _bound(schema.get("minimum"), 0), _bound(schema.get("maximum"), 100)
        low, high = min(low, high), max(low, high)
        return draw.randint(int(low), int(high)) if kind == "integer" else round(draw.uniform(low, high), 3)
    return " ".join(draw.choices(words, k=draw.randint(1, 3))) if words else ""


def _bound(value: Json, otherwise: float) -> float:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12
    return value if usable else otherwise


def options_of(schema: Mapping[str, Json]) -> list[Json]:
    """Return a schema's enum values."""
    options = schema.get("enum")
    return list(options) if isinstance(options, (list, tuple)) else []


def kind_of(schema: Mapping[str, Json], draw: random.Random | None = None) -> str:
    """Return the type that a schema asks for; of several the first, or one drawn."""
    kind: Any = schema.get("type")
    if isinstance(kind, (list, tuple)) and kind:
        kind = draw.choice(kind) if draw else kind[0]
    # BFCL's documents say dict, tuple and float.
    names = {"dict": "object", "tuple": "array", "float": "number", "any": "string"}
    known = {"object", "array", "string", "integer", "number", "boolean", "null"}
    kind = names.get(kind, kind) if isinstance(kind, str) else None
    if kind in known:
        return str(kind)
    return "object" if "properties" in schema else "string"


def _resolved(schema: Json, draw: random.Random | None = None) -> Mapping[str, Json]:
    """Step into `anyOf` and its like; of several alternatives the first, or one drawn."""
    for _ in range(MOST_DEPTH):
        if not isinstance(schema, Mapping):
            return {}
        alternatives = next((schema[key] for key in ("anyOf", "oneOf", "allOf") if schema.get(key)), None)
        if not isinstance(alternatives, (list, tuple)):
            return schema
        schema = draw.choice(alternatives) if draw else alternatives[0]
    return schema if isinstance(schema, Mapping) else {}
