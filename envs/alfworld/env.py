"""The ALFWorld environment: an agent carries out a household task in text, one command a message.

The rules are AgentBench's (see README.md): the commands possible are listed each time; what is not among them is
mapped to the nearest one; the same command three times in a row ends the episode; twenty messages are all there are.
The engine under it is our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from envs.alfworld import mapping, official, shown
from envs.alfworld.data import TaskData, Wording, of
from envs.alfworld.engine.game import Game, Play
from envs.alfworld.engine.game import load as load_game
from envs.alfworld.engine.problem import BrokenGame
from envs.alfworld.planner import plan
from envs.alfworld.searching import searching
from harness.config import Strict, convert
from harness.core import (
    Ending,
    EnvOptions,
    Json,
    Message,
    Observation,
    Policy,
    Score,
    Task,
    ToolCall,
    ToolSpec,
    seed_of,
)
from harness.errors import EnvError, SetupError, nearest
from harness.prompts import load

PROMPTS = Path(__file__).with_name("prompts.toml")
VERSION = 1
"""Rises whenever the same play could get another observation or another score."""
TURNS = 20
REPEATS = 3
"""So many equal commands in a row end an episode that has had more steps than that."""
BUNDLED = {
    "test": "120 bundled games, in houses of their own",
    "validation": "120 bundled games, in other houses than test",
    "train": "bundled games without end, in other houses than test and validation",
    "test-seen": "240 bundled games in houses of the kinds that train has, laid out anew",
    "validation-seen": "120 bundled games, likewise",
}


class Settings(Strict, frozen=True, kw_only=True):
    """The environment's own settings."""

    path: str | None = None
    """Folder of the published games: it holds `json_2.1.1`. None is that of the fetched `alfworld` data set."""
    lists: str | None = None
    """Folder of AgentBench's lists (`new_std.json` and others); None is that of the fetched `agentbench` data set."""
    wording: Wording | None = None
    """None is `older` for AgentBench's splits, and what the file has for the others."""
    missing: official.Missing = "refuse"
    """What is done where games of an AgentBench list are not in the folder: refuse the split, or skip them."""
    difficulty: float | None = None
    """Between 0 and 1, for bundled games; None mixes them."""
    gold: Literal["shortest", "searching"] = "shortest"
    """What gold play is like: it knows where everything is, or looks for it, as whoever learns from it will have to."""


def make(options: EnvOptions) -> AlfworldEnv:
    """Make the environment."""
    return AlfworldEnv(options)


class AlfworldEnv:
    """The ALFWorld environment."""

    name = "alfworld"
    cpu_bound = True
    endless = frozenset({"train"})
    turn_limit: int | None = TURNS
    max_sessions: int | None = None

    def __init__(self, options: EnvOptions) -> None:
        self.settings = convert(Settings, options.settings, "env.alfworld")
        self.rules = options.rules
        self.texts = load(PROMPTS, options.prompts)
        self.tools = _tools(self.texts)
        self._data = options.data

    def splits(self) -> Mapping[str, str]:
        """Return each split's name with a line on what it is."""
        return {**BUNDLED, **official.describe()}

    def tasks(self, split: str) -> Iterator[Task]:
        """Yield the tasks of a split, in a fixed order."""
        if split not in self.splits():
            raise SetupError(f"alfworld has no split '{split}'{nearest(split, self.splits())}")
        if split in BUNDLED:
            from envs.alfworld import tasks

            found = tasks.tasks(split, self.settings.difficulty)
        else:
            found = official.tasks(split, self.root(), self._lists(), self._wording(split), self.settings.missing)
        return (msgspec.structs.replace(task, tools=self.tools) for task in found)

    def root(self) -> Path:
        """Return the folder of the published games. SetupError with the remedy where there is none."""
        if self.settings.path is not None:
            return Path(self.settings.path).expanduser()
        from harness import datasets

        return datasets.locate("alfworld", self._data)

    def _lists(self) -> Path | None:
        if self.settings.lists is not None:
            return Path(self.settings.lists).expanduser()
        from harness import datasets

        try:
            return datasets.locate("agentbench", self._data) / official.LISTS_FOLDER
        except SetupError:
            return None

    def _wording(self, split: str) -> Wording:
        return self.settings.wording or ("older" if split in official.LISTS else "as_it_is")

    def session(self, task: Task) -> Session:
        """Return one episode of a task, not yet opened."""
        return Session(self, of(task))

    def game(self, data: TaskData) -> Game:
        """Return the game of a task. EnvError where its file has changed since the task was made."""
        try:
            if not data.file:
                return load_game(data.game)
            content, sha256 = official.read(self.root(), data.file)
        except BrokenGame as error:
            raise EnvError(f"the task's game cannot be played: {error}") from error
        except SetupError as error:
            raise EnvError(str(error)) from error
        if sha256 != data.sha256:
            raise EnvError(f"the game file {data.file} is not the one that the task was made of")
        return official.worded(content, data.wording, self.root() / data.file)

    def demonstrate(self, task: Task) -> Policy:
        """Return gold play: the stored walkthrough, or what the planner finds."""
        data = of(task)
        commands = data.plan or plan(self.game(data)) or ()
        if self.settings.gold == "searching":
            random = Random(seed_of("alfworld searching", task.id))
            commands = searching(self.game(data), commands, random, TURNS - 1)

        def play(history: Sequence[Message]) -> Message:
            turn = sum(message.role == "assistant" for message in history)
            if turn >= len(commands):
                return Message(role="assistant", content="I know of nothing more to do.")
            arguments = json.dumps({"action": commands[turn]})
            return Message(
                role="assistant", tool_calls=(ToolCall(id=f"call_{turn}", name="take_action", arguments=arguments),)
            )

        return play

    def protocol(self, split: str) -> Mapping[str, Json]:
        """Return everything that a score on this split depends on."""
        data: Json
        if split in BUNDLED:
            from envs.alfworld import tasks

            data = {"difficulty": self.settings.difficulty, "generator": tasks.VERSION}
        else:
            found = official.digest(split, self.root(), self._lists(), self.settings.missing)
            data = {**found, "wording": self._wording(split)}
        return {
            "version": VERSION,
            "rules": self.rules,
            "prompts": self.texts,
            "tools": msgspec.to_builtins(self.tools),
            "turns": TURNS,
            "nltk": mapping.check(),
            "data": data,
        }

    async def open(self) -> None:
        """Check that commands can be compared; sessions share nothing."""
        mapping.check()

    async def close(self) -> None:
        """Hold nothing, so end nothing."""

    async def healthy(self) -> bool:
        """Tell that all is well: there is no back-end that could fail."""
        return True


