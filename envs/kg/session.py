"""One episode of KG: reads calls, makes variables, and grades the one that is named at the end.

Decided here: where the two rule sets part. `fixed` takes a variable's number as it is written, ids of the question
alone, and sets of any types where an entity has several; `upstream` reads numbers as Python's `int` and indexing do
(#-1 is the last), takes any id that begins with m. or f., none that begins with g., and sets of one type alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Literal, Self

import msgspec

from envs.kg import grade
from envs.kg.data import LISTING, TaskData
from envs.kg.expressions import Both, Count, Entity, Expression, Extreme, Join, Variable, size
from envs.kg.graph import MOST_ROWS, Graph, Overtaxed, TooMany, Vocabulary
from envs.kg.sparql import Dialect
from harness.core import Ending, Message, Observation, Policy, Score, ToolCall, Value
from harness.errors import EnvError, ToolError

MOST_CALLS = 64
"""Tool calls of one message that are carried out; the rest are refused."""
MOST_PATTERNS = 64
"""How large a variable's description may grow: gold play needs a dozen."""
MOST_NAMES = 10_000
"""Rows of a listing."""
FINAL = re.compile(r"(?:Find|Final) Answer: #(\d+)", re.ASCII)
NUMBER = re.compile(r"#(\d{1,6})", re.ASCII)
RAW = re.compile(r"[mf]\.\w+", re.ASCII)
"""Ids that upstream takes although the question does not name them."""
TOOLS = {
    "get_relations": ("variable",),
    "get_neighbors": ("variable", "relation"),
    "intersection": ("variable1", "variable2"),
    "get_attributes": ("variable",),
    "argmax": ("variable", "attribute"),
    "argmin": ("variable", "attribute"),
    "count": ("variable",),
}
HIDDEN = frozenset({"union", "final_execute"})
"""Functions that upstream finds but has no parameters for."""


class Ground(Value, frozen=True, kw_only=True):
    """What a task is asked of."""

    graph: Graph
    vocabulary: Vocabulary
    dialect: Dialect


class Rejected(Exception):  # noqa: N818 - told to the agent
    """A call is not carried out; the message is the whole reply."""


