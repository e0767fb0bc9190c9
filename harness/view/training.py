"""A training run's live curves, from the plain files that it writes: metrics.jsonl, alarms.jsonl, evaluations/.

Decided here: nothing of the trainer is imported; a number that is absent or no number is a gap. Wall-clock goes on
where a run was taken up, and an update that was made twice counts as it was made last.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import SetupError
from harness.metrics import overall
from harness.table import fraction, percent
from harness.view import plots
from harness.view.library import METRICS, Library, Opened, Place
from harness.view.tasks import link

ALARMS = "alarms.jsonl"
MOST_BYTES = 64 << 20
"""Of a file; of a longer one the end is read."""
MOST_ALARMS = 200
RECENT = 20
"""Updates that the lag histogram is over."""
LIVE_SECONDS = 3.0
AXES = {"updates": "updates", "hours": "hours", "samples": "attempts collected"}
Update = dict[str, Any]


class Plot(msgspec.Struct, frozen=True):
    """One plot, with its numbers."""

    title: str
    svg: Any
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of the run's weights."""

    what: str
    version: int | None
    address: str
    score: float | None
    low: float
    high: float
    coverage: float
    done: int
    planned: int
    envs: dict[str, float]


def page(library: Library, place: Place, axis: str) -> dict[str, Any]:
    """Return the page of a training run."""
    updates = read(place.folder / METRICS)
    scored = evaluations(library, place)
    axis = axis if axis in AXES else "updates"
    return {
        "name": place.name,
        "axis": axis,
        "axes": [(name, title, link("/train", run=place.name, x=name)) for name, title in AXES.items()],
        "updates": updates,
        "last": updates[-1] if updates else {},
        "facts": _facts(place, updates),
        "alarms": alarms(place.folder / ALARMS),
        "plots": list(curves(updates, scored, axis)),
        "evaluations": scored,
        "live": LIVE_SECONDS,
    }


def read(path: Path) -> list[Update]:
    """Return the updates of a run, each once, with running totals of time (`at/hours`) and attempts (`at/samples`)."""
    found: list[Update] = []
    for line in _json_lines(path):
        version = line.get("version")
        if not isinstance(version, int) or isinstance(version, bool):
            continue
        while found and found[-1]["version"] >= version:
            found.pop()
        found.append(line)
    seconds = samples = last = 0.0
    for line in found:
        now = _number(line, "seconds") or 0.0
        seconds += now - last if now >= last else now  # a run that was taken up may count from nought again
        last = now
        samples += _number(line, "attempts") or 0.0
        line |= {"at/hours": seconds / 3600, "at/samples": samples, "at/updates": line["version"]}
    return found


def alarms(path: Path) -> list[dict[str, str]]:
    """Return the alarms of a run, the newest first; `standing` says whether one is not gone."""
    lines = [line for line in _json_lines(path) if isinstance(line.get("name"), str)]
    gone: set[str] = set()
    found = []
    for line in reversed(lines):
        name = line["name"]
        standing = line.get("event") == "raised" and name not in gone
        gone.add(name)
        texts = {key: str(line.get(key, "")) for key in ("version", "event", "name", "cause", "remedy")}
        found.append({**texts, "standing": "yes" if standing else ""})
    return found[:MOST_ALARMS]


def evaluations(library: Library, place: Place) -> list[Evaluation]:
    """Return the evaluations of a training run, those of the oldest weights first."""
    found = []
    for one in library.places().values():
        if one.kind == "run" and one.folder.parent.parent == place.folder:
            try:
                found.append(_evaluation(library.open(one.name)))
            except (SetupError, OSError, KeyError):
                continue  # begun anew at this moment
    return sorted(found, key=lambda each: (-1 if each.version is None else each.version, each.what))


def _evaluation(opened: Opened) -> Evaluation:
    opened.catch_up(0.1)
    what, _, digits = opened.place.folder.name.rpartition("-")
    summaries, progress = opened.summaries() or [], opened.progress
    whole = overall(summaries)
    return Evaluation(
        what=what or digits,
        version=int(digits) if digits.isdecimal() else None,
        address=link("/run", run=opened.place.name),
        score=whole.headline if whole else None,
        low=whole.interval[0] if whole else 0.0,
        high=whole.interval[1] if whole else 1.0,
        coverage=whole.coverage if whole else 0.0,
        done=progress.done,
        planned=progress.planned,
        envs={each.entry: each.headline for each in summaries},
    )


