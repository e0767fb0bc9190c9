"""Text, conversations, plots and training figures as values."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core import Message, Reply, ToolCall, Turn
from harness.errors import SetupError
from harness.view import conversation, html, plots, tasks, training
from harness.view.tokens import decoder
from tests.view import making

ROWS = [{"x": at, "y": at / 10, "series": name} for name in ("kg", "<b>db</b>") for at in range(10)]


@given(st.text())
def test_shown_text_holds_nothing_that_hides_or_steers(text: str) -> None:
    seen = html.shown(text)
    assert not [one for one in seen if unicodedata.category(one) in {"Cc", "Cs"} and one not in "\n\t"]
    assert not [one for one in seen if one in "\u202e\u2066\u2069\u200b\ufeff\u2028\U000e0041"]
    assert html.shown(seen) == seen


def test_plain_text_is_shown_as_it_is() -> None:
    assert html.shown("Käse 東京 👩‍👩‍👧 a\tb\n") == "Käse 東京 👩‍👩‍👧 a\tb\n"
    assert html.shown("a\x1b[2J\u202e") == "a␛[2J⟪U+202E⟫"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.00001, "<0.1 ms"),
        (0.0042, "4.2 ms"),
        (0.25, "250 ms"),
        (3.21, "3.2 s"),
        (200, "3 min 20 s"),
        (7500, "2 h 05 min"),
    ],
)
def test_seconds_are_written_as_one_says_them(value: float, written: str) -> None:
    assert html.seconds(value) == written


def test_an_unknown_cost_is_never_zero() -> None:
    assert [html.cost(value) for value in (None, 0.0, 0.0123, 12.5)] == ["unknown", "$0.00", "$0.0123", "$12.50"]


def test_a_time_is_shortened_and_what_is_none_is_text() -> None:
    assert html.clock("2026-01-02T03:04:05+00:00") == "2026-01-02 03:04 UTC"
    assert html.clock("<script>alert(1)</script>\x1b") == "<script>alert(1)</script>␛"


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "PACKAGES", ("no_such_package",))
    with pytest.raises(SetupError, match=r"agent-harness\[view\]"):
        html.require()


def test_long_texts_and_many_turns_are_cut_and_told() -> None:
    one = making.trajectory("x" * 50)
    long = msgspec.structs.replace(one, turns=one.turns * 250)
    view = conversation.view(long, most_text=10, first=120, tokens=True)
    assert (view.turns, view.first, view.shown) == (250, 120, conversation.MOST_TURNS)
    assert view.messages[0].anchor == "turn-121"
    assert view.messages[0].text.left_out == 40
    boxes = [message.sampled for message in view.messages if message.sampled]
    assert sum(len(box.tokens) for box in boxes) <= conversation.MOST_TOKENS
    assert conversation.view(long, first=10_000).first == 249


def test_arguments_that_are_no_json_are_shown_as_they_are() -> None:
    deep = "[" * 100_000
    calls = tuple(ToolCall(id=str(at), name="f", arguments=text) for at, text in enumerate(('{"b":1}', "{oops", deep)))
    turn = Turn(reply=Reply(message=Message(role="assistant", tool_calls=calls)))
    shown = conversation.view(msgspec.structs.replace(making.trajectory("x"), turns=(turn,))).messages[2].calls
    assert [call.valid for call in shown] == [True, False, False]
    assert shown[0].arguments.text == '{\n  "b": 1\n}'
    assert shown[1].arguments.text == "{oops"


def test_tokens_are_binned_by_how_likely_they_were() -> None:
    view = conversation.view(making.trajectory("engine"), tokens=True)
    sampled = next(message.sampled for message in view.messages if message.sampled)
    assert [token.bin for token in sampled.tokens] == [0, 1, 2, 4]
    assert [token.forced for token in sampled.tokens] == [False, False, True, False]
    assert (sampled.versions, view.engines) == ("3, 4", ["engine"])


def test_a_tokenizer_that_is_not_at_hand_leaves_ids(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    assert decoder("openai/gpt") is None
    assert decoder(f"hf/{tmp_path}/none") is None
    assert decoder(f"hf/{tmp_path}") is None


@pytest.mark.parametrize(
    "spec",
    [
        plots.lines(ROWS, x="updates", y="<script>", share=True),
        plots.bars([{"x": text, "y": 1, "series": text} for text in making.HOSTILE], x="lag", y="tokens"),
        plots.intervals([{"name": "<i>", "low": 0.1, "value": 0.2, "high": 0.4, "series": "A"}], x="score"),
        plots.differences([{"name": "kg", "low": -0.1, "value": 0.2, "high": 0.4, "series": "A"}], x="B − A"),
        plots.pareto([{"name": "m", "x": 1.0, "y": 0.5, "series": "s", "front": True}], x="$", y="score"),
    ],
)
def test_a_plot_is_the_same_each_time_and_inert(spec: plots.Spec) -> None:
    text = str(plots.svg(spec))
    plots._svg.cache_clear()
    assert str(plots.svg(spec)) == text
    tags = re.findall(r"<[^>]*>", text)
    assert {tag.split()[0].strip("</>") for tag in tags} <= {
        "svg",
        "g",
        "path",
        "line",
        "text",
        "defs",
        "clipPath",
        "rect",
    }
    assert not [tag for tag in tags if re.search(r"\s(style|href|xlink:href|on\w+)=", tag)]
    assert len(text) < 60_000
    used = {text[at + 6 : at + 13] for at in range(len(text)) if text.startswith('fill="#', at)}
    mapped = html.stylesheet()
    assert all(f'[fill="{colour}"]' in mapped for colour in used)


def test_a_plot_is_a_png_too() -> None:
    assert plots.png(plots.bars(ROWS[:3], x="a", y="b")).startswith(b"\x89PNG")


def test_long_series_are_thinned_each_for_itself() -> None:
    rows = [{"x": at, "y": 0.5, "series": name} for at in range(20_000) for name in ("a", "b")]
    values = plots.lines(rows, x="x", y="y")["data"]["values"]
    assert len(values) <= plots.MOST_ROWS + 2
    assert sum(row["series"] == "a" for row in values) == sum(row["series"] == "b" for row in values)


def test_updates_made_twice_count_once_and_time_goes_on(tmp_path: Path) -> None:
    lines = [
        making.update(1),
        making.update(2),
        making.update(3),
        making.update(3, seconds=10),
        making.update(4, seconds=70),
    ]
    folder = making.write_training(tmp_path / "run", lines)
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"version": 5, "loss": NaN}\nnot json\n[1]\n{"version": "6"}\n{"version": 7, "sec')
    found = training.read(folder / "metrics.jsonl")
    assert [line["version"] for line in found] == [1, 2, 3, 4, 5]
    hours = [line["at/hours"] for line in found]
    assert hours == sorted(hours)
    assert found[2]["at/hours"] * 3600 == pytest.approx(120 + 10)
    titles = [plot.title for plot in training.curves(found, [], "hours")]
    assert "Loss" in titles


def test_an_alarm_stands_until_it_is_gone(tmp_path: Path) -> None:
    texts = {"cause": "c", "remedy": "r"}
    events = [("a", "raised"), ("b", "raised"), ("a", "gone"), ("b", "gone"), ("b", "raised")]
    alarms = [{"version": at, "name": name, "event": event, **texts} for at, (name, event) in enumerate(events)]
    folder = making.write_training(tmp_path / "run", [], alarms)
    found = training.alarms(folder / "alarms.jsonl")
    assert [one["name"] for one in found if one["standing"]] == ["b"]
    assert [int(one["version"]) for one in found] == [4, 3, 2, 1, 0]


def test_a_run_without_updates_has_no_curves(tmp_path: Path) -> None:
    assert training.read(tmp_path / "metrics.jsonl") == []
    assert list(training.curves([], [], "updates")) == []


@given(st.dictionaries(st.sampled_from(list(tasks.Filter.__struct_fields__)), st.text(max_size=20)))
def test_a_filter_reads_back_from_its_own_address(query: dict[str, str]) -> None:
    wanted = tasks.read(query)
    assert tasks.read(wanted.address) == wanted


def test_the_policy_of_a_page_that_stands_alone_names_its_own_style_and_script() -> None:
    policy = html.policy_inline()
    assert policy.count("sha256-") == 2
    assert "unsafe" not in policy
    assert json.dumps(policy)
