"""The bundled shops and goals: what a split holds, what makes a goal fair, and that splits share nothing."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import islice

import pytest

from envs.webshop import gold, tasks
from envs.webshop.data import Goal, Product, of
from envs.webshop.env import make
from envs.webshop.generate.shops import products
from envs.webshop.generate.words import Split, range_of, wording_of
from envs.webshop.reward import has_attribute, normalized, reward
from envs.webshop.similarity import matches
from harness.core import EnvOptions, Task
from harness.errors import EnvError, SetupError
from harness.registry import make_agent
from harness.validate import mean, play

SPLITS: tuple[Split, ...] = ("test", "validation", "train")
SMALL = {"a", "and", "at", "by", "can", "does", "for", "in", "into", "is", "it", "no", "not", "of", "on", "one", "out"}
SMALL |= {"that", "the", "to", "up", "was", "with"}


def goals(split: str, most: int = 40) -> list[tuple[Task, Goal]]:
    return [(task, of(task).goal) for task in islice(tasks.tasks(split), most)]


@pytest.mark.parametrize("split", SPLITS)
def test_shop_is_large_and_its_products_are_like_no_other(split: Split) -> None:
    sold = products(split)
    assert len(sold) >= 2000
    assert len({product.department for product in sold}) >= 20
    assert len({product.asin for product in sold}) == len(sold)
    assert len({product.title for product in sold}) == len(sold)
    assert all(re.fullmatch(r"B0[0-9A-Z]{8}", product.asin) for product in sold)
    offered = [text for product in sold for name, values in product.options.items() for text in (name, *values)]
    assert all(text == text.lower() and not set(text) & set("[]\n") for text in offered)


@pytest.mark.parametrize("split", SPLITS)
def test_what_is_true_of_a_product_is_found_on_its_pages_and_nothing_else_is(split: Split) -> None:
    attributes = {category.name.lower(): tuple(category.attributes) for category in range_of(split).categories}
    for product in products(split):
        for attribute in attributes[product.department]:
            assert has_attribute(product, attribute) == (attribute in product.attributes), (product, attribute)
        pages = " ".join((product.title, product.description, *product.bullets)).lower()
        assert all(attribute in pages for attribute in product.attributes)


@pytest.mark.parametrize("split", SPLITS)
def test_values_of_a_department_cannot_be_taken_for_one_another(split: Split) -> None:
    for category in range_of(split).categories:
        values = [value for name in category.options for value in category.options[name]]
        for one, other in itertools.combinations(values, 2):
            assert not matches(normalized(one), normalized(other)), (category.name, one, other)
        for one, other in itertools.combinations(category.attributes, 2):
            assert not matches(one, other), (category.name, one, other)
        for name, offered in category.options.items():  # upstream's rules compare a wanted option as a printed pair
            for wanted, chosen in itertools.product(offered, offered):
                same = matches(normalized(chosen), str((name, wanted)), "upstream")
                assert same == (wanted == chosen), (category.name, wanted, chosen)


@pytest.mark.parametrize("split", SPLITS)
def test_customers_do_not_use_the_shops_words(split: Split) -> None:
    for category in range_of(split).categories:
        for attribute, told in category.attributes.items():
            shared = set(attribute.split()) & set(re.findall(r"[a-z]+", told)) - SMALL
            assert not shared, (category.name, attribute, told)


@pytest.mark.parametrize("split", SPLITS)
def test_families_differ_by_one_thing(split: Split) -> None:
    """Each product has some of its kind that miss one of all that is true of it."""
    by_kind: dict[str, list[Product]] = defaultdict(list)
    for product in products(split):
        by_kind[product.query].append(product)
    for product in products(split)[::40]:
        near = [each for each in by_kind[product.query] if len(set(product.attributes) - set(each.attributes)) <= 1]
        assert len(near) >= 5


def test_splits_share_no_brand_no_department_and_no_kind_of_thing() -> None:
    ranges = [range_of(split) for split in SPLITS]
    for one, other in itertools.combinations(ranges, 2):
        assert not set(one.brands) & set(other.brands)
        assert not set(one.models) & set(other.models)
        assert not {category.name for category in one.categories} & {category.name for category in other.categories}
        nouns = [{kind.noun for category in each.categories for kind in category.kinds} for each in (one, other)]
        assert not nouns[0] & nouns[1]
    told = [wording_of(split) for split in SPLITS]
    for wording, another in itertools.combinations(told, 2):
        for part in ("opening", "manner", "choice", "bound"):
            assert not set(getattr(wording, part)) & set(getattr(another, part))
        assert wording.item != another.item


@pytest.mark.parametrize("split", SPLITS)
def test_a_goal_is_right_for_few_products_and_nearly_so_for_more(split: Split) -> None:
    everything = products(split)
    for task, goal in goals(split)[::3]:
        department = [product for product in everything if product.category.startswith(goal.category.split(" › ")[0])]
        paid = Counter(best_pay(product, goal) for product in department)
        assert 1 <= paid[1.0] <= 5, (task.id, paid)
        wishes = len(goal.attributes) + len(goal.options) + 1
        assert sum(count for value, count in paid.items() if abs(value - (wishes - 1) / wishes) < 1e-9) >= 4


def best_pay(product: Product, goal: Goal) -> float:
    chosen = {name: value for name, value in goal.chosen.items() if value in product.options.get(name, ())}
    return reward(product, goal, price=product.prices[-1], chosen=chosen).value


@pytest.mark.parametrize("split", SPLITS)
def test_pasting_is_in_vain_and_the_shops_words_are_not(split: Split) -> None:
    for task, goal in goals(split):
        shop = tasks.catalogue(of(task).catalogue)
        pasted = shop.results(task.instruction, 1).products
        assert goal.asin not in {product.asin for product in pasted}
        assert best_pay(pasted[0], goal) < 1
        assert gold.found(shop, goal.asin, gold.natural(goal)) is not None
        assert goal.query in task.instruction
        assert all(value in task.instruction for value in goal.options)
        assert f"{goal.price_upper:.0f} dollars" in task.instruction
        assert any(attribute not in task.instruction for attribute in goal.attributes)


@pytest.mark.parametrize("split", SPLITS)
async def test_gold_play_buys_what_is_wanted(split: Split) -> None:
    env = make(EnvOptions())
    some = list(islice(env.tasks(split), 120))
    turns: list[int] = []
    played = await play(env, make_agent("scripted/oracle"), some, keep=lambda t: turns.append(len(t.turns)))
    assert mean(played) == 1
    assert min(turns) >= 4
    assert sum(turns) / len(turns) > 4.5


def test_fixed_splits_cover_all_difficulties() -> None:
    for split, most in tasks.COUNT.items():
        found = goals(split, 500)
        assert len(found) == most
        wishes = [len(goal.attributes) + len(goal.options) for _, goal in found]
        assert set(wishes) == {2, 3, 4, 5, 6}
        assert set(wishes[:20]) == set(wishes), "the first tasks are as mixed as all"
        assert abs(sum(wishes[:20]) / 20 - sum(wishes) / most) < 0.5


def test_difficulty_asks_for_more_and_leaves_less_room() -> None:
    def asked(difficulty: float) -> Sequence[Goal]:
        return [of(task).goal for task in islice(tasks.tasks("train", difficulty), 25)]

    easy, hard = asked(0.0), asked(1.0)
    assert {len(goal.attributes) for goal in easy} == {1}
    assert {len(goal.attributes) for goal in hard} >= {3}
    assert max(len(goal.options) for goal in easy) < max(len(goal.options) for goal in hard)
    with pytest.raises(SetupError, match="from 0 to 1"):
        tasks.tasks("test", 1.5)


def test_training_has_no_end_and_moves_on_to_other_shops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "SHOP_TASKS", 3)
    found = list(islice(tasks.tasks("train"), 8))
    assert [of(task).catalogue for task in found] == ["train-0"] * 3 + ["train-1"] * 3 + ["train-2"] * 2
    assert len({task.digest for task in found}) == 8
    first, second = (tasks.catalogue(name) for name in ("train-0", "train-1"))
    assert first.digest != second.digest


@pytest.mark.parametrize("name", ["", "test", "tset-0", "test-x", "test--1", "0-test"])
def test_shop_of_no_such_name(name: str) -> None:
    with pytest.raises(EnvError, match="no bundled shop"):
        tasks.catalogue(name)


def test_seen_splits_are_in_shops_of_trains_kind_that_it_never_comes_to() -> None:
    found = {split: list(islice(tasks.tasks(split, 0.0), 200)) for split in ("train", *tasks.SEEN)}
    shops = {split: {of(task).catalogue for task in each} for split, each in found.items()}
    assert all(name.startswith("train-") for each in shops.values() for name in each)
    assert len(set.union(*shops.values())) == sum(map(len, shops.values()))
    departments = {product.department for product in products("train")}
    assert departments == {product.department for product in products("train", tasks.SEEN["test-seen"])}
    assert [len(found[split]) for split in tasks.SEEN] == [120, 80]
    digests = [task.digest for each in found.values() for task in each]
    assert len(set(digests)) == len(digests)
