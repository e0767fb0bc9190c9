"""The WebShop environment: an agent finds a product in a shop of many, chooses its options, and buys it.

The rules are AgentBench's (see README.md): one search or click a message, answered by the page and its clickables;
twenty messages; only a purchase is paid, by WebShop's formula. The shop under it is our own.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from envs.webshop import gold, nouns, official, pages
from envs.webshop.catalogue import Catalogue
from envs.webshop.data import of
from envs.webshop.reward import reward
from harness import datasets
from harness.config import Strict, convert
from harness.core import Ending, EnvOptions, Json, Message, Observation, Policy, Score, Task, ToolCall, ToolSpec
from harness.errors import EnvError, HarnessError, SetupError, nearest
from harness.prompts import load

PROMPTS = Path(__file__).with_name("prompts.toml")
VERSION = 1
"""Rises whenever the same play could get another observation or another score."""
TURNS = 20
TOOLS = {"search_action": ("search", "keywords"), "click_action": ("click", "value")}
"""Tool -> the shop's own name of the action, and the tool's parameter."""
BUILT = "webshop-built"
"""Where built catalogues are kept, in the cache of data sets."""
LONGEST = 1000
"""Letters of an argument that are read; a title has some two hundred."""
LISTINGS = re.compile(r"^(?:\s*<[racq]>)+")
"""What makes the shop list products at random, or by attribute, department or query, in place of a search."""
BUNDLED = {
    "test": "120 bundled goals, in a shop of 2,160 products",
    "validation": "80 bundled goals, in a shop that sells other things than test's",
    "train": "bundled goals without end, in shops that sell other things than test's and validation's",
    "test-seen": "120 bundled goals in another shop of the kind that train has",
    "validation-seen": "80 bundled goals in another such shop",
}


class Settings(Strict, frozen=True, kw_only=True):
    """The environment's own settings."""

    path: str | None = None
    """Folder of WebShop's own files, for the published splits."""
    nouns: nouns.Way = "words"
    """How nouns of titles are told in the reward: by a list of other words, or by spaCy's large English model."""
    price_seed: int = 0
    """What `upstream` rules draw the published products' prices by, which WebShop draws without a seed."""
    difficulty: float | None = None
    """Between 0 and 1, for bundled goals; None mixes them."""


def make(options: EnvOptions) -> WebshopEnv:
    """Make the environment."""
    return WebshopEnv(options)


class WebshopEnv:
    """The WebShop environment."""

    name = "webshop"
    cpu_bound = True
    endless = frozenset({"train"})
    turn_limit: int | None = TURNS
    max_sessions: int | None = None

    def __init__(self, options: EnvOptions) -> None:
        self.settings = convert(Settings, options.settings, "env.webshop")
        self.rules = options.rules
        self.texts = load(PROMPTS, options.prompts)
        self.tools = _tools(self.texts)
        self._data = options.data
        self._published: dict[official.Size, official.Published] = {}

    def splits(self) -> Mapping[str, str]:
        """Return each split's name with a line on what it is."""
        return {**BUNDLED, **official.describe()}

    def tasks(self, split: str) -> Iterator[Task]:
        """Yield the tasks of a split, in a fixed order."""
        if split not in self.splits():
            raise SetupError(f"webshop has no split '{split}'{nearest(split, self.splits())}")
        if split in BUNDLED:
            from envs.webshop import tasks

            found = tasks.tasks(split, self.settings.difficulty)
        else:
            found = self.published(split).tasks(split)
        return (msgspec.structs.replace(task, tools=self.tools) for task in found)

    def published(self, split: str) -> official.Published:
        """Return the published shop of a split, opened once. SetupError with the remedy where it is not at hand."""
        size = official.SPLITS[split].size
        if size not in self._published:
            if self.settings.path is None:
                raise SetupError(
                    f"split '{split}' of webshop needs env.webshop.path: the folder of WebShop's files, which its "
                    "authors hand out (setup.sh of github.com/princeton-nlp/WebShop)"
                )
            self._published[size] = official.load(
                size,
                Path(self.settings.path).expanduser(),
                datasets.cache(self._data) / BUILT,
                rules=self.rules,
                price_seed=self.settings.price_seed,
            )
        return self._published[size]

    def catalogue(self, task: Task) -> Catalogue:
        """Return the shop that a task is played in. EnvError where it is not the one that the task was made of."""
        name = of(task).catalogue
        if task.split not in official.SPLITS:
            from envs.webshop import tasks

            return tasks.catalogue(name)
        try:
            found = self.published(task.split).catalogue
        except SetupError as error:
            raise EnvError(str(error)) from error
        if found.digest != name:
            raise EnvError(f"the files in {self.settings.path} are not those that task '{task.id}' was made of")
        return found

    def session(self, task: Task) -> Session:
        """Return one episode of a task, not yet opened."""
        return Session(self, task)

    def demonstrate(self, task: Task) -> Policy:
        """Return gold play."""
        actions = gold.plan(self.catalogue(task), of(task).goal)

        def play(history: Sequence[Message]) -> Message:
            turn = sum(message.role == "assistant" for message in history)
            if turn >= len(actions):
                return Message(role="assistant", content="I know of nothing more to do.")
            action, argument = actions[turn]
            name, parameter = next((name, to[1]) for name, to in TOOLS.items() if to[0] == action)
            call = ToolCall(id=f"call_{turn}", name=name, arguments=json.dumps({parameter: argument}))
            return Message(role="assistant", tool_calls=(call,))

        return play

    def protocol(self, split: str) -> Mapping[str, Json]:
        """Return everything that a score on this split depends on."""
        data: dict[str, Json]
        if split in BUNDLED:
            from envs.webshop import tasks

            data = {"difficulty": self.settings.difficulty, "generator": tasks.VERSION}
        else:
            data = {"catalogue": self.published(split).catalogue.digest}
            if self.rules == "upstream":
                data["price_seed"] = self.settings.price_seed
        return {
            "version": VERSION,
            "rules": self.rules,
            "prompts": self.texts,
            "tools": msgspec.to_builtins(self.tools),
            "turns": TURNS,
            "nouns": self.settings.nouns,
            "data": data,
        }

    async def open(self) -> None:
        """Check that nouns can be told as wanted; a shop is opened when its first task is asked for."""
        if self.settings.nouns == "spacy":
            nouns.model()

    async def close(self) -> None:
        """Let go of the published shops."""
        while self._published:
            self._published.popitem()[1].catalogue.close()

    async def healthy(self) -> bool:
        """Ask the published shops that are open for a product: their files may be gone or broken."""
        try:
            for published in self._published.values():
                published.catalogue.product("")
        except (OSError, sqlite3.Error, HarnessError):
            return False
        return True


