"""A run's attempts in the forms that other trainers read, a JSON line each.

    openai     {"messages": […], "tools": […]}: fine-tuning files of OpenAI, and whatever reads them
    sharegpt   {"conversations": [{"from", "value"}], "system", "tools"}: LLaMA-Factory, Axolotl and kin
    tokens     what was sampled, id by id, aligned: ids, mask, logprobs, versions, turns, and the reward

Decided here: play of held-out tasks is refused before a line is written, as `heldout` finds it, and there is no way
around it; attempts that were not scored, or are not asked for, are left out. `tokens` are JSON lines too: sequences are
ragged, lines can be read one by one, and every float comes back as it was; arrays in NumPy's or Parquet's form would be
padded, or need a package more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from harness import heldout
from harness.core import AttemptKey, Json, Message, Tokens, Trajectory
from harness.errors import SetupError
from harness.models import wire
from harness.runlog import Run

HUMAN, OBSERVATION, MODEL, CALL = "human", "observation", "gpt", "function_call"


class Filter(NamedTuple):
    """Which attempts are asked for."""

    min_score: float | None = None
    envs: tuple[str, ...] = ()
    """Environments or board entries; empty is all."""
    split: str | None = None

    def takes(self, trajectory: Trajectory) -> bool:
        """Whether an attempt is asked for."""
        score = trajectory.score.value
        return (
            (self.min_score is None or (score is not None and score >= self.min_score))
            and (not self.envs or trajectory.env in self.envs or trajectory.entry in self.envs)
            and (self.split is None or trajectory.split == self.split)
        )


def counted(run: Run) -> dict[AttemptKey, int]:
    """Return which attempt counts of each, of those that are there now."""
    return {key: record.attempt for key, record in run.newest().items()}


def chosen(run: Run, newest: Mapping[AttemptKey, int], wanted: Filter) -> Iterator[Trajectory]:
    """Yield the attempts of a run that count and are asked for; not those that were not there when it was looked at."""
    for trajectory in run.trajectories():
        if newest.get(trajectory.key) == trajectory.attempt and wanted.takes(trajectory):
            yield trajectory


def lines(runs: Sequence[Run], form: str, wanted: Filter) -> Iterator[bytes]:
    """Yield attempts to learn from in one of `FORMS`.

    Raises:
        SetupError: one of them is of a held-out task, has no tokens where they are asked for, or none is left.
    """
    seen = [(run, counted(run)) for run in runs]
    for run, newest in seen:
        entries = {trajectory.entry for trajectory in chosen(run, newest, wanted)}
        held_out = heldout.of_run(run.header, sorted(entries))
        for trajectory in chosen(run, newest, wanted):
            heldout.require_train(trajectory, run.header, held_out)
    none = True
    scored = (each for run, newest in seen for each in chosen(run, newest, wanted) if each.score.value is not None)
    for value in (value for trajectory in scored for value in FORMS[form](trajectory)):
        none = False
        yield msgspec.json.encode(value) + b"\n"
    if none:
        raise SetupError("no attempt is left to export: ask for others with --min-score, --env or --split")


def openai(trajectory: Trajectory) -> Iterator[Json]:
    """Yield an attempt as OpenAI's fine-tuning has it; it ends with what the model said last."""
    messages = wire.encode_messages(_to_the_last_word(trajectory.history))
    while messages and messages[-1]["role"] != "assistant":  # answers that are owed to the last calls
        messages.pop()
    if messages:
        yield {"messages": messages, "tools": wire.encode_tools(trajectory.tools)}


