"""The KG environment: an agent finds the answer to a question in a knowledge graph with seven tools.

The rules follow AgentBench's: every tool call of a message is carried out in order; a variable is a description that
nothing executes until the answer is graded; the answer is a line of text, not a tool; fifteen messages are all.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Annotated, Literal

import msgspec

from envs.kg import official, oneshot, witness
from envs.kg.data import KINDS, Kind, TaskData, of
from envs.kg.endpoint import Endpoint
from envs.kg.graph import QUERY_SECONDS, Graph, Triples, Vocabulary
from envs.kg.oxigraph import VERSION as OXIGRAPH
from envs.kg.oxigraph import Oxigraph
from envs.kg.session import TOOLS, Ground, Session, demonstration
from envs.kg.sparql import Dialect, Fixed, Upstream
from harness.config import Strict, convert
from harness.core import EnvOptions, Json, Message, Policy, Task, ToolSpec, seed_of
from harness.errors import SetupError, nearest
from harness.prompts import load

PROMPTS = Path(__file__).with_name("prompts.toml")
VERSION = 2
"""Rises whenever the same play could get another observation or another score."""
TURNS = 15
BUNDLED = {
    "test": "120 bundled tasks on a generated graph",
    "validation": "120 bundled tasks, on a graph of another schema than test",
    "train": "bundled tasks without end, on graphs of another schema than test and validation",
    "test-seen": "240 bundled tasks in the words of train, on two graphs of their own",
    "validation-seen": "120 bundled tasks in the words of train, on another graph",
}


class Settings(Strict, frozen=True, kw_only=True):
    """The environment's own settings."""

    difficulty: float | None = None
    """Between 0 and 1, for bundled tasks; None mixes them."""
    kinds: Annotated[tuple[Kind, ...], msgspec.Meta(min_length=1, max_length=10)] = KINDS
    """Kinds of bundled tasks, which come by turns; one that is named twice comes twice as often."""
    gold: Literal["shortest", "searching", "quoting"] = "shortest"
    """What gold play of bundled tasks is like: it knows the vocabulary, or tries what is listed until it fits, or does
    that and says beside a superlative's call which words of the question it goes by."""
    breadth: Annotated[int, msgspec.Meta(ge=0, le=36)] = 0
    """How many relations an entity of bundled tasks has at most besides its schema's own; no question asks for them."""
    sparql_url: str | None = None
    """A SPARQL endpoint that holds Freebase, for the published splits: `http://host:port/sparql`."""
    path: str | None = None
    """Folder that holds `std.json`, `dev.json`, `kg_rl_all.json` and `ontology`, instead of the fetched data set."""
    query_seconds: float = QUERY_SECONDS
    """Deadline of what one tool call, or the grader, asks of the graph."""


def make(options: EnvOptions) -> KgEnv:
    """Make the environment. SetupError for an unknown prompt or setting, or one out of bounds."""
    return KgEnv(options)


def _checked(settings: Settings) -> Settings:
    seconds, difficulty = settings.query_seconds, settings.difficulty
    if not 0 < seconds < math.inf:
        raise SetupError(f"env.kg.query_seconds must be a number of seconds above 0, not {seconds:g}")
    if difficulty is not None and not 0 <= difficulty <= 1:
        raise SetupError(f"env.kg.difficulty must be from 0 to 1, not {difficulty:g}")
    return settings


