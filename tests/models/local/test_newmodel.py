"""`harness init-model`: what it writes, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
import msgspec
import pytest

from harness import newmodel
from harness.core import EnvOptions, Message, ToolCall, ToolSpec
from harness.errors import SetupError

LOOK = ToolSpec(
    name="look", description="Look.", parameters={"type": "object", "properties": {"at": {"type": "string"}}}
)


def test_the_same_arguments_give_the_same_files(tiny: Path, tmp_path: Path) -> None:
    plays = [
        play
        for name in ("alfworld", "db")
        for play in asyncio.run(newmodel.gold_play(name, tasks=30, seed=0, options=EnvOptions()))
    ]
    again = newmodel.make(tmp_path / "again", newmodel.SHAPES["nano"], plays, seed=0)
    for file in ("model.safetensors", "tokenizer.json", "origin.json", "config.json"):
        assert (again.folder / file).read_bytes() == (tiny / file).read_bytes(), file
    assert again.parameters < 300_000
    other = newmodel.make(tmp_path / "other", newmodel.SHAPES["nano"], plays, seed=1)
    assert (other.folder / "model.safetensors").read_bytes() != (tiny / "model.safetensors").read_bytes()


def test_a_tokenizer_writes_any_text_and_reads_it_back(tiny: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    for text in ("go to cabinet 1", "naïve café — 漢字 🙂\n\ttab", "<|im_end|> is a mark"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_what_is_fixed_in_a_call_is_one_token_each(tiny: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    call = '<tool_call>\n{"name": "take_action", "arguments": {"action": "look"}}\n</tool_call>'
    pieces = [tokenizer.decode([one]) for one in tokenizer.encode(call, add_special_tokens=False)]
    assert pieces[:4] == ["<tool_call>", '\n{"name": "', "take_action", '", "arguments": {"']
    assert pieces[-2:] == ['"}}\n', "</tool_call>"] and '": "' in pieces


def test_the_template_says_tools_calls_and_answers(tiny: Path) -> None:
    from transformers import AutoTokenizer

    from harness.models.render import Renderer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    call = ToolCall(id="1", name="look", arguments='{"at": "it"}')
    history = [
        Message(role="user", content="What is it?"),
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content="a lamp", tool_call_id="1"),
    ]
    text = Renderer(tokenizer, [tokenizer.eos_token_id]).text(history, [LOOK], open_turn=True)
    assert 'look ["at"]' in text
    assert '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n</tool_call><|im_end|>' in text
    assert text.endswith("<tool_response>a lamp</tool_response><|im_end|>\n<|im_start|>assistant\n")


def test_where_it_comes_from_is_written_down(tiny: Path) -> None:
    origin = json.loads((tiny / "origin.json").read_text())
    assert origin["tasks"] == {"alfworld": 30, "db": 30}
    assert len(origin["tasks_digest"]) == 64


def test_what_is_refused(tiny: Path, tmp_path: Path) -> None:
    plays = asyncio.run(newmodel.gold_play("alfworld", tasks=2, seed=0, options=EnvOptions()))
    with pytest.raises(SetupError, match="is not empty"):
        newmodel.make(tiny, newmodel.SHAPES["nano"], plays, seed=0)
    with pytest.raises(SetupError, match="train tasks alone"):
        wrong = [msgspec.structs.replace(play, split="test") for play in plays]
        newmodel.make(tmp_path / "new", newmodel.SHAPES["nano"], wrong, seed=0)
    assert not (tmp_path / "new").exists()


def test_the_command_knows_all_shapes() -> None:
    from harness.cli.init_model import command

    shape = command.params[0].type
    assert isinstance(shape, click.Choice) and set(shape.choices) == set(newmodel.SHAPES)