def sharegpt(trajectory: Trajectory) -> Iterator[Json]:
    """Yield an attempt as a conversation in which two sides take turns."""
    messages = _to_the_last_word(trajectory.history)
    said = [(_side(message), _value(message)) for message in messages if message.role != "system"]
    turns: list[tuple[str, list[str]]] = []
    for side, value in said:
        theirs = side in (HUMAN, OBSERVATION)
        if turns and theirs and turns[-1][0] in (HUMAN, OBSERVATION):
            turns[-1][1].append(value)  # answers to several calls, or a word of the environment behind them
        else:
            turns.append((side, [value]))
    if turns:
        yield {
            "conversations": [{"from": side, "value": "\n\n".join(values)} for side, values in turns],
            "system": "\n\n".join(message.content for message in messages if message.role == "system"),
            "tools": json.dumps([tool["function"] for tool in wire.encode_tools(trajectory.tools)], ensure_ascii=False),
        }


def tokens(trajectory: Trajectory) -> Iterator[Json]:
    """Yield the token sequences of an attempt: one, or more where a prompt did not go on from what was there."""
    sampled = [turn.reply.tokens for turn in trajectory.turns]
    if None in sampled:
        raise SetupError(
            f"an attempt at {trajectory.env} task {trajectory.task_id} has no tokens: "
            "they are recorded of models on disk alone (hf/ and vllm/)"
        )
    sequences = aligned([each for each in sampled if each is not None])
    for number, sequence in enumerate(sequences):
        yield {
            "env": trajectory.env,
            "task_id": trajectory.task_id,
            "digest": trajectory.digest,
            "model": trajectory.model,
            "epoch": trajectory.epoch,
            "ending": trajectory.ending,
            "reward": trajectory.score.value,
            "sequence": number,
            **sequence,
        }


def aligned(turns: Iterable[Tokens]) -> list[dict[str, Any]]:
    """Return the turns of an attempt as sequences; all arrays of one are of one length, the mask says what was sampled.

    A turn goes on a sequence where its prompt begins with all that is there, id by id; a version is -1 and a
    log-probability 0 where nothing was sampled.
    """
    found: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        known = found[-1]["ids"] if found else []
        if not found or turn.temperature != found[-1]["temperature"] or list(turn.prompt_ids[: len(known)]) != known:
            fresh: dict[str, Any] = {name: [] for name in ("ids", "mask", "logprobs", "versions", "turns", "engines")}
            found.append({**fresh, "temperature": turn.temperature})
        last = found[-1]
        new = turn.prompt_ids[len(last["ids"]) :]
        last["ids"] += [*new, *turn.sampled_ids]
        last["mask"] += [False] * len(new) + list(turn.mask)
        last["logprobs"] += [0.0] * len(new) + _where(turn.mask, turn.logprobs, 0.0)
        last["versions"] += [-1] * len(new) + _where(turn.mask, turn.versions, -1)
        last["turns"] += [number] * (len(new) + len(turn.sampled_ids))
        last["engines"].append(turn.engine)
    return found


Form = Callable[[Trajectory], Iterator[Json]]
FORMS: MappingProxyType[str, Form] = MappingProxyType({"openai": openai, "sharegpt": sharegpt, "tokens": tokens})


def _where(mask: Sequence[bool], values: Sequence[Any], other: Any) -> list[Any]:
    return [value if on else other for on, value in zip(mask, values, strict=True)]


def _to_the_last_word(history: Sequence[Message]) -> list[Message]:
    """Return a history up to what the model said last: there is nothing to learn behind it."""
    last = max((place for place, message in enumerate(history) if message.role == "assistant"), default=-1)
    return list(history[: last + 1])


def _side(message: Message) -> str:
    if message.role == "assistant":
        return CALL if message.tool_calls else MODEL
    return OBSERVATION if message.role == "tool" else HUMAN


def _value(message: Message) -> str:
    """Return what was said; calls as JSON, behind the words that came with them."""
    if not message.tool_calls:
        return message.content
    calls = [{"name": call.name, "arguments": wire.arguments_object(call.arguments)} for call in message.tool_calls]
    text = json.dumps(calls[0] if len(calls) == 1 else calls, ensure_ascii=False)
    return f"{message.content}\n{text}" if message.content else text
