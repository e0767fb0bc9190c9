"""What a KG task carries."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from harness.core import Task, Value, make_task

Action = tuple[str, tuple[str, ...]]
"""A gold call: tool and arguments."""
Kind = Literal["hop", "intersection", "count", "argmax", "argmin"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LISTING = frozenset({"get_relations", "get_attributes"})
"""Tools that make no variable."""


class TaskData(Value, frozen=True, kw_only=True):
    """The data of one KG task.

    Example: entities={"Miles Pargeter": "m.01000"}, actions=(("get_relations", ("m.01000",)), …), answer=("m.0101f",).
    """

    question: str
    kind: str
    """One of `KINDS`. It is the task's group."""
    world: tuple[str, int] | None = None
    """Split and number of the generated graph, for a bundled task."""
    graph: Literal["world", "witness", "endpoint"] = "world"
    """What it is asked of: a generated graph, one built around the gold play, or the endpoint."""
    entities: dict[str, str]
    """Name -> id of the entities that the question names."""
    actions: tuple[Action, ...]
    """Gold tool calls."""
    answer: tuple[str, ...]
    one_shot: bool = False
    """Whether a dialogue is shown before the question."""


def to_task(task_id: str, split: str, data: TaskData) -> Task:
    """Make the task. The environment sets its tools."""
    return make_task(
        task_id,
        env="kg",
        split=split,
        group=data.kind,
        instruction=data.question,
        tools=(),
        data=msgspec.to_builtins(data),
    )


def of(task: Task) -> TaskData:
    """Read a task's data back."""
    data: dict[str, Any] = dict(task.data)
    return msgspec.convert(data, TaskData)
