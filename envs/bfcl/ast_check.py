"""Grades the calls of one reply against the right answers: pure, fast, and with the published scorer's verdicts.

A call is right where the function's name is, every required parameter is there, no other parameter is, and each value
has the documented type and is one of the right values. Strings are compared without case, spaces and `, . / - _ * ^`.
A parameter may be left out where "" is among its right values. Java and JavaScript arguments are source text.

`repaired` leaves out the published scorer's mistakes; the README numbers them, and so does each place here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from envs.bfcl.data import Rule
from envs.bfcl.functions import Function, Language, tool_name
from envs.bfcl.source_values import JAVA_TYPES, JAVASCRIPT_TYPES, from_java, from_javascript
from harness.core import Json


class Call(NamedTuple):
    """One decoded call: the tool's name and its arguments."""

    name: str
    arguments: Mapping[str, Json]


class Rules(NamedTuple):
    """What a verdict depends on beside call and answer."""

    language: Language = "python"
    repaired: bool = True


Answer = Mapping[str, Mapping[str, Json]]
"""One right call: function -> parameter -> right values."""

Verdicts = Sequence[Sequence[str | None]]
"""Right call -> call made -> None where it fits, else why not."""

PYTHON_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
TYPES: Mapping[Language, Mapping[str, type]] = {
    "python": PYTHON_TYPES,
    "java": JAVA_TYPES,
    "javascript": JAVASCRIPT_TYPES,
}
_IGNORED = re.compile(r"[ ,./\-_*^]")


def check(
    rule: Rule, functions: Sequence[Function], answers: Sequence[Answer], calls: Sequence[Call], rules: Rules
) -> str | None:
    """Return None where the calls are right, else the reason why not."""
    if rule == "irrelevance":
        return f"no function fits the question, yet '{calls[0].name}' was called" if calls else None
    if rule == "relevance":
        offered = {tool_name(function["name"]) for function in functions}
        # Repair 7: a call of a function that was not offered is none of one that fits.
        fits = any(call.name in offered for call in calls) if rules.repaired else bool(calls)
        return None if fits else "a function fits the question, yet none was called"
    if len(calls) != len(answers):
        return f"{len(answers)} calls expected, {len(calls)} made"
    verdicts = []
    for answer in answers:
        name = next(iter(answer))
        function = functions[0] if rule == "simple" else next(each for each in functions if each["name"] == name)
        verdicts.append([check_call(function, answer[name], call, rules) for call in calls])
    if len(answers) == 1:
        return verdicts[0][0]
    unmatched = _best_matching(verdicts) if rules.repaired else _first_matching(verdicts)
    if unmatched is None:
        return None
    reasons = sorted({reason for reason in verdicts[unmatched] if reason})
    return f"no call is right call {unmatched + 1}: {'; '.join(reasons) or 'it is taken'}"


def _first_matching(verdicts: Verdicts) -> int | None:
    """Give each answer the first free call that fits; return the first answer left without, None if none is."""
    taken: set[int] = set()
    for answer, row in enumerate(verdicts):
        free = next((call for call, reason in enumerate(row) if reason is None and call not in taken), None)
        if free is None:
            return answer
        taken.add(free)
    return None


def _best_matching(verdicts: Verdicts) -> int | None:
    """Like `_first_matching`, but an answer makes way for another where a second call fits it too (repair 1)."""
    holder: dict[int, int] = {}

    def place(answer: int, seen: set[int]) -> bool:
        for call, reason in enumerate(verdicts[answer]):
            if reason is None and call not in seen:
                seen.add(call)
                if call not in holder or place(holder[call], seen):
                    holder[call] = answer
                    return True
        return False

    return next((answer for answer in range(len(verdicts)) if not place(answer, set())), None)


def check_call(function: Function, allowed: Mapping[str, Json], call: Call, rules: Rules) -> str | None:
    """Return None where the call is right, else why not; `allowed` is each parameter's right values."""
    name, parameters = tool_name(function["name"]), function["parameters"]
    if call.name != name:
        return f"'{call.name}' is called instead of '{name}'"
    for required in parameters.get("required", ()):
        if required not in call.arguments:
            return f"required parameter '{required}' is missing"
    for parameter, value in call.arguments.items():
        if parameter not in parameters["properties"] or parameter not in allowed:
            return f"parameter '{parameter}' does not belong"
        reason = check_argument(parameters["properties"][parameter], value, allowed[parameter], rules)
        if reason:
            return f"parameter '{parameter}' {reason}"
    for parameter, values in allowed.items():
        if parameter not in call.arguments and "" not in values:
            return f"parameter '{parameter}' is missing"
    return None