def curves(updates: Sequence[Update], scored: Sequence[Evaluation], axis: str) -> Iterable[Plot]:
    """Yield the plots of a run that have something to show."""
    across = f"at/{axis}"

    def lines(title: str, y: str, keys: dict[str, str], *, share: bool = False, note: str = "") -> Plot | None:
        rows = [
            {"x": line[across], "y": value, "series": name}
            for key, name in keys.items()
            for line in updates
            if (value := _number(line, key)) is not None
        ]
        return _plot(title, rows, lambda: plots.lines(rows, x=AXES[axis], y=y, share=share), AXES[axis], note)

    yield from filter(
        None,
        (
            lines("Success by task", "success", _named(updates, "task/", "/success"), share=True),
            lines(
                "Reward by task", "reward", {**_named(updates, "task/", "/reward"), "reward/mean": "mean of the batch"}
            ),
            _validation(updates, scored, axis),
            lines("Share of the loss by task", "share", _named(updates, "task/", "/loss_share"), share=True),
            lag(updates),
            lines(
                "Throughput",
                "tokens a second",
                {"tokens/generated_per_second": "generated", "tokens/trained_per_second": "trained"},
            ),
            lines("Idle", "share of the time", {"idle/learner": "learner", "idle/engine": "engine"}, share=True),
            lines("Effective sample size", "share of the tokens", {"ess": "ess"}, share=True),
            lines("Surprise of the sampled tokens", "nats a token", {"surprise": "surprise"}),
            lines("Engine against trainer", "k3, nats a token", {"mismatch/k3": "mismatch", "ppo_kl": "ppo kl"}),
            lines("Loss", "loss", {"loss": "loss"}),
            lines("Clipped", "share of the tokens", {"clip/low": "low", "clip/high": "high", "clip/dual": "dual"}),
        ),
    )


def lag(updates: Sequence[Update]) -> Plot | None:
    """Return the histogram of how many versions old the tokens were that were trained on lately, by pool."""
    counts: dict[tuple[int, str], float] = {}
    for line in updates[-RECENT:]:
        for key in line:
            parts = key.split("/")
            if len(parts) == 4 and parts[:2] == ["lag", "trained"] and parts[3].isdecimal():
                place = int(parts[3]), f"pool {parts[2]}"
                counts[place] = counts.get(place, 0.0) + (_number(line, key) or 0.0)
    rows = [{"x": str(age), "y": tokens, "series": pool} for (age, pool), tokens in sorted(counts.items())]
    note = f"Of the last {min(RECENT, len(updates))} updates."
    return _plot("Lag of the trained tokens", rows, lambda: plots.bars(rows, x="versions old", y="tokens"), "lag", note)


def _validation(updates: Sequence[Update], scored: Sequence[Evaluation], axis: str) -> Plot | None:
    """Return the curve of the validation scores, over all environments and each."""
    at = {line["version"]: line[f"at/{axis}"] for line in updates} | {0: 0}
    rows = [
        {"x": at[one.version], "y": value, "series": name}
        for one in scored
        if one.what == "validation" and one.version in at and one.done >= one.planned
        for name, value in ({"overall": one.score} | (one.envs if len(one.envs) > 1 else {})).items()
        if value is not None
    ]
    rows.sort(key=lambda row: row["series"] != "overall")
    return _plot(
        "Validation score", rows, lambda: plots.lines(rows, x=AXES[axis], y="score", share=True), AXES[axis], ""
    )


def _plot(title: str, rows: list[dict[str, Any]], spec: Callable[[], plots.Spec], first: str, note: str) -> Plot | None:
    if not rows:
        return None
    cells = [
        [f"{row['x']:.4g}" if isinstance(row["x"], float) else str(row["x"]), row["series"], f"{row['y']:.5g}"]
        for row in rows
    ]
    return Plot(title, plots.svg(spec()), [first, "series", "value"], cells[-100:], note)


def _facts(place: Place, updates: Sequence[Update]) -> list[tuple[str, str]]:
    if not updates:
        return [("Updates", "none yet")]
    last = updates[-1]
    facts = [
        ("Updates", str(last["version"])),
        ("Wall-clock", f"{last['at/hours']:.2f} h"),
        ("Attempts collected", f"{last['at/samples']:,.0f}"),
    ]
    for title, key, write in (
        ("Reward", "reward/mean", fraction),
        ("Effective sample size", "ess", fraction),
        ("Learner idle", "idle/learner", percent),
        ("Engine idle", "idle/engine", percent),
    ):
        if (value := _number(last, key)) is not None:
            facts.append((title, write(value)))
    return facts


def _named(updates: Sequence[Update], before: str, after: str) -> dict[str, str]:
    """Return key -> name of what was measured of each task."""
    keys = {key for line in updates for key in line if key.startswith(before) and key.endswith(after)}
    return {key: key[len(before) : -len(after)] for key in sorted(keys)}


def _number(line: Update, key: str) -> float | None:
    value = line.get(key)
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good and value is not None else None


def _json_lines(path: Path) -> Iterable[Update]:
    """Yield the objects of a file of JSON lines; a line that is none, a torn last one for one, is passed over."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MOST_BYTES))
            lines = file.read(MOST_BYTES).splitlines()
    except OSError:
        return
    for text in lines:
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            yield line