class KgEnv:
    """The KG environment."""

    name = "kg"
    cpu_bound = True
    endless = frozenset({"train"})
    turn_limit: int | None = TURNS
    max_sessions: int | None = None

    def __init__(self, options: EnvOptions) -> None:
        self.settings = _checked(convert(Settings, options.settings, "env.kg"))
        self.rules = options.rules
        self.texts = load(PROMPTS, options.prompts)
        self.tools = _tools(self.texts)
        url = self.settings.sparql_url
        self.endpoint = Endpoint(url, self.settings.query_seconds) if url is not None else None
        self._data = options.data

    def splits(self) -> Mapping[str, str]:
        """Return each split's name with a line on what it is."""
        return {**BUNDLED, **official.describe()}

    def tasks(self, split: str) -> Iterator[Task]:
        """Yield the tasks of a split, in a fixed order."""
        if split in BUNDLED:
            from envs.kg import tasks  # the generator takes a moment to load

            found = tasks.tasks(split, self.settings.difficulty, self.settings.kinds)
        elif split in official.SPLITS:
            if official.SPLITS[split].graph == "endpoint":
                self._reached(split)
            places = self._places()
            official.vocabulary(places.ontology, self.rules)  # what is broken in it is told now, not in an episode
            found = official.tasks(split, places)
        else:
            raise SetupError(f"kg has no split '{split}'{nearest(split, self.splits())}")
        return (msgspec.structs.replace(task, tools=self.tools) for task in found)

    def _places(self) -> official.Places:
        return official.locate(Path(self.settings.path) if self.settings.path else None, self._data)

    def _reached(self, split: str) -> Endpoint:
        """Return the endpoint. SetupError where none is named."""
        if self.endpoint is None:
            raise SetupError(
                f"kg's split '{split}' is asked of a SPARQL endpoint that holds Freebase: name it with --sparql-url, "
                f"or play '{official.WITNESSES.get(split, 'std-witness')}', which needs none"
            )
        return self.endpoint

    def session(self, task: Task) -> Session:
        """Return one episode of a task, not yet opened."""
        data = of(task)

        async def ground() -> Ground:
            return self._ground(task.split, data)

        return Session(self.texts, data, self._opening(data), ground, upstream=self.rules == "upstream")

    def _opening(self, data: TaskData) -> tuple[Message, ...]:
        """Return the rules, the dialogue where there is one, and the question."""
        asked = self.texts["question"].replace("{entities}", ", ".join(data.entities))
        return (
            Message(role="system", content=self.texts["system"].replace("{turns}", str(TURNS))),
            *(oneshot.dialogue(self.texts, upstream=self.rules == "upstream") if data.one_shot else ()),
            Message(role="user", content=asked.replace("{question}", data.question)),
        )

    def _ground(self, split: str, data: TaskData) -> Ground:
        """Return the graph of a task, what its listings may show, and how it is asked."""
        graph: Graph
        if data.graph == "world" and data.world is not None:
            graph, vocabulary = _world_graph(*data.world, self.settings.breadth, self.settings.query_seconds)
        else:
            folder = self._places().ontology
            vocabulary = official.vocabulary(folder, self.rules)
            if data.graph == "witness":
                built = witness.build(data, official.ontology(folder))
                graph = Oxigraph(built, self.settings.query_seconds)
            else:
                graph = self._reached(split)
        return Ground(graph=graph, vocabulary=vocabulary, dialect=self._dialect(data))

    def _dialect(self, data: TaskData) -> Dialect:
        if self.rules == "upstream":
            return Upstream()
        return Fixed(kept=frozenset(data.entities.values()) & frozenset(data.answer))

    def demonstrate(self, task: Task) -> Policy:
        """Return gold play: the gold calls, one a message, then the answer."""
        data = of(task)
        shown = sum(message.role == "assistant" for message in self._opening(data))
        if self.settings.gold == "shortest":
            return demonstration(data, shown)
        from envs.kg.searching import quoted, searching  # as the generator

        random = Random(seed_of("kg searching", task.id))
        said = quoted(data) if self.settings.gold == "quoting" else {}
        data = msgspec.structs.replace(data, actions=searching(data, random, TURNS - 1, self.settings.breadth))
        return demonstration(data, shown, said)

    def protocol(self, split: str) -> Mapping[str, Json]:
        """Return everything that a score on this split depends on."""
        backend: Json = {"name": "oxigraph", "version": OXIGRAPH}
        if split in BUNDLED:
            from envs.kg import tasks

            data: dict[str, Json] = {"difficulty": self.settings.difficulty, "generator": tasks.VERSION}
            if self.settings.kinds != KINDS:
                data["kinds"] = list(self.settings.kinds)
            if self.settings.breadth:
                data["breadth"] = [0, self.settings.breadth]
        else:
            chosen, places = official.SPLITS[split], self._places()
            files = (places.questions / chosen.file, places.ontology / "fb_roles", places.ontology / "vocab.json")
            data = {"files": [hashlib.sha256(official.read(path)).hexdigest() for path in files]}
            data["comparable_with_published"] = chosen.graph == "endpoint"
            if chosen.graph == "witness":
                data["witness"] = witness.VERSION
            else:
                backend = {"name": "sparql", "version": self._reached(split).server}
        return {
            "version": VERSION,
            "rules": self.rules,
            "prompts": self.texts,
            "tools": msgspec.to_builtins(self.tools),
            "turns": TURNS,
            "query_seconds": self.settings.query_seconds,
            "backend": backend,
            "data": data,
        }

    async def open(self) -> None:
        """Reach the endpoint, where one is named; graphs in this process are filled when a task first needs them."""
        if self.endpoint is not None:
            await self.endpoint.open()

    async def close(self) -> None:
        """End the connections to the endpoint."""
        if self.endpoint is not None:
            await self.endpoint.close()

    async def healthy(self) -> bool:
        """Check the endpoint; a graph in this process is always there."""
        return self.endpoint is None or await self.endpoint.healthy()


@lru_cache(maxsize=8)
def _world_graph(split: str, number: int, breadth: int, seconds: float) -> tuple[Graph, Vocabulary]:
    """Return a generated graph, which sessions share, and its vocabulary."""
    from envs.kg.generate.besides import TARGETS, TYPES, besides
    from envs.kg.generate.worlds import world

    found, more = world(split, number), besides(split, number, breadth)
    facts = [(entity, name, target) for (entity, name), targets in found.leads.items() for target in targets]
    facts += [(entity, name, TARGETS[name]) for entity, names in more.items() for name in names]
    values = [(entity, name, value) for (entity, name), value in found.values.items()]
    types = TYPES | {relation.name: relation.target for relation in found.schema.relations}
    attributes = frozenset(attribute.name for attribute in found.schema.attributes)
    return Oxigraph(Triples(facts, values), seconds), Vocabulary(types, attributes)


def _tools(texts: Mapping[str, str]) -> tuple[ToolSpec, ...]:
    return tuple(
        ToolSpec(
            name=name,
            description=texts[name],
            parameters={
                "type": "object",
                "properties": {
                    each: {"type": "string", "description": texts[each.rstrip("12")]} for each in parameters
                },
                "required": list(parameters),
                "additionalProperties": False,
            },
        )
        for name, parameters in TOOLS.items()
    )
