"""Gold play beside own play: drawn by the version alone, made once, and refused where it cannot be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[train]'")

from harness import newmodel
from harness.core import EnvOptions
from harness.errors import SetupError
from training import ptx
from training import recipe as recipes
from training.recipe import Recipe

GIVEN: dict[str, Any] = {"tasks": {"db": 6}, "sequences": {"db": 4}, "coefficient": 0.5}


def recipe(given: dict[str, Any] | None = None, **above: Any) -> Recipe:
    values = {"name": "beside", "envs": {"db": {}}, "steps": 1, "ptx": given or GIVEN, **above}
    return recipes.made(values, "beside.toml")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "nano"
    plays = asyncio.run(newmodel.gold_play("db", tasks=6, seed=0, options=EnvOptions()))
    newmodel.make(folder, newmodel.SHAPES["nano"], plays, seed=0)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gold")


def test_an_update_draws_by_its_version(base: Path, folder: Path) -> None:
    said: list[str] = []
    plays = ptx.play(recipe(), base, folder, said.append)
    assert said == ["gold play beside own play: 6 sequences"]
    drawn = [ptx.batch(recipe(), plays, version) for version in range(20)]
    for batch in drawn:
        assert len({each.segment.ids.tobytes() for each in batch}) == 4
        worth = sum(each.coefficient * float(each.advantages[each.kept].sum()) for each in batch)
        assert worth == pytest.approx(0.5), "the mean over its tokens, by the coefficient"
        assert all((each.kept == each.segment.mask).all() for each in batch), "what it was told is not learnt"
    again = ptx.batch(recipe(), plays, 7)
    assert [each.segment.ids.tolist() for each in again] == [each.segment.ids.tolist() for each in drawn[7]]
    assert {each.segment.ids.tobytes() for batch in drawn for each in batch} == {
        each.ids.tobytes() for each in plays["db"]
    }


def test_it_is_played_once(base: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ptx.play(recipe(), base, folder, lambda _: None)
    monkeypatch.setattr(ptx, "gold_play", lambda *_: pytest.fail("it was played again"))
    again = ptx.play(recipe(), base, folder, lambda _: None)
    assert all(np.array_equal(one.ids, other.ids) for one, other in zip(first["db"], again["db"], strict=True))


def test_other_gold_play_is_played_anew(base: Path, tmp_path: Path) -> None:
    ptx.play(recipe(), base, tmp_path, lambda _: None)
    fewer = recipe({**GIVEN, "tasks": {"db": 4}})
    assert len(ptx.play(fewer, base, tmp_path, lambda _: None)["db"]) == 4


def test_none_asked_for_is_none() -> None:
    plain = recipes.made({"name": "plain", "envs": {"db": {}}, "steps": 1}, "plain.toml")
    assert ptx.play(plain, Path("nowhere"), Path("nowhere"), pytest.fail) == {}
    assert ptx.batch(plain, {}, 0) == []


def test_plays_that_are_too_long_are_missed(base: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"db has 0 sequences of at most 8 tokens, fewer than the 4 that an update"):
        ptx.play(recipe(begin={"longest": 8}), base, tmp_path, lambda _: None)


def test_training_begins_behind_what_it_shows() -> None:
    assert recipe(begin={"tasks": 4}).shown == {"db": 6}
    assert recipe(begin={"tasks": 9}).shown == {"db": 9}
    assert recipe(begin={"tasks": 9, "warm_start": None}).shown == {"db": 6}
    eased = recipe(begin={"envs": {"db": {"difficulty": 0.5}}})
    assert [dict(gold.settings) for gold in eased.rehearsed] == [{"difficulty": 0.5}]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"tasks": {"db": 6}, "sequences": {"kg": 1}}, r"must name the same environments, not 'db' alone"),
        ({"tasks": {"kg": 6}, "sequences": {"kg": 1}}, r"ptx names 'kg', which envs does not: add it, or leave it out"),
        ({"tasks": {"db": 2}, "sequences": {"db": 3}}, r"asks for more plays of 'db' an update than ptx.tasks has"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SetupError, match=sentence):
        recipe(given)
