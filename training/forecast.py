"""What `harness train --dry-run` says: the resolved recipe with every key, the memory, the disk, and the tokens.

Decided here: it is written as TOML, so that it can be kept as a recipe of one's own; what is no part of the recipe
stands in comments. A key that is nothing says "none".
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness import newmodel, registry
from harness.core import EnvOptions, Json
from harness.errors import HarnessError
from training import budget, machine
from training.budget import Part, Size, gib
from training.recipe import NONE, Recipe

GOLD_TASKS = 4
"""Of each environment, whose gold play tells how long an attempt is."""
GOLD_SECONDS = 120.0
CHARACTERS = 4
"""Of one token, about."""


class Play(NamedTuple):
    """How long the attempts at one environment are."""

    env: str
    most_turns: int | None
    """None is the environment's own rule."""
    turns: float
    """Of gold play, the mean."""
    tokens: float
    """Sampled in an attempt of gold play, about."""
    problem: str
    """Why there is no gold play; "" where there is."""


class Tokens(NamedTuple):
    """What is sampled and trained on."""

    attempts: int
    """Of one update."""
    most_sampled: int
    """Of one update."""
    about_sampled: int | None
    """Of one update, where attempts are as long as gold play."""
    beside: int | None
    """Of gold play learnt beside own play (`ptx`), of one update, about; None where no gold play tells."""
    most_computed: int
    """Positions of one update: every attempt as long as its context, every gold play as long as is kept."""
    updates: int
    evaluated: int
    """Attempts of all evaluations."""


