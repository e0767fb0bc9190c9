"""A checkpoint is whole or not there: killed in the middle, on a full disk, damaged, of another recipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import SetupError, StorageError
from tests.training.players import group
from training import checkpoint, curriculum, disk, weights
from training.buffer import Spent, encode
from training.checkpoint import State
from training.curriculum import CurriculumOptions
from training.policies import Mix, Served
from training.watch import Overdue

RECIPE = "r1"


def learner(number: int, size: int = 1000) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "learner.pt").write_bytes(bytes([number % 251]) * size)

    return write


def state(step: int) -> State:
    options = CurriculumOptions()
    course = curriculum.begin(["a", "b"], options)
    for _ in range(step % 5 + 3):
        course, _ = curriculum.choose(course, options, seed=0)
    return State(
        step=step,
        version=step,
        recipe=RECIPE,
        curriculum=course,
        spent=Spent(below=2, above=(4,)),
        mix=Mix(stale=0.125, values=(0.1, -0.3), low=1),
        served=(step, 0),
    )


def snapshots(root: Path, step: int) -> list[Served]:
    def write(folder: Path, number: int) -> None:
        (folder / "model.safetensors").write_bytes(bytes([number]) * 500)

    found = []
    for version in (step, 0):
        folder, snapshot = weights.publish(root / "snapshots", version, lambda part, v=version: write(part, v))
        found.append(Served(version=snapshot.version, folder=str(folder)))
    return found


def save(root: Path, step: int) -> Path:
    waiting = [group(3), group(5)]
    return checkpoint.write(root / "checkpoints", state(step), waiting, learner(step), snapshots(root, step))


def test_a_deadline_is_not_told_as_a_full_disk(tmp_path: Path) -> None:
    def late(folder: Path) -> None:
        raise Overdue("the learner: save took more than 3 seconds") from TimeoutError()

    with pytest.raises(Overdue, match="save took more than"):
        checkpoint.write(tmp_path / "checkpoints", state(7), [], late, [])
    assert not checkpoint.steps(tmp_path / "checkpoints")


def test_what_was_saved_is_what_is_read(tmp_path: Path) -> None:
    folder = save(tmp_path, 7)
    assert checkpoint.newest(tmp_path / "checkpoints") == folder
    found = checkpoint.read(folder, RECIPE)
    assert found.state == state(7)
    assert encode(found.groups) == encode([group(3), group(5)])
    assert (found.learner / "learner.pt").read_bytes() == bytes([7]) * 1000
    assert [served.version for served in found.serving] == [7, 0]
    for served in found.serving:
        assert weights.read(Path(served.folder)).version == served.version
    admission, buffer = checkpoint.resumed(found, batch=4, eta=1, max_running=20)
    assert (admission.version, admission.accepted, admission.capacity) == (7, 30, 2 * 4 - 2)
    assert len(buffer) == 2 and 4 in buffer.spent and 3 not in buffer.spent


def test_all_of_it_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename = disk.sync, Path.rename

    def synced(path: Path) -> None:
        done.append(path.name)
        sync(path)

    def renamed(path: Path, target: Path) -> Path:
        done.append(f"-> {target.name}")
        return rename(path, target)

    monkeypatch.setattr(disk, "sync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    folder = save(tmp_path, 1)
    before, after = done[: done.index(f"-> {folder.name}")], done[done.index(f"-> {folder.name}") :]
    assert {path.name for path in folder.rglob("*")} <= set(before)
    assert "checkpoints" in after, "the folder that holds the new name"


def test_a_checkpoint_outlives_the_snapshots_it_was_made_of(tmp_path: Path) -> None:
    folder = save(tmp_path, 3)
    assert len(weights.prune(tmp_path / "snapshots", keep=[])) == 2
    assert weights.read(Path(checkpoint.read(folder, RECIPE).serving[0].folder)).version == 3


def test_another_recipe_does_not_take_it_up(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is of another recipe: resume with the recipe that the run has"):
        checkpoint.read(save(tmp_path, 1), "r2")


def test_a_list_of_its_files_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(SetupError, match=r"manifest\.json"):
        checkpoint.read(folder, RECIPE)


def test_one_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path, 1)
    monkeypatch.setattr(checkpoint, "FORMAT", checkpoint.FORMAT + 1)
    with pytest.raises(SetupError, match=r"has checkpoint format \d+, this version reads \d+: use the version that"):
        checkpoint.read(folder, RECIPE)


@pytest.mark.parametrize("name", ["state.json", "buffer.bin", "learner/learner.pt", "pools/0/model.safetensors"])
@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_damage_is_named(tmp_path: Path, name: str, damage: str) -> None:
    folder = save(tmp_path, 1)
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if damage != "gone":
        path.write_bytes(data[:-1] if damage == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(SetupError, match=f"is damaged: {name} .*; remove it to resume from the one before"):
        checkpoint.read(folder, RECIPE)


def test_old_ones_are_removed_but_not_those_in_use(tmp_path: Path) -> None:
    folders = [save(tmp_path, step) for step in range(5)]
    root = tmp_path / "checkpoints"
    (root / ".step-000099.part").mkdir()
    served = Path(checkpoint.read(folders[0], RECIPE).serving[1].folder)
    checkpoint.prune(root, most=2, keep=[served, folders[1]])
    assert sorted(root.iterdir()) == [folders[0], folders[1], folders[3], folders[4]]


def refuse(kind: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "learner.pt").write_bytes(b"half")
        if kind == "disk":
            raise OSError(28, "No space left on device")
        if kind == "torch":
            raise RuntimeError("[enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0: file write failed")
        raise ValueError("a defect")

    return write


@pytest.mark.parametrize("kind", ["disk", "torch"])
def test_a_full_disk_is_one_sentence_and_the_old_checkpoint_is_as_it_was(tmp_path: Path, kind: str) -> None:
    old = save(tmp_path, 1)
    with pytest.raises(StorageError) as caught:
        checkpoint.write(tmp_path / "checkpoints", state(2), [], refuse(kind), [])
    assert "No space left on device; free some space there" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "checkpoints").iterdir()) == [old], "nothing half is left"
    checkpoint.read(old, RECIPE)
    with pytest.raises(StorageError):
        checkpoint.write(tmp_path / "checkpoints", state(1), [], refuse(kind), [])
    checkpoint.read(old, RECIPE)


def test_a_defect_is_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a defect"):
        checkpoint.write(tmp_path / "checkpoints", state(2), [], refuse("defect"), [])
    assert list((tmp_path / "checkpoints").iterdir()) == []


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tests.training.test_checkpoint import learner, state
from training import checkpoint
from harness.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    checkpoint.write(Path(sys.argv[1]), state(2), [], learner(2, size=200_000), [])
except StorageError as error:
    print(error)
"""
KILLED = """
import sys
from pathlib import Path
from tests.training.test_checkpoint import learner, snapshots, state
from tests.training.players import group
from training import checkpoint
root = Path(sys.argv[1])
served = snapshots(root, 1)
for step in range(2, 100_000):
    number = 1 + step % 3  # names come again: folders are replaced too
    waiting = [group(3 + step % 7), group(12)]
    checkpoint.write(root / "checkpoints", state(number), waiting, learner(number, 2_000_000), served)
    print(step, flush=True)
"""
HALFWAY = """
import sys, time
from pathlib import Path
from tests.training.test_checkpoint import state
from training import checkpoint

def half(folder):
    (folder / "learner.pt").write_bytes(b"half")
    print("half", flush=True)
    time.sleep(60)

checkpoint.write(Path(sys.argv[1]), state(int(sys.argv[2])), [], half, [])
"""
ROOT = Path(__file__).resolve().parent.parent.parent


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_a_disk_that_refuses_to_go_on_is_one_sentence(tmp_path: Path) -> None:
    old = save(tmp_path, 1)
    said, _ = child(LIMITED, tmp_path / "checkpoints").communicate(timeout=60)
    assert said.startswith("cannot write ") and "File too large; free some space there" in said
    assert list((tmp_path / "checkpoints").iterdir()) == [old]
    checkpoint.read(old, RECIPE)