class Session:
    """One episode."""

    def __init__(
        self,
        texts: Mapping[str, str],
        data: TaskData,
        opening: Sequence[Message],
        ground: Callable[[], Awaitable[Ground]],
        *,
        upstream: bool,
    ) -> None:
        self._texts = texts
        self._data = data
        self._opening = tuple(opening)
        self._make_ground = ground
        self._upstream = upstream
        self._open: Ground | None = None
        self._variables: list[Variable] = []
        self._known: dict[Expression, frozenset[str]] = {}
        self._answer: int | None = None

    async def __aenter__(self) -> Self:
        """Reach the graph, which is read-only."""
        self._open = await self._make_ground()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it go."""
        self._open = None

    @property
    def _ground(self) -> Ground:
        if self._open is None:
            raise EnvError("the KG session is not open")
        return self._open

    async def start(self) -> Observation:
        """Return the rules and the question."""
        return Observation(messages=self._opening)

    async def step(self, message: Message) -> Observation:
        """Carry out every tool call in order; without one, read the final answer."""
        if message.tool_calls:
            replies = [await self._reply(place, call) for place, call in enumerate(message.tool_calls)]
            return Observation(messages=tuple(replies))
        text = message.content.partition("Observation:")[0].replace("\\_", "_")
        final = FINAL.search(text)
        if final is None:
            return Observation(messages=(Message(role="user", content=self._texts["no_call"]),))
        digits = final[1].lstrip("0") or "0"
        number = int(digits[:7])
        if number >= len(self._variables) or not self._executable(self._variables[number]):
            return Observation(done=True, ending=Ending.VALIDATION_FAILED)
        self._answer = number
        return Observation(done=True, ending=Ending.COMPLETED)

    def _executable(self, variable: Variable) -> bool:
        return self._ground.dialect.executable(variable.expression)

    async def _reply(self, place: int, call: ToolCall) -> Message:
        """Carry out one call and return its reply."""
        try:
            if place >= MOST_CALLS:
                raise Rejected(self._texts["too_many"].replace("{most}", str(MOST_CALLS)))
            content = await self._carry_out(call.name, self._values(call))
        except Rejected as rejected:
            content = str(rejected)
        except ToolError as error:
            content = self._texts["failed"].replace("{error}", str(error))
        except Overtaxed as error:
            content = self._texts["failed"].replace("{error}", f"{call.name}: {error}")
        return Message(role="tool", content=content, tool_call_id=call.id)

    def _values(self, call: ToolCall) -> list[str]:
        """Return a call's arguments in the order of the tool's parameters."""
        parameters = TOOLS.get(call.name)
        name = call.name[:100].encode("utf-8", "replace").decode()
        mismatch = self._texts["mismatch"].replace("{name}", name)
        try:
            arguments = json.loads(call.arguments)
        except (ValueError, RecursionError) as error:
            if self._upstream:
                raise ToolError(self._texts["unreadable"]) from error
            arguments = None
        if parameters is None:
            hidden = self._upstream and call.name in HIDDEN
            raise Rejected(mismatch if hidden else self._texts["unknown_tool"].replace("{name}", name))
        if not isinstance(arguments, dict):
            raise ToolError(self._texts["unreadable"]) if self._upstream else Rejected(mismatch)
        if any(each not in arguments for each in parameters):
            raise Rejected(mismatch)
        values = [arguments[each] for each in parameters]
        texts = [value for value in values if isinstance(value, str)]
        if len(texts) < len(values):
            raise self._refusal("not_text", name) if self._upstream else Rejected(mismatch)
        return texts

    async def _carry_out(self, tool: str, values: Sequence[str]) -> str:
        if tool in ("get_relations", "get_neighbors"):
            source, types = self._source(tool, values[0]), self._ground.vocabulary.types
            relations = (await self._leaving(tool, source)) & types.keys()
            if tool == "get_relations":
                return self._listing(relations)
            if values[1] not in relations:
                raise self._refusal("no_relation", tool)
            return self._made(Variable(types[values[1]], Join(source, values[1])))
        variable = self._variable(tool, values[0])
        if isinstance(variable.expression, Count):
            raise self._refusal("not_a_set", tool)
        if tool == "intersection":
            return self._made(self._shared(tool, variable, self._variable(tool, values[1])))
        if tool == "count":
            return self._made(Variable("number", Count(variable.expression)))
        attributes = (await self._leaving(tool, variable.expression)) & self._ground.vocabulary.attributes
        if tool == "get_attributes":
            return self._listing(attributes)
        if values[1] not in attributes:
            raise self._refusal("no_attribute", tool)
        how: Literal["argmax", "argmin"] = "argmax" if tool == "argmax" else "argmin"
        return self._made(Variable(variable.type, Extreme(how, variable.expression, values[1])))

    def _shared(self, tool: str, one: Variable, other: Variable) -> Variable:
        """Return what two variables share, of the first one's type."""
        if isinstance(other.expression, Count):
            raise self._refusal("not_a_set", tool)
        if other.type != one.type and not self._ground.vocabulary.overlapping:
            raise self._refusal("other_type", tool)
        return Variable(one.type, Both(one.expression, other.expression))

    def _refusal(self, reason: str, tool: str) -> ToolError:
        return ToolError(self._texts[reason].replace("{name}", tool))

    def _variable(self, tool: str, text: str) -> Variable:
        number = self._number(tool, text)
        if not -len(self._variables) <= number < len(self._variables):
            raise self._refusal("no_variable", tool)
        return self._variables[number]

    def _number(self, tool: str, text: str) -> int:
        """Return the number of a variable as it is written; below 0, which upstream takes, it counts from the end."""
        if self._upstream and text.startswith("#"):
            try:
                return int(text[1:100])
            except ValueError as error:
                raise self._refusal("no_number", tool) from error
        found = NUMBER.fullmatch(text.strip())
        if found is None or self._upstream:
            raise self._refusal("not_a_variable", tool)
        return int(found[1])

    def _source(self, tool: str, text: str) -> Expression:
        """Return what an argument stands for: a variable, or an entity by name or id."""
        if text.startswith("#"):
            found = self._variable(tool, text).expression
            if isinstance(found, Count):
                raise self._refusal("not_a_set", tool)
            return found
        entity = self._data.entities.get(text, text)
        allowed = RAW.fullmatch(entity) is not None if self._upstream else entity in self._data.entities.values()
        if not allowed:
            raise self._refusal("no_entity", tool)
        return Entity(entity)

    async def _leaving(self, tool: str, source: Expression) -> frozenset[str]:
        """Return the relations and attributes that a set's members have, asked of the graph once."""
        if source not in self._known:
            if not self._ground.dialect.executable(source):
                raise self._refusal("no_query", tool)
            query = self._ground.dialect.names(source, MOST_NAMES)
            self._known[source] = frozenset(await self._ground.graph.select(query))
        return self._known[source]

    def _listing(self, names: frozenset[str]) -> str:
        return self._texts["listing"].replace("{names}", ", ".join(sorted(names)))

    def _made(self, variable: Variable) -> str:
        if size(variable.expression) > MOST_PATTERNS:
            raise ToolError(self._texts["too_large"])
        self._variables.append(variable)
        number = str(len(self._variables) - 1)
        if isinstance(variable.expression, Count):
            return self._texts["made_number"].replace("{number}", number)
        return self._texts["made"].replace("{number}", number).replace("{type}", variable.type)

    async def score(self) -> Score:
        """Execute the answer's variable and compare the sets."""
        if self._answer is None:
            return Score(value=0.0, parts={"answered": False, "f1": 0.0})
        query = self._ground.dialect.answers(self._variables[self._answer].expression, MOST_ROWS + 1)
        try:
            found = await self._ground.graph.select(query)
        except TooMany as error:  # no right answer is that large
            return Score(value=0.0, parts={"answered": True, "f1": 0.0, "too_many": str(error)})
        except Overtaxed as error:
            raise EnvError(f"the answer could not be looked up: {error}") from error
        right = grade.exact(found, self._data.answer)
        return Score(value=float(right), parts={"answered": True, "f1": grade.f1(found, self._data.answer)})


def demonstration(data: TaskData, shown: int = 0, said: Mapping[str, str] = MappingProxyType({})) -> Policy:
    """Return a policy that knows the answer: one gold call a message, then the last variable.

    Args:
        data: of the task.
        shown: how many messages of the opening have an assistant's role.
        said: tool -> what is said beside its calls.
    """

    def play(history: Sequence[Message]) -> Message:
        turn = sum(message.role == "assistant" for message in history) - shown
        if turn >= len(data.actions):
            made = sum(name not in LISTING for name, _ in data.actions)
            return Message(role="assistant", content=f"Final Answer: #{made - 1}")
        name, values = data.actions[turn]
        names = {entity: text for text, entity in data.entities.items()}
        arguments = {key: names.get(value, value) for key, value in zip(TOOLS[name], values, strict=True)}
        call = ToolCall(id=f"call-{turn}", name=name, arguments=msgspec.json.encode(arguments).decode())
        return Message(role="assistant", content=said.get(name, ""), tool_calls=(call,))

    return play
