"""The buffer: whole groups only, the first admitted first, none a second time, and the same after a restart."""

from __future__ import annotations

import asyncio
import io

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import SetupError
from tests.training.players import attempt, group, segment
from training.buffer import Buffer, Spent, decode, encode
from training.values import KINDS, Group, Segment
from training.watch import Overdue, Watch


async def test_the_learner_takes_exactly_so_many_groups_the_first_admitted_first() -> None:
    buffer = Buffer(batch=2, bound=6)
    for number in (5, 3, 4, 0):
        buffer.put(group(number))
    watch = Watch()
    assert [one.group_id for one in (await buffer.take(watch, 1)).groups] == [0, 3]
    assert [one.group_id for one in (await buffer.take(watch, 1)).groups] == [4, 5]
    assert len(buffer) == 0


async def test_the_learner_waits_until_a_batch_is_whole() -> None:
    buffer = Buffer(batch=2, bound=2)
    buffer.put(group(0))
    waiting = asyncio.create_task(buffer.take(Watch(), 5))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    buffer.put(group(1))
    assert len((await waiting).groups) == 2


async def test_a_wait_in_vain_ends_with_a_report() -> None:
    out = io.StringIO()
    watch = Watch(out)
    buffer = Buffer(batch=2, bound=2)
    watch.queue("groups complete", lambda: len(buffer))
    buffer.put(group(0))
    with pytest.raises(Overdue, match=r"waiting for 2 complete groups took more than 0\.05 seconds"):
        await buffer.take(watch, 0.05)
    assert "queue groups complete: 1" in out.getvalue()
    assert "test_a_wait_in_vain" in out.getvalue()


async def test_who_waits_hears_that_no_more_will_come() -> None:
    buffer = Buffer(batch=1, bound=1)
    waiting = asyncio.create_task(buffer.take(Watch(), 5))
    await asyncio.sleep(0.01)
    buffer.fail(SetupError("the environment is broken"))
    with pytest.raises(SetupError, match="is broken"):
        await waiting


async def test_a_group_comes_once() -> None:
    buffer = Buffer(batch=1, bound=2)
    buffer.put(group(0))
    with pytest.raises(ValueError, match="second time"):
        buffer.put(group(0))
    await buffer.take(Watch(), 1)
    buffer.give_up(1)
    for number in (0, 1):
        with pytest.raises(ValueError, match="second time"):
            buffer.put(group(number))


def test_more_than_the_admission_rule_allows_is_a_defect() -> None:
    buffer = Buffer(batch=1, bound=1)
    buffer.put(group(0))
    with pytest.raises(ValueError, match="without capacity"):
        buffer.put(group(1))


def test_a_checkpoint_of_a_larger_buffer_is_refused() -> None:
    with pytest.raises(SetupError, match=r"3 groups wait in the checkpoint, .* room for 2: resume with the η"):
        Buffer(batch=1, bound=2, groups=[group(number) for number in range(3)])


@given(st.lists(st.lists(st.integers(0, 40), max_size=5), max_size=8))
def test_spent_ids_are_those_that_were_spent(orders: list[list[int]]) -> None:
    spent, told = Spent(), set[int]()
    for ids in orders:
        spent = spent.spend(ids)
        told |= set(ids)
        assert [each for each in range(50) if each in spent] == sorted(told)
    assert msgspec.json.decode(msgspec.json.encode(spent), type=Spent) == spent


def test_spent_ids_take_no_room_once_all_before_them_are_spent() -> None:
    spent = Spent()
    for start in range(0, 1000, 10):
        spent = spent.spend(reversed(range(start, start + 10)))
    assert spent == Spent(below=1000)


floats = st.floats(-30, 0, width=32)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        mask = [False, *draw(st.lists(st.booleans(), max_size=12))]
        parts.append(
            Segment(
                ids=np.array(draw(st.lists(st.integers(0, 2**40), min_size=len(mask), max_size=len(mask)))),
                mask=np.array(mask),
                logprobs=np.array([draw(floats) if on else 0.0 for on in mask]),
                versions=np.array([draw(st.integers(0, 9)) if on else -1 for on in mask]),
                pools=np.array([draw(st.integers(0, 3)) if on else -1 for on in mask]),
                turns=np.arange(len(mask)),
                mixed_kv=np.array([on and draw(st.booleans()) for on in mask]),
                temperature=draw(st.floats(0.1, 2)),
            )
        )
    members = (
        attempt("env ü", draw(st.floats(-1, 1)), parts, by_agent=draw(st.booleans())),
        attempt("env ü", 0.0, [segment([1])]),
    )
    return Group(group_id=draw(st.integers(0, 99)), env="env ü", task_id="1", attempts=members, admitted_version=3)


@settings(max_examples=50, deadline=None)
@given(groups())
def test_a_group_is_the_same_after_a_restart(one: Group) -> None:
    (again,) = decode(encode([one]))
    assert (again.group_id, again.env, again.admitted_version) == (one.group_id, one.env, one.admitted_version)
    assert {(new.env, new.task_key) for new in again.attempts} == {(one.env, (one.env, one.task_id))}
    for new, old in zip(again.attempts, one.attempts, strict=True):
        assert (new.reward, new.ending, new.by_agent, new.turns) == (old.reward, old.ending, old.by_agent, old.turns)
        assert (new.digest, new.anchors) == (old.digest, old.anchors)
        for left, right in zip(new.segments, old.segments, strict=True):
            assert left.temperature == right.temperature
            for name in KINDS:
                assert getattr(left, name).tobytes() == getattr(right, name).tobytes()
    assert encode([again]) == encode([one])


def test_a_file_that_was_cut_or_added_to_is_refused() -> None:
    whole = encode([group(0)])
    for broken in (*(whole[:cut] for cut in range(1, len(whole))), whole + b"\0"):
        with pytest.raises(SetupError, match="cannot be read"):
            decode(broken)


@given(st.binary(max_size=60))
def test_bytes_of_another_kind_raise_nothing_else(data: bytes) -> None:
    whole = encode([group(0)])
    for broken in (data, whole[: len(data)], whole + data[:1]):
        try:
            decode(broken)
        except SetupError as error:
            assert "cannot be read" in str(error)
