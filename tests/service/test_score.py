"""`harness score`, and what else reads run folders, on runs that were played at a controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.fake_provider import FakeProvider
from tests.service import test_client
from tests.service.foreign import Foreign
from tests.service.test_commands import command
from tests.service.test_same_play import TASKS, play, served

pytestmark = pytest.mark.slow


async def said(*arguments: object) -> tuple[int, str]:
    """Run a command of `harness` to its end; return its exit code and all that it said."""
    async with command(*map(str, arguments)) as running:
        return await running.ends(), "\n".join(running.said)


async def test_a_run_at_a_controller_of_ours_is_graded_again_without_it(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    async with served("db") as controller:
        await play(there, model="scripted/oracle", env=("db",), controller=controller.address)
    await play(here, model="scripted/oracle", env=("db",))
    code, text = await said("score", there)
    assert code == 0 and f"0 of {TASKS} grades differ" in text
    assert (await said("compare", here, there))[0] == 0


async def test_a_run_at_a_foreign_controller_is_graded_again_there(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with FakeProvider(Foreign()) as provider:
        await test_client.play(run, test_client.spec(provider))
        code, text = await said("score", run)
        assert code == 0 and "0 of 4 grades differ" in text
        assert (await said("compare", run, f"{run}-scored", "--allow-different"))[0] == 0
    code, text = await said("score", run, "--out", tmp_path / "again")
    assert code == 2 and "no controller" in text and not (tmp_path / "again").exists()
