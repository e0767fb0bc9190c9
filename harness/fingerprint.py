"""What a score depends on, as one document and its hash, one for each board entry.

In the document: prompts, tools, rules, limits, sampling, the agent, the model's parser, data digests, versions of
environment, grader and back-end. Not in it: which model, which tasks, how many epochs. Those are the run's identity,
so that a larger selection of the same protocol continues a run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from harness.core import BoardEntry, Env, Json, Limits, SamplingParams, digest

PROTOCOL_VERSION = 1
"""Raised when the rollout itself changes what a score means."""
WEIGHTS = "model.engine.weights"
"""Key of the digest of a model on disk."""


class Described(Protocol):
    """An agent or a model, as far as a score depends on it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    def protocol(self) -> Mapping[str, Json]:
        """Return everything that a score depends on beyond the name."""
        ...


def protocol(entry: BoardEntry, env: Env, agent: Described, model: Described | None, limits: Limits) -> dict[str, Json]:
    """Return everything that a score on this entry depends on. `env` is open."""
    return {
        "version": PROTOCOL_VERSION,
        "env": {"name": env.name, "split": entry.split, "rules": entry.rules, **env.protocol(entry.split)},
        "agent": {"name": agent.name, **agent.protocol()},
        "model": dict(model.protocol()) if model else {},
        "sampling": {key: value for key, value in _plain(entry.sampling).items() if value is not None} if model else {},
        "limits": {**_plain(limits), "turns": entry.turns or limits.turns or env.turn_limit},
    }


def _plain(value: SamplingParams | Limits) -> dict[str, Json]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def fingerprint(document: Mapping[str, Json]) -> str:
    """Return the first 16 hex digits of the document's SHA-256."""
    return digest(document)[:16]


def differences(left: Mapping[str, Json], right: Mapping[str, Json], but: Collection[str] = ()) -> list[str]:
    """Name the dotted keys, `but` for some, where two documents differ, with both values, cut to a readable length.

    Example: ["limits.turns: 15 against 20"].
    """
    flat_left, flat_right = dict(_flatten(left)), dict(_flatten(right))
    return [
        f"{key}: {_short(flat_left.get(key))} against {_short(flat_right.get(key))}"
        for key in sorted({*flat_left, *flat_right}.difference(but))
        if flat_left.get(key) != flat_right.get(key)
    ]


def apart(
    before: Mapping[str, Mapping[str, Json]], after: Mapping[str, Mapping[str, Json]], entries: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Return entry -> how the protocols of two runs differ there, for the entries where they do.

    Weights are in a protocol so that a run goes on with none but its own; two checkpoints of one model are two models,
    and are compared like any.
    """
    found = {name: tuple(differences(before.get(name, {}), after.get(name, {}), {WEIGHTS})) for name in entries}
    return {name: lines for name, lines in found.items() if lines}


def _flatten(document: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Json]]:
    for key, value in document.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            yield from _flatten(value, name)
        else:
            yield name, list(value) if isinstance(value, tuple) else value


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:40]}… ({len(text)} characters, {digest(value)[:6]})"