def _tools(texts: Mapping[str, str]) -> tuple[ToolSpec, ...]:
    action = {"type": "string", "description": texts["take_action_action"]}
    schema = {"type": "object", "properties": {"action": action}, "required": ["action"], "additionalProperties": False}
    return (ToolSpec(name="take_action", description=texts["take_action"], parameters=schema),)


class Session:
    """One episode."""

    def __init__(self, env: AlfworldEnv, data: TaskData) -> None:
        self._env = env
        self._data = data
        self._texts = env.texts
        self._open_play: Play | None = None
        self._written: list[str] = []
        """The actions carried out, as they were written."""
        self._fault: Ending | None = None
        """The last message that was no action; AgentBench's status then stays so to the end."""

    async def __aenter__(self) -> Self:
        """Load the game."""
        self._open_play = Play(self._env.game(self._data))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it; what `score` needs stays."""

    @property
    def _play(self) -> Play:
        if self._open_play is None:
            raise EnvError("the ALFWorld session is not open")
        return self._open_play

    async def start(self) -> Observation:
        """Return the rules, what is seen, the task and what can be done."""
        told = shown.opening(self._play.opening())
        asked = self._texts["opening"].replace("{observation}", told) + self._actions()
        return Observation(
            messages=(Message(role="system", content=self._texts["system"]), Message(role="user", content=asked))
        )

    async def step(self, message: Message) -> Observation:
        """Carry out the first tool call."""
        if not message.tool_calls:
            return self._refuse(Ending.VALIDATION_FAILED, "no_tool_call")
        call = message.tool_calls[0]
        written = _first_argument(call.arguments)
        if written is None:
            return self._refuse(Ending.INVALID_ACTION, "unreadable_call")
        command = mapping.nearest(mapping.normalised(written), self._play.commands(), self._env.rules)
        try:
            told = shown.reply(self._play.step(command))
        except BrokenGame as error:
            raise EnvError(f"the task's game cannot be played on: {error}") from error
        self._written.append(written)
        reply = (Message(role="tool", content=told + self._actions(), tool_call_id=call.id),)
        if self._play.won:
            return Observation(messages=reply, done=True, ending=self._final())
        if len(self._written) > REPEATS and len(set(self._written[-REPEATS:])) == 1:
            return Observation(messages=reply, done=True, ending=Ending.INVALID_ACTION)
        return Observation(messages=reply)

    def _refuse(self, fault: Ending, text: str) -> Observation:
        self._fault = fault
        return Observation(messages=(Message(role="user", content=self._texts[text]),))

    def _final(self) -> Ending:
        sticks = self._env.rules == "upstream" and self._fault is not None
        return self._fault if sticks and self._fault is not None else Ending.COMPLETED

    def _actions(self) -> str:
        return self._texts["actions"] + "".join(f"{command}\n" for command in self._play.commands())

    async def score(self) -> Score:
        """Tell whether the task is done."""
        return Score(value=float(self._play.won), parts={"steps": len(self._written)})


def _first_argument(arguments: str) -> str | None:
    """Return the first argument, whatever its name; None where there is none, or it is no text."""
    try:
        values: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    first = next(iter(values.values()), None) if isinstance(values, dict) else None
    return first if isinstance(first, str) else None