@pytest.mark.parametrize("step", [1, 2], ids=["in place of one", "after one"])
def test_killed_halfway_the_old_checkpoint_is_whole(tmp_path: Path, step: int) -> None:
    old, root = save(tmp_path, 1), tmp_path / "checkpoints"
    process = child(HALFWAY, root, step)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "half\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stdout.close()
    assert (root / f".step-00000{step}.part" / "learner" / "learner.pt").read_bytes() == b"half"
    assert checkpoint.steps(root) == [old]
    assert checkpoint.read(old, RECIPE).state == state(1)
    save(tmp_path, step)
    assert checkpoint.read(root / f"step-00000{step}", RECIPE).state == state(step)
    checkpoint.prune(root, most=1)
    assert [path.name for path in root.iterdir()] == [f"step-00000{step}"]


@pytest.mark.parametrize("moment", range(4))
def test_killed_at_any_moment_the_last_whole_checkpoint_is_there(tmp_path: Path, moment: int) -> None:
    root = tmp_path / "checkpoints"
    process = child(KILLED, tmp_path)
    assert process.stdout is not None
    try:
        for _ in range(2 + moment):
            assert process.stdout.readline()
        time.sleep(0.004 * moment)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        process.stdout.close()
    found = checkpoint.steps(root)
    assert found
    for folder in found:
        read = checkpoint.read(folder, RECIPE)
        assert read.state == state(read.state.step)
        assert (read.learner / "learner.pt").read_bytes() == bytes([read.state.step]) * 2_000_000
    checkpoint.prune(root, most=9)
    assert sorted(root.iterdir()) == found, "what was half written is removed"


def test_one_that_was_being_replaced_is_put_back(tmp_path: Path) -> None:
    folder = save(tmp_path, 1)
    folder.rename(folder.with_name(".step-000001.old"))
    assert checkpoint.newest(tmp_path / "checkpoints") == folder
    assert checkpoint.read(folder, RECIPE).state == state(1)


def test_a_snapshot_of_a_version_given_again_is_another(tmp_path: Path) -> None:
    def write(text: bytes) -> Callable[[Path], None]:
        return lambda folder: (folder / "model.safetensors").write_bytes(text) and None

    first, one = weights.publish(tmp_path, 4, write(b"before the crash"))
    second, two = weights.publish(tmp_path, 4, write(b"after the crash"))
    assert first != second and one.digest != two.digest and one.version == two.version == 4
    assert weights.read(first) == one and weights.read(second) == two
    number = second.stat().st_ino
    again, _ = weights.publish(tmp_path, 4, write(b"after the crash"))
    assert again == second and second.stat().st_ino == number, "who reads it is not disturbed"
    assert weights.prune(tmp_path, keep=[first, second]) == []
    (second / "model.safetensors").write_bytes(b"cut")
    assert weights.read(weights.publish(tmp_path, 4, write(b"after the crash"))[0]) == two
    assert weights.prune(tmp_path, keep=[second]) == [first]
    (second / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(SetupError, match="are damaged: resume from another checkpoint"):
        weights.read(second)


def test_a_snapshot_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No space left"):
        weights.publish(tmp_path, 1, refuse("disk"))
    assert list(tmp_path.iterdir()) == []