def check_argument(schema: Mapping[str, Json], value: Json, allowed: Sequence[Json], rules: Rules) -> str | None:
    """Return None where the value is right, else what it is or has."""
    types = TYPES[rules.language]
    documented = schema["type"]
    items = schema.get("items", {}).get("type") if types.get(documented) is list else None
    if documented not in types or (items is not None and items not in types):
        return f"is of a type that cannot be graded: {documented} of {items}"
    kind, item_kind = types[documented], types[items] if items is not None else None
    try:
        value = _convert(value, documented, items, rules)
    except (ValueError, OverflowError) as error:
        return f"is no {documented}: {error}"
    expected = next((type(each) for each in allowed if each != ""), None)
    # Right values of another type than documented stand for a variable, whose name is compared as it is.
    is_variable = expected is not None and expected is not kind
    if type(value) is kind:
        if isinstance(value, list) and item_kind and not any(_items_fit(value, each, item_kind) for each in allowed):
            return f"has elements that are no {items}"
    elif type(value) is expected:
        is_variable = True
    else:
        return f"is no {documented}"
    fits = _any_equal if is_variable else _comparison(kind, item_kind)
    return None if fits(value, allowed, rules.repaired) else "has a wrong value"


def _convert(value: Json, documented: str, items: str | None, rules: Rules) -> Json:
    """Read source text, and take an integer for a float."""
    if rules.language != "python":
        if not isinstance(value, str):
            raise ValueError("source text is expected, as a string")
        return (from_java if rules.language == "java" else from_javascript)(value, documented, items)
    if documented == "float" and type(value) is int:
        return float(value)
    if rules.repaired and items == "float" and isinstance(value, list):  # repair 3: in an array, too
        return [float(each) if type(each) is int else each for each in value]
    return value


def _items_fit(value: Sequence[Json], answer: Json, kind: type) -> bool:
    """Tell whether elements have the documented type, or that of the answer's own; a "" asks nothing of them."""
    if not isinstance(answer, list):
        return True
    expected = next((type(each) for each in answer if each != ""), None)
    return all(type(each) is kind or type(each) is expected for each in value)


Fits = Callable[[Json, Sequence[Json], bool], bool]
"""Value, right values, whether repaired -> whether the value is one of them."""


def _comparison(kind: type, item_kind: type | None) -> Fits:
    if kind is dict:
        return _any_dict
    if kind is list:
        return _any_list_of_dicts if item_kind is dict else _any_list
    return _any_string if kind is str else _any_equal


def normal(text: Json) -> Json:
    """Return a string as it is compared; anything else unchanged."""
    return _IGNORED.sub("", text).lower().replace("'", '"') if isinstance(text, str) else text


def _equal(left: Json, right: Json, repaired: bool) -> bool:
    """Compare as Python does; repaired, true and 1 are not equal at any depth (repair 2)."""
    if not repaired:
        return bool(left == right)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_equal(a, b, True) for a, b in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key], True) for key in left)
    return bool(left == right)


def _any_equal(value: Json, allowed: Sequence[Json], repaired: bool) -> bool:
    return any(_equal(value, each, repaired) for each in allowed)


def _any_string(value: str, allowed: Sequence[Json], repaired: bool) -> bool:
    return normal(value) in [normal(each) for each in allowed if isinstance(each, str)]


def _any_list(value: Sequence[Json], allowed: Sequence[Json], repaired: bool) -> bool:
    """Compare lists, their strings as strings are; a "" among the right values also stands for the empty list."""
    answers = [[normal(each) for each in answer] for answer in allowed if isinstance(answer, list | str)]
    return _any_equal([normal(each) for each in value], answers, repaired)


def _any_dict(value: Mapping[str, Json], allowed: Sequence[Json], repaired: bool) -> bool:
    return any(_dict_fits(value, each, repaired) for each in allowed if isinstance(each, dict))


def _dict_fits(value: Mapping[str, Json], answer: Mapping[str, Json], repaired: bool) -> bool:
    """Compare by key: each has a list of right values, in which "" lets the key be left out."""
    # A few answers hold a bare string, not a list; the published scorer then compares with its letters (repair 4).
    right = {key: [each] if repaired and isinstance(each, str) else each for key, each in answer.items()}
    right = {key: each if isinstance(each, (list, str, dict)) else [] for key, each in right.items()}
    return all(
        key in right and _any_equal(normal(each), [normal(one) for one in right[key]], repaired)
        for key, each in value.items()
    ) and all(key in value or "" in each for key, each in right.items())


def _any_list_of_dicts(value: Sequence[Json], allowed: Sequence[Json], repaired: bool) -> bool:
    return any(
        len(value) == len(answer)
        and all(
            isinstance(one, dict) and isinstance(other, dict) and _dict_fits(one, other, repaired)
            for one, other in zip(value, answer, strict=True)
        )
        for answer in allowed
        if isinstance(answer, list | str)
    )
