"""Naming a model, and the models that ask no server: scripts and recorded runs. With prices and redaction."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.config import ModelOptions
from harness.core import (
    Conversation,
    Ending,
    Message,
    Model,
    Reply,
    SamplingParams,
    Score,
    ToolCall,
    Trajectory,
    Turn,
    Usage,
)
from harness.errors import ModelError, SetupError
from harness.models import connect, prices, providers, redact
from harness.models.scripted import ScriptedModel

OPTIONS = ModelOptions()


async def generate(conversation: Conversation) -> Reply:
    return await conversation.generate([Message(role="user", content="x")], [], SamplingParams())


# ---------------------------------------------------------------- connect


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("opnai/gpt-5", "did you mean 'openai'"),
        ("gpt-5", "write provider/name"),
        ("openai", "write openai/NAME"),
        ("openai/", "write openai/NAME"),
        ("", "write provider/name"),
        ("no.such.module:make", "no module 'no.such.module'"),
        ("replay/nowhere", "is no recorded run"),
        ("scripted/oracle", "scripted agents"),
        ("scripted/none.json", "cannot read the script"),
    ],
)
def test_a_wrong_name_is_one_sentence(spec: str, said: str) -> None:
    with pytest.raises(SetupError, match=said) as error:
        connect(spec, OPTIONS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "options",
    [
        ModelOptions(max_connections=0),
        ModelOptions(retries=-1),
        ModelOptions(request_seconds=0),
        ModelOptions(retry_seconds=float("inf")),
        ModelOptions(base_url="localhost:8000"),
    ],
)
def test_senseless_options_are_refused(options: ModelOptions) -> None:
    with pytest.raises(SetupError):
        connect("openai/gpt-5", options)


def test_names_with_slashes_and_colons() -> None:
    assert connect("openrouter/meta-llama/llama-3", OPTIONS).name == "openrouter/meta-llama/llama-3"
    assert connect("ollama/qwen3:8b", OPTIONS).name == "ollama/qwen3:8b"


def test_a_folder_of_a_model_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "one" / "checkpoints" / "best"
    folder.mkdir(parents=True)
    with pytest.raises(SetupError, match="no provider 'runs'"):
        connect("runs/one/checkpoints/best", OPTIONS)
    (folder / "config.json").write_text("{}")
    for spec in ("runs/one/checkpoints/best", str(folder)):
        # What follows is missing: the tokenizer, or where this is not installed, what would read it.
        with pytest.raises(SetupError, match=r"^hf/.*best needs the package|the tokenizer in .*best cannot be loaded"):
            connect(spec, OPTIONS)


def make_model(name: str, options: ModelOptions) -> Model:
    return ScriptedModel(["from elsewhere"], f"elsewhere/{name}")


async def test_module_and_attribute(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("elsewhere_model")
    module.make_model = make_model  # type: ignore[attr-defined]
    module.__spec__ = type("Spec", (), {})()
    monkeypatch.setitem(sys.modules, "elsewhere_model", module)
    model = connect("elsewhere_model:make_model", OPTIONS)
    assert (await generate(model.open("e/t/0", 0))).message.content == "from elsewhere"


def test_providers_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row.name: row for row in providers()}
    assert {"openai", "anthropic", "google", "openrouter", "ollama", "vllm-server", "scripted", "replay"} <= rows.keys()
    assert not rows["openai"].ready
    assert rows["ollama"].ready
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    assert {row.name: row for row in providers()}["openai"].ready


def test_importing_brings_no_sdk() -> None:
    code = (
        "import harness.models, harness.models.openai, harness.models.anthropic, sys; "
        "print([name for name in ('openai', 'anthropic', 'httpx2', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


# ---------------------------------------------------------------- scripted


async def test_a_script_file(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text(
        json.dumps(
            [
                "Let me look.",
                {"tool_calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": "{"}]},
                {"content": "cut", "finish": "length", "reasoning": "why"},
                {"error": "the provider is down"},
            ]
        )
    )
    for _ in range(2):  # every episode hears it from the start
        conversation = connect(f"scripted/{file}", OPTIONS).open("e/t/0", 0)
        assert (await generate(conversation)).message.content == "Let me look."
        reply = await generate(conversation)
        assert [(call.name, call.arguments) for call in reply.message.tool_calls] == [("f", '{"a":1}'), ("g", "{")]
        assert reply.finish == "tool_calls"
        assert reply.usage.calls == 1
        assert (await generate(conversation)).finish == "length"
        with pytest.raises(ModelError, match="the provider is down"):
            await generate(conversation)
        with pytest.raises(ModelError, match="has 4 replies"):
            await generate(conversation)


async def test_a_script_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "script.jsonl"
    file.write_text('"one"\n\n{"content": "two"}\n')
    conversation = connect(f"scripted/{file}", OPTIONS).open("e/t/0", 0)
    assert [(await generate(conversation)).message.content for _ in range(2)] == ["one", "two"]


@pytest.mark.parametrize("text", ["{", '{"content": "x"}', '[{"contents": "x"}]', "[7]"])
def test_a_wrong_script_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "script.json"
    file.write_text(text)
    with pytest.raises(SetupError, match=r"script\.json is not a list of replies"):
        connect(f"scripted/{file}", OPTIONS)


async def test_a_script_may_be_a_function() -> None:
    model = ScriptedModel(lambda messages, tools: f"{len(messages)} {len(tools)}")
    assert (await generate(model.open("e/t/0", 0))).message.content == "1 0"


# ---------------------------------------------------------------- replay


def trajectory(task: str, attempt: int, *contents: str) -> Trajectory:
    turns = tuple(
        Turn(
            reply=Reply(
                message=Message(
                    role="assistant", content=content, tool_calls=(ToolCall(id="a", name="f", arguments="{}"),)
                ),
                usage=Usage(input_tokens=7, calls=1, cost_usd=1.0, seconds=9.0),
                finish="tool_calls",
            )
        )
        for content in contents
    )
    return Trajectory(
        entry="db",
        task_id=task,
        epoch=0,
        attempt=attempt,
        env="db",
        split="test",
        group="g",
        digest="d",
        agent="direct",
        model="m",
        fingerprint="f",
        seed=1,
        opening=(),
        tools=(),
        turns=turns,
        ending=Ending.COMPLETED,
        score=Score(value=1.0),
    )


async def test_a_recorded_run_is_played_again(tmp_path: Path) -> None:
    rows = [trajectory("a/1", 0, "failed"), trajectory("b#2", 0, "b"), trajectory("a/1", 1, "one", "two")]
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    (tmp_path / "trajectories.jsonl").write_bytes(lines + b'{"entry": "torn')
    model = connect(f"replay/{tmp_path}", OPTIONS)
    await model.check(SamplingParams(), tools=True)
    for episode in ("db/a/1/0", "db/a/1/0#0", "db/a/1/0#7"):
        conversation = model.open(episode, 0)
        replies = [await generate(conversation) for _ in range(2)]
        assert [reply.message.content for reply in replies] == ["one", "two"]
        assert replies[0].message.tool_calls == rows[2].turns[0].reply.message.tool_calls
        assert replies[0].usage == Usage(input_tokens=7, calls=1, cost_usd=0.0)
        with pytest.raises(ModelError, match="has 2 turns of db/a/1/0"):
            await generate(conversation)
    assert (await generate(model.open("db/b#2/0", 0))).message.content == "b"
    with pytest.raises(ModelError, match="has no episode db/c/0"):
        await generate(model.open("db/c/0#1", 0))


async def test_a_broken_record_is_named(tmp_path: Path) -> None:
    file = tmp_path / "trajectories.jsonl"
    file.write_bytes(msgspec.json.encode(trajectory("a", 0)) + b"\n{}\n")
    with pytest.raises(SetupError, match="line 2"):
        connect(f"replay/{tmp_path}", OPTIONS)
    file.write_bytes(b"")
    with pytest.raises(SetupError, match="holds no finished attempt"):
        await connect(f"replay/{tmp_path}", OPTIONS).check(SamplingParams(), tools=False)


# ---------------------------------------------------------------- prices and secrets


def test_every_price_is_dated_and_sensible() -> None:
    for name, price in prices.prices().items():
        assert price.output > price.input > (price.cached or 0), name
        assert len(price.date) == 10
        assert price.source.startswith("https://")


def test_cost() -> None:
    price = prices.price_of("anthropic/claude-sonnet-4-5-20250929")
    assert price is prices.price_of("anthropic/claude-sonnet-4-5")
    usage = Usage(input_tokens=100_000, cached_tokens=60_000, output_tokens=10_000, calls=1)
    assert prices.cost(price, usage, 20_000) == pytest.approx(
        (20_000 * 3 + 60_000 * 0.3 + 20_000 * 3.75 + 10_000 * 15) / 1e6
    )


@pytest.mark.parametrize("name", ["openai/gpt-99", "openai/gpt-5-pro", "groq/gpt-5", "openai/gpt-5-2", "gpt-5"])
def test_an_unknown_price_is_unknown(name: str) -> None:
    assert prices.cost(prices.price_of(name), Usage(input_tokens=5, calls=1)) is None


def test_a_cost_that_cannot_be_told_is_unknown() -> None:
    dear = prices.price_of("google/gemini-2.5-pro")
    assert prices.cost(dear, Usage(input_tokens=300_000, calls=1)) is None  # another price holds
    assert prices.cost(dear, Usage(input_tokens=300, cached_tokens=5, calls=1)) is None  # no price of cached input
    assert prices.cost(dear, Usage(calls=1)) is None  # no count, not no cost


def test_redact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "correct-horse-battery")
    monkeypatch.setenv("SHORT_KEY", "the")
    text = redact(
        "the key correct-horse-battery, Bearer abcdef123, sk-proj-abc123_x, http://me:pass@host/ and gsk_abcdefgh"
    )
    assert text == "the key [redacted], Bearer [redacted], [redacted], http://[redacted]@host/ and [redacted]"
    assert redact("task-based disk-usage of the desk") == "task-based disk-usage of the desk"