def whole(value: Any) -> Json:
    """Return a configuration with every key, defaults included."""
    if isinstance(value, msgspec.Struct):
        return {field.encode_name: whole(getattr(value, field.name)) for field in msgspec.structs.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): whole(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [whole(inner) for inner in value]
    return msgspec.to_builtins(value)


def toml(values: Mapping[str, Json], path: str = "") -> list[str]:
    """Return nested values as lines of TOML: plain ones first, then tables."""
    lines = [
        f"{_key(key)} = {_literal(NONE if value is None else value)}"
        for key, value in values.items()
        if not isinstance(value, Mapping)
    ]
    for key, value in values.items():
        if isinstance(value, Mapping):
            place = f"{path}.{_key(key)}" if path else _key(key)
            inner = toml(value, place)
            # A table that only holds tables need not be named; an empty one must.
            own = not value or any(not isinstance(each, Mapping) for each in value.values())
            lines += [*([f"\n[{place}]"] if own else []), *inner]
    return lines


def text(recipe: Recipe, size: Size, parts: Sequence[Part], folder: Path, plays: Sequence[Play]) -> str:
    """Return all of it for a person."""
    rows = [
        *toml(whole(recipe)),
        "",
        *(f"# {line}" if line else "#" for line in _notes(recipe, size, parts, folder, plays)),
    ]
    return "\n".join(rows)


def as_json(recipe: Recipe, size: Size, parts: Sequence[Part], folder: Path, plays: Sequence[Play]) -> dict[str, Json]:
    """Return all of it for a program."""
    return {
        "recipe": whole(recipe),
        "parameters": size.parameters,
        "room": [part._asdict() for part in parts],
        "totals": {
            where: {"least": least, "most": most, "free": budget.free(where, folder)}
            for where, (least, most) in budget.totals(parts).items()
        },
        "warm_start": [part._asdict() for part in warm_start_of(recipe, size)],
        "plays": [play._asdict() for play in plays],
        "tokens": tokens(recipe, size, plays)._asdict(),
    }


def parts_of(recipe: Recipe, size: Size) -> list[Part]:
    """Return all that takes memory and disk on this machine."""
    return [*budget.memory(recipe, size, machine.default_device()), *budget.disk(recipe, size)]


def warm_start_of(recipe: Recipe, size: Size) -> list[Part]:
    """Return all that takes memory in the warm start, which is over before training begins."""
    return budget.warm_start(recipe, size, machine.default_device())


def plays_of(recipe: Recipe) -> list[Play]:
    """Play a little gold play of each environment, to know how long an attempt is."""
    return [_play(recipe, name) for name in recipe.envs]


def tokens(recipe: Recipe, size: Size, plays: Sequence[Play]) -> Tokens:
    """Return the token budget, the environments by their shares."""
    attempts = recipe.groups * recipe.collect.group_size
    answer = min(recipe.collect.params.max_output_tokens or recipe.engine.answer_tokens, recipe.engine.answer_tokens)
    longest = budget.context(recipe, size)
    bounded = [play.most_turns for play in plays if play.most_turns is not None]
    most = attempts * min(longest, max(bounded) * answer) if len(bounded) == len(plays) else attempts * longest
    gold = {play.env: play.tokens for play in plays if not play.problem}
    beside = recipe.ptx.sequences if recipe.ptx else {}
    known = beside.keys() <= gold.keys()
    evaluations = 1 + math.ceil(recipe.steps / recipe.score.every)
    return Tokens(
        attempts=attempts,
        most_sampled=most,
        about_sampled=round(attempts * _mean(recipe, gold)) if gold else None,
        beside=round(sum(count * gold[name] for name, count in beside.items())) if known else None,
        most_computed=budget.positions_of(recipe, size) + sum(beside.values()) * recipe.begin.longest,
        updates=recipe.steps,
        evaluated=len(recipe.envs) * (evaluations * recipe.score.tasks + 3 * recipe.score.test_tasks),
    )


def _mean(recipe: Recipe, gold: Mapping[str, float]) -> float:
    """Return the tokens of an attempt, of environments that have their shares of the tokens, or of the groups."""
    mean = statistics.fmean if recipe.curriculum.over == "groups" else statistics.harmonic_mean
    return mean(gold.values(), weights=[recipe.curriculum.shares.get(name, 1.0) for name in gold])


def _play(recipe: Recipe, name: str) -> Play:
    most: int | None = None
    try:
        options = EnvOptions(settings=recipe.envs[name])
        scheduled = max((turns for _, turns in recipe.curriculum.horizon.get(name, ())), default=None)
        limits = (recipe.collect.limits.turns, scheduled, registry.make_env(name, options).turn_limit)
        most = min((each for each in limits if each is not None), default=None)
        played = asyncio.run(_gold(name, recipe.seed, options))
    except (HarnessError, TimeoutError) as error:
        return Play(name, most, 0.0, 0.0, str(error) or f"gold play took longer than {GOLD_SECONDS:.0f} s")
    replies = [[turn.reply.message for turn in play.turns] for play in played]
    written = sum(
        len(message.content) + sum(len(call.name) + len(call.arguments) + 40 for call in message.tool_calls)
        for messages in replies
        for message in messages
    )
    return Play(name, most, sum(map(len, replies)) / len(replies), written / CHARACTERS / len(replies), "")


async def _gold(name: str, seed: int, options: EnvOptions) -> Any:
    async with asyncio.timeout(GOLD_SECONDS):
        return await newmodel.gold_play(name, GOLD_TASKS, seed, options)


def _notes(recipe: Recipe, size: Size, parts: Sequence[Part], folder: Path, plays: Sequence[Play]) -> list[str]:
    """Return what is no part of the recipe, line by line."""
    lines = [f"a model of {size.parameters:,} weights"]
    lines += filter(None, [budget.told_of_bfloat16(recipe, machine.default_device())])
    for where, (least, most) in budget.totals(parts).items():
        have = budget.free(where, folder)
        known = "free: not known" if have is None else f"free: {gib(have)}"
        grows = _grows(least, most, " with full caches and the longest attempts")
        verdict = "" if have is None or most <= have else "  TOO LITTLE" if least > have else "  enough unless it grows"
        lines += ["", f"{where}: {gib(least)}{grows}; {known}{verdict}"]
        lines += [_row(part) for part in sorted(parts, key=lambda part: -part.most) if part.where == where]
    before = budget.totals(warm_start_of(recipe, size)).items()
    told = [f"{gib(least)} of {where}{_grows(least, most)}" for where, (least, most) in before]
    lines += ["", *(f"before it, the warm start: {each}" for each in told)]
    return [*lines, "", *_token_lines(recipe, size, plays)]


def _row(part: Part) -> str:
    return f"  {gib(part.least):>10}  {part.what}{_grows(part.least, part.most)}"


def _grows(least: int, most: int, where: str = "") -> str:
    return f", up to {gib(most)}{where}" if most > least else ""


def _token_lines(recipe: Recipe, size: Size, plays: Sequence[Play]) -> list[str]:
    found = tokens(recipe, size, plays)
    about = "" if found.about_sampled is None else f"about {found.about_sampled:,} sampled if as long as gold play, "
    total = "" if found.about_sampled is None else f"about {found.updates * found.about_sampled:,}, "
    lines = [
        f"tokens of an update: {recipe.groups} groups × {recipe.collect.group_size} attempts = {found.attempts:,}; "
        f"{about}at most {found.most_sampled:,}; at most {found.most_computed:,} positions trained through",
        f"tokens of {found.updates:,} updates: {total}at most {found.updates * found.most_sampled:,} sampled",
        *_beside_lines(recipe, found),
        f"an attempt: at most {budget.context(recipe, size):,} tokens, {recipe.engine.answer_tokens:,} sampled a turn",
    ]
    for play in plays:
        most = f"at most {play.most_turns} turns" if play.most_turns else "turns by its own rule"
        gold = f"gold play: {play.turns:.1f} turns, about {play.tokens:,.0f} tokens sampled"
        lines.append(f"  {play.env}: {most}; {f'no gold play here: {play.problem}' if play.problem else gold}")
    return [*lines, f"evaluations: at most {found.evaluated:,} attempts"]


def _beside_lines(recipe: Recipe, found: Tokens) -> list[str]:
    if recipe.ptx is None:
        return []
    plays = ", ".join(f"{count:,} of {name}" for name, count in recipe.ptx.sequences.items())
    about = "" if found.beside is None else f", about {found.beside:,} tokens"
    return [f"gold play learnt beside in an update (ptx.sequences): {plays}{about}"]


def _key(key: str) -> str:
    plain = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if plain else _literal(key)


def _literal(value: Json) -> str:
    """Write a plain value, or a list of such."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_literal(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)
