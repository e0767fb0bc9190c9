"""The single-turn grader, rule by rule and repair by repair, and that nothing a model writes makes it fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.bfcl.ast_check import Call, Rules, check, check_argument, normal
from envs.bfcl.data import Rule
from harness.core import Json

FIXED, PUBLISHED = Rules(), Rules(repaired=False)


def schema(kind: str, items: str | None = None) -> dict[str, Json]:
    return {"type": kind, **({"items": {"type": items}} if items else {})}


def right(kind: str, value: Any, allowed: list[Any], rules: Rules = FIXED, items: str | None = None) -> bool:
    return check_argument(schema(kind, items), value, allowed, rules) is None


@pytest.mark.parametrize("rules", [FIXED, PUBLISHED])
@pytest.mark.parametrize(
    ("kind", "value", "allowed", "is_right"),
    [
        ("integer", 5, [5], True),
        ("integer", 5.0, [5], False),
        ("integer", "5", [5], False),
        ("integer", True, [1], False),
        ("integer", "five", ["five"], True),
        ("float", 5, [5.0], True),
        ("float", 5.5, [5.0], False),
        ("float", 10**400, [5.0], False),
        ("boolean", True, [True], True),
        ("boolean", 1, [True], False),
        ("string", "April 1, 2024", ["april 1 2024"], True),
        ("string", "it's", ['IT"S'], True),
        ("string", "a;b", ["ab"], False),
        ("string", "", ["x", ""], True),
        ("string", None, ["x"], False),
        ("any", "x", ["x"], True),
        ("any", 5, [5], True),
        ("dict", {"a": 1}, [{"a": [1, 2]}], True),
        ("dict", {"a": "X Y"}, [{"a": ["xy"]}], True),
        ("dict", {"a": 1}, [{"a": [1], "b": [2, ""]}], True),
        ("dict", {"a": 1}, [{"a": [1], "b": [2]}], False),
        ("dict", {"a": 1, "c": 1}, [{"a": [1]}], False),
        ("dict", "a", [{"a": [1]}], False),
        ("unheard", 1, [1], False),
    ],
)
def test_values(kind: str, value: Any, allowed: list[Any], is_right: bool, rules: Rules) -> None:
    assert right(kind, value, allowed, rules) is is_right


@pytest.mark.parametrize("rules", [FIXED, PUBLISHED])
@pytest.mark.parametrize(
    ("items", "value", "allowed", "is_right"),
    [
        ("string", ["A b", "c"], [["ab", "C"]], True),
        ("string", ["c", "ab"], [["ab", "c"]], False),
        ("string", ["a"], [["a", "b"]], False),
        ("string", [1], [["1"]], False),
        ("string", [], [["a"], ""], True),
        ("string", [], [["a"]], False),
        ("string", "ab", [["a", "b"]], False),
        ("integer", [1, 2], [[3], [1, 2]], True),
        ("integer", [True, 2], [[1, 2]], False),
        ("integer", [1.0, 2], [[1, 2]], False),
        ("float", [1.0], [[1.0]], True),
        ("dict", [{"a": 1}, {"a": 2}], [[{"a": [1]}, {"a": [2]}]], True),
        ("dict", [{"a": 2}, {"a": 1}], [[{"a": [1]}, {"a": [2]}]], False),
        ("dict", [{"a": 1}], [[{"a": [1]}, {"a": [2]}]], False),
        ("dict", ["a"], [[{"a": [1]}], ""], False),
        ("array", [[1], [2]], [[[1], [2]]], True),
    ],
)
def test_lists(items: str, value: Any, allowed: list[Any], is_right: bool, rules: Rules) -> None:
    assert right("array", value, allowed, rules, items) is is_right
    assert right("tuple", value, allowed, rules, items) is is_right


@pytest.mark.parametrize(
    ("language", "kind", "items", "value", "allowed", "is_right"),
    [
        ("java", "integer", None, "5", [5], True),
        ("java", "integer", None, 5, [5], False),
        ("java", "long", None, "5L", [5], True),
        ("java", "long", None, "5", [5], False),
        ("java", "float", None, "2.5f", [2.5], True),
        ("java", "double", None, "2.5e1", [25.0], True),
        ("java", "boolean", None, "true", [True], True),
        ("java", "boolean", None, "True", [True], False),
        ("java", "String", None, "some text", ["sometext"], True),
        ("java", "any", None, "someObject", ["someObject"], True),
        ("java", "ArrayList", "String", 'new ArrayList<>(Arrays.asList("a", "b"))', [["a", "b"]], True),
        ("java", "ArrayList", "long", "new ArrayList<Long>() {{ add(1L); add(2L); }}", [[1, 2]], True),
        ("java", "ArrayList", "integer", "list", ["list"], True),
        ("java", "Array", "integer", "new int[]{1, 2}", [[1, 2]], True),
        ("java", "HashMap", None, 'new HashMap<String, Object>() {{ put("a", 1); }}', [{"a": [1]}], True),
        ("java", "Queue", None, "queue", ["queue"], False),
        ("javascript", "String", None, "'text'", ["text"], True),
        ("javascript", "Bigint", None, "5n", [5], True),
        ("javascript", "Boolean", None, "false", [False], True),
        ("javascript", "array", "String", "['a', \"b\"]", [["a", "b"]], True),
        ("javascript", "array", "integer", "[[1, 2], [3]]", [[[1, 2], [3]]], True),
        ("javascript", "dict", None, "{a: 1, 'b': [1, 2]}", [{"a": [1], "b": [[1, 2]]}], True),
        ("javascript", "integer", None, "9" * 5000, [9], False),
        ("javascript", "String", None, "x" * 5000, ["x" * 5000], True),
    ],
)
def test_source_text(language: Any, kind: str, items: Any, value: Any, allowed: list[Any], is_right: bool) -> None:
    for repaired in (True, False):
        assert right(kind, value, allowed, Rules(language, repaired), items) is is_right


class TestCalls:
    FUNCTIONS = (
        {
            "name": "math.area",
            "description": "",
            "parameters": {
                "type": "dict",
                "properties": {"base": schema("integer"), "unit": schema("string")},
                "required": ["base"],
            },
        },
        {"name": "other", "description": "", "parameters": {"type": "dict", "properties": {}, "required": []}},
    )

    def verdict(self, rule: Rule, answers: list[Any], *calls: tuple[str, dict[str, Any]], rules: Rules = FIXED) -> bool:
        return check(rule, self.FUNCTIONS, answers, [Call(*call) for call in calls], rules) is None

    @pytest.mark.parametrize(
        ("name", "arguments", "is_right"),
        [
            ("math_area", {"base": 2}, True),
            ("math_area", {"base": 2, "unit": "CM"}, True),
            ("math.area", {"base": 2}, False),
            ("other", {"base": 2}, False),
            ("math_area", {}, False),
            ("math_area", {"base": 2, "height": 2}, False),
            ("math_area", {"base": 3}, False),
        ],
    )
    def test_one_call(self, name: str, arguments: dict[str, Any], is_right: bool) -> None:
        answers = [{"math.area": {"base": [2], "unit": ["cm", ""]}}]
        assert self.verdict("simple", answers, (name, arguments)) is is_right
        assert self.verdict("multiple", answers, (name, arguments)) is is_right

    def test_parameter_that_may_not_be_left_out(self) -> None:
        assert not self.verdict("simple", [{"math.area": {"base": [2], "unit": ["cm"]}}], ("math_area", {"base": 2}))

    def test_any_order_and_exact_number(self) -> None:
        answers = [{"math.area": {"base": [1]}}, {"other": {}}, {"math.area": {"base": [2]}}]
        calls = [("math_area", {"base": 2}), ("math_area", {"base": 1}), ("other", {})]
        assert self.verdict("parallel", answers, *calls)
        assert not self.verdict("parallel", answers, *calls[:2])
        assert not self.verdict("parallel", answers, *calls, calls[0])
        assert not self.verdict("parallel", answers, calls[0], calls[0], calls[2])

    def test_repair_1_an_answer_makes_way(self) -> None:
        answers = [{"math.area": {"base": [1, 2]}}, {"math.area": {"base": [1]}}]
        calls = [("math_area", {"base": 1}), ("math_area", {"base": 2})]
        assert self.verdict("parallel", answers, *calls)
        assert not self.verdict("parallel", answers, *calls, rules=PUBLISHED)


@pytest.mark.parametrize(
    ("kind", "items", "value", "allowed", "published", "repaired"),
    [
        pytest.param("dict", None, {"a": True}, [{"a": [1]}], True, False, id="2: true is not 1"),
        pytest.param("array", "array", [[True]], [[[1]]], True, False, id="2: at any depth"),
        pytest.param("array", "float", [1, 2.5], [[1.0, 2.5]], False, True, id="3: an integer for a float in a list"),
        pytest.param("dict", None, {"a": "x"}, [{"a": "xyz"}], True, False, id="4: a letter of a text"),
        pytest.param("dict", None, {"a": "xyz"}, [{"a": "xyz"}], False, True, id="4: the text itself"),
    ],
)
def test_repairs(kind: str, items: Any, value: Any, allowed: list[Any], published: bool, repaired: bool) -> None:
    assert right(kind, value, allowed, PUBLISHED, items) is published
    assert right(kind, value, allowed, FIXED, items) is repaired


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SOURCES = st.text("newArrayList<>(){}[].:,\"'aput1L \n", max_size=60) | JSON
SCHEMAS = st.one_of(
    st.sampled_from(["string", "integer", "float", "boolean", "dict", "any", "HashMap", "long", "String", "x"]).map(
        schema
    ),
    st.tuples(
        st.sampled_from(["array", "tuple", "ArrayList", "Array"]),
        st.sampled_from(["string", "integer", "float", "dict", "array", "String", "char", "any"]),
    ).map(lambda pair: schema(*pair)),
)


@example(schema("dict"), {"": None}, [{"": None}], "python", False)
@example(schema("dict"), {}, [{"": None}], "python", True)
@settings(deadline=None)
@given(SCHEMAS, SOURCES, st.lists(JSON, max_size=3), st.sampled_from(["python", "java", "javascript"]), st.booleans())
def test_whatever_is_written_gets_a_verdict(
    parameter: Mapping[str, Json], value: Json, allowed: list[Json], language: Any, repaired: bool
) -> None:
    reason = check_argument(parameter, value, allowed, Rules(language, repaired))
    assert reason is None or isinstance(reason, str)


@settings(deadline=None)
@given(st.text(), st.text(" ,./-_*^", max_size=5), st.integers(min_value=0))
def test_ignored_marks_and_case_change_nothing(text: str, marks: str, at: int) -> None:
    place = at % (len(text) + 1)
    assert normal(text[:place] + marks + text[place:]) == normal(text)
    assert normal(normal(text)) == normal(text)