def _tools(texts: Mapping[str, str]) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(
            name=name,
            description=texts[name],
            parameters={
                "type": "object",
                "properties": {parameter: {"type": "string", "description": texts[f"{name}_{parameter}"]}},
                "required": [parameter],
                "additionalProperties": False,
            },
        )
        for name, (_, parameter) in TOOLS.items()
    )


class Session:
    """One episode."""

    def __init__(self, env: WebshopEnv, task: Task) -> None:
        self._env = env
        self._task = task
        self._goal = of(task).goal
        self._texts = env.texts
        self._open_shop: pages.Shop | None = None
        self._state = pages.State()
        self._hidden = ""
        """What stands in the page's place until the next action, under upstream's rules."""

    async def __aenter__(self) -> Self:
        """Enter the shop."""
        self._open_shop = pages.Shop(self._env.catalogue(self._task), self._goal.instruction)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go of it; what `score` needs stays."""

    @property
    def _shop(self) -> pages.Shop:
        if self._open_shop is None:
            raise EnvError("the WebShop session is not open")
        return self._open_shop

    async def start(self) -> Observation:
        """Return the rules and the shop's first page, where the instruction stands."""
        return Observation(
            messages=(
                Message(role="system", content=self._texts["system"]),
                Message(role="user", content=self._filled("opening")),
            )
        )

    async def step(self, message: Message) -> Observation:
        """Carry out the first tool call."""
        if not message.tool_calls:
            return self._no_call()
        call = message.tool_calls[0]
        argument = _first_argument(call.arguments)
        if argument is None:
            return self._refuse("unreadable_call", apart=True)
        if call.name not in TOOLS:
            return self._refuse("" if self._env.rules == "upstream" else "unknown_tool")
        written = self._action(TOOLS[call.name][0], argument[:LONGEST])
        self._state = pages.act(self._shop, self._state, written)
        self._hidden = ""
        if self._state.bought:
            return Observation(done=True, ending=Ending.COMPLETED)
        reply = self._filled("reply", action=written)
        return Observation(messages=(Message(role="tool", content=reply, tool_call_id=call.id),))

    def _action(self, name: str, argument: str) -> str:
        """Return an action as the shop is given it; `fixed` takes out what it would stumble over."""
        if self._env.rules == "fixed" and name == "search":
            argument = LISTINGS.sub("", re.sub(r"[\[\]\s]+", " ", argument))
        if self._env.rules == "fixed":
            argument = argument.strip()
        return f"{name}[{argument}]"

    def _no_call(self) -> Observation:
        if self._env.rules == "fixed":
            return self._refuse("no_tool_call")
        self._hidden = self._texts["no_tool_call"]
        return Observation(messages=(Message(role="user", content=self._filled("shown")),))

    def _refuse(self, text: str, *, apart: bool = False) -> Observation:
        """Say what was wrong and show the page again, in one message or, as upstream does, in two."""
        said, page = self._texts[text] if text else "", self._filled("shown")
        parts = (said, page) if apart and self._env.rules == "upstream" else ("\n\n".join(filter(None, (said, page))),)
        return Observation(messages=tuple(Message(role="user", content=part) for part in parts))

    def _filled(self, form: str, **more: str) -> str:
        """Return a text of prompts.toml with the page and what can be done on it."""
        view = pages.view(self._shop, self._state)
        actions = {"has_search_bar": view.has_search_bar, "clickables": list(view.clickables)}
        holes = {"observation": self._hidden or view.text, "actions": repr(actions), **more}
        return re.sub(r"\{(\w+)\}", lambda hole: holes.get(hole[1], hole[0]), self._texts[form])

    async def score(self) -> Score:
        """Pay the purchase; nothing where there was none."""
        product = self._shop.catalogue.product(self._state.asin) if self._state.bought else None
        if product is None:
            return Score(value=0.0, parts={"bought": None})
        paid = reward(
            product,
            self._goal,
            price=self._shop.catalogue.price(product.asin),
            chosen=self._state.options,
            rules=self._env.rules,
            way=self._env.settings.nouns,
        )
        return Score(value=paid.value, parts={"bought": product.asin, **msgspec.to_builtins(paid)})


def _first_argument(arguments: str) -> str | None:
    """Return the first argument, whatever its name, a number as its digits; None where there is none of either kind.

    Half a surrogate pair, which no message could carry back, is made a question mark.
    """
    try:
        values: Any = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    first = next(iter(values.values()), None) if isinstance(values, dict) else None
    if isinstance(first, (int, float)) and not isinstance(first, bool):
        return str(first)
    return first.encode("utf-8", "replace").decode() if isinstance(first, str) else None
