"""The tasks that a worker serves, by index, and what of them may be told."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import msgspec

from harness import registry
from harness.core import Env, EnvOptions, Json, Task, ToolSpec, make_task
from harness.errors import SetupError, nearest
from harness.service.protocol import CUSTOM, Index, Refused, TaskLine, encode_tools
from harness.service.settings import WorkerSettings

ENDLESS = 100_000


class _Custom(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A client's own task, as `Task` has it."""

    data: Mapping[str, Json]
    id: str = "custom"
    group: str = "custom"
    instruction: str = ""
    tools: tuple[ToolSpec, ...] = ()


def make(settings: WorkerSettings) -> Env:
    """Make the environment that a worker serves, not yet open."""
    options = EnvOptions(
        rules=settings.rules,
        prompts=settings.prompts,
        data=Path(settings.data).expanduser() if settings.data else None,
        settings=settings.settings,
    )
    return registry.make_env(settings.env, options)


class Catalogue:
    """The tasks of one split of an environment."""

    def __init__(self, env: Env, settings: WorkerSettings) -> None:
        split, limit = settings.split, settings.limit
        if split not in env.splits():
            raise SetupError(f"environment '{env.name}' has no split '{split}'{nearest(split, env.splits())}")
        if split in getattr(env, "endless", ()) and limit is None:
            raise SetupError(f"split '{split}' of '{env.name}' has no end: say how many tasks with --limit")
        self.env = env
        self.tasks = list(islice(env.tasks(split), limit or ENDLESS))
        self._settings = settings
        self._tools = self.tasks[0].tools if self.tasks else ()

    @property
    def indices(self) -> list[int]:
        """The indices that may be asked for."""
        return list(range(len(self.tasks)))

    def lines(self) -> tuple[list[TaskLine], list[msgspec.Raw]]:
        """Return what may be known of each task, and the tool sets that they name."""
        sets: dict[bytes, int] = {}
        lines = []
        for index, task in enumerate(self.tasks):
            tools = sets.setdefault(bytes(encode_tools(task.tools)), len(sets))
            lines.append(TaskLine(index, task.id, task.group, task.instruction, task.digest, tools))
        return lines, [msgspec.Raw(each) for each in sets]

    def find(self, index: Index, custom: Mapping[str, Json] | None) -> Task:
        """Return the task of a request. Refused where there is none, or custom tasks are not allowed."""
        if index == CUSTOM:
            return self._custom(custom or {})
        position = int(index) if isinstance(index, str) and index.isascii() and index.isdecimal() else index
        if isinstance(position, int) and 0 <= position < len(self.tasks):
            return self.tasks[position]
        raise Refused(400, f"there is no index {str(index)[:100]!r}: they go from 0 to {len(self.tasks) - 1}")

    def _custom(self, asked: Mapping[str, Json]) -> Task:
        """Return a client's own task; `{"index": N}` alone is one of ours, as agentrl-eval asks with parameters."""
        if not self._settings.custom_tasks:
            raise Refused(403, "custom tasks are not allowed here")
        if set(asked) == {"index"}:
            return self.find(asked["index"], None) if asked["index"] != CUSTOM else self._custom({})
        try:
            custom = msgspec.convert(asked, _Custom)
        except msgspec.ValidationError as error:
            raise Refused(400, f"the custom task is not understood: {error}") from error
        return make_task(
            custom.id,
            env=self.env.name,
            split="custom",
            group=custom.group,
            instruction=custom.instruction,
            tools=custom.tools or self._tools,
            data=custom.data,
        )
