"""A run as a person watches it on a terminal: curves, validation scores, speed, lag, alarms.

Decided here: what is shown is what is on disk (`metrics.jsonl`, `alarms.jsonl`, the evaluations), so a run that was
taken up shows all of its past, and nothing of the trainer knows that it is watched. Only what is new is read. Elsewhere
than on a terminal, what the run says is one plain line each.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from harness.cli._display import clock
from harness.core import Json
from training import record, scores
from training.alarms import Alarm
from training.scores import Score

REFRESHES = 2
"""A second."""
SCORES_SECONDS = 2.0
"""Between two looks for new validation scores."""
SAID = 3
"""Lines of what the run says that stay in sight."""
LEAST_CURVE, MOST_CURVE = 8, 100
BARS = "▁▂▃▄▅▆▇█"
RECENT = 10
"""Updates that the speed is measured over."""

Series = list[float]


class Seen(NamedTuple):
    """A run as it stands: all that is drawn."""

    name: str
    steps: int
    last: Mapping[str, Json]
    """The newest line of the metrics; empty before the first update."""
    curves: Mapping[str, Mapping[str, Series]]
    """Environment -> `success` and `reward`, update by update."""
    seconds: Sequence[float]
    """How long the recent updates took."""
    scores: Sequence[Score]
    alarms: Sequence[Alarm]
    said: Sequence[str]
    elapsed: float


class Folder:
    """Reads a run folder as it grows."""

    def __init__(self, folder: Path) -> None:
        self.scores: dict[int, Score] = {}
        self._folder = folder
        self._metrics = Tail(folder / record.LINES)
        self._alarms = Tail(folder / record.ALARMS)
        self._looked = -SCORES_SECONDS
        self._forget()

    def _forget(self) -> None:
        self.last: Mapping[str, Json] = {}
        self.curves: dict[str, dict[str, Series]] = {}
        self.seconds: deque[float] = deque(maxlen=RECENT)
        self.alarms: dict[str, Alarm] = {}

    def look(self) -> bool:
        """Read what is new; return whether there was a new update."""
        lines = self._metrics.new()
        if self._metrics.anew:
            self._forget()
        for line in lines:
            self._update(line)
        self.alarms = record.standing(self._alarms.new(), {} if self._alarms.anew else self.alarms)
        if time.monotonic() - self._looked >= SCORES_SECONDS:
            self.scores |= {score.version: score for score in scores.read(self._folder, skip=self.scores)}
            self._looked = time.monotonic()
        return bool(lines)

    def _update(self, line: Mapping[str, Json]) -> None:
        self.last = line
        self.seconds.append(float(line.get("update/seconds") or 0.0))
        for key, value in line.items():
            env, _, what = key.removeprefix("task/").rpartition("/")
            if key.startswith("task/") and what in ("success", "reward") and isinstance(value, (int, float)):
                self.curves.setdefault(env, {}).setdefault(what, []).append(float(value))


class Tail:
    """The new whole lines of a file that grows, or that another takes the place of."""

    def __init__(self, path: Path) -> None:
        self.anew = False
        """Whether the last call found another file in its place, and read it from its beginning."""
        self._path = path
        self._read = self._number = 0

    def new(self) -> list[dict[str, Json]]:
        """Return the lines since the last call; those that are no JSON are passed over."""
        try:
            with self._path.open("rb") as file:
                number = os.fstat(file.fileno()).st_ino
                self.anew, self._number = number != self._number, number
                self._read = 0 if self.anew else self._read
                file.seek(self._read)
                whole, end, _ = file.read().rpartition(b"\n")
        except OSError:
            self.anew = False
            return []
        self._read += len(whole) + len(end)
        found = []
        for line in whole.splitlines():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            found += [values] if isinstance(values, dict) else []
        return found


class Screen:
    """The picture of a run while it lasts."""

    def __init__(self, folder: Path, name: str, steps: int) -> None:
        self._name = name
        self._steps = steps
        self._folder = Folder(folder)
        self._said: deque[str] = deque(maxlen=SAID)
        self._begun = self._updated = time.monotonic()

    def say(self, line: str) -> None:
        """Show a line of the run's."""
        self._said.append(line)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the run as it stands now."""
        yield draw(self._seen(), options.max_width, console.height)

    def _seen(self) -> Seen:
        if self._folder.look():
            self._updated = time.monotonic()
        since = time.monotonic() - (self._updated if self._folder.last else self._begun)
        return Seen(
            name=self._name,
            steps=self._steps,
            last=self._folder.last,
            curves=self._folder.curves,
            seconds=list(self._folder.seconds),
            scores=[self._folder.scores[version] for version in sorted(self._folder.scores)],
            alarms=list(self._folder.alarms.values()),
            said=list(self._said),
            elapsed=float(self._folder.last.get("seconds") or 0.0) + since,
        )


@contextmanager
def shown(folder: Path, name: str, steps: int, console: Console) -> Iterator[Callable[[str], None]]:
    """Show a run while the block lasts; yields what takes its lines."""
    if not console.is_terminal:
        yield lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    screen = Screen(folder, name, steps)
    # Whatever ends the block, `Live` gives the cursor and the streams back.
    with Live(screen, console=console, refresh_per_second=REFRESHES, vertical_overflow="crop"):
        yield screen.say


def draw(seen: Seen, width: int, height: int = 50) -> RenderableType:
    """Draw a run for a terminal of so many columns and lines."""
    width = max(20, width)
    version = int(seen.last.get("version") or 0)
    title = _title(seen, version)
    fits = title.cell_len + 4 <= width
    parts: list[RenderableType] = [Rule(title, style="dim", align="left") if fits else title]
    parts += [_environments(seen, width)] if seen.curves else []
    if seen.last:
        parts.append(Text("\n".join(_joined(_figures(seen.last), width)), style="cyan"))
    if seen.scores:
        room = max(3, height - 9 - len(seen.curves) - 3 * len(seen.alarms) - SAID)
        parts.append(_validation(seen.scores, width, room))
    for alarm in seen.alarms:
        parts.append(Text.assemble((f"! {alarm.name}", "bold red"), f": {alarm.cause}; ", (alarm.remedy, "green")))
    parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in seen.said]
    return Group(*parts)


def sparkline(values: Sequence[float], width: int, low: float, high: float) -> str:
    """Draw values as a line of bars, at most so wide: the mean of those that share a place."""
    count = min(width, len(values))
    parts = [values[place * len(values) // count : (place + 1) * len(values) // count] for place in range(count)]
    span = (high - low) or 1.0
    shares = [(sum(part) / len(part) - low) / span for part in parts]
    return "".join(BARS[min(len(BARS) - 1, max(0, int(share * len(BARS))))] for share in shares)


def _title(seen: Seen, version: int) -> Text:
    text = Text.assemble((seen.name, "bold"), f" · update {version}/{seen.steps} · {clock(seen.elapsed)}")
    left = seen.steps - version
    if seen.seconds and left > 0:
        text.append(f" · {clock(left * sum(seen.seconds) / len(seen.seconds))} to go")
    return text


def _environments(seen: Seen, width: int) -> Table:
    """Draw each environment's success, and its reward where there is room for both."""
    names = max(len(name) for name in seen.curves)
    both = width >= 100
    name_width = min(names, max(8, width // 5))
    each = (width - name_width - 2) // (2 if both else 1) - 16
    curve = max(LEAST_CURVE, min(MOST_CURVE, each))
    table = Table.grid(padding=(0, 1))
    table.add_column(max_width=name_width, no_wrap=True, overflow="ellipsis", style="bold")
    for name, of in sorted(seen.curves.items()):
        cells = _curve("success", of.get("success", []), curve, 0.0, 1.0, "green")
        if both:
            rewards = of.get("reward", [])
            low, high = min([0.0, *rewards]), max([1.0, *rewards])
            cells += _curve("reward", rewards, curve, low, high, "yellow")
        table.add_row(name, *cells)
    return table


def _curve(what: str, values: Series, width: int, low: float, high: float, style: str) -> list[RenderableType]:
    number = f"{values[-1]:6.3f}" if values else ""
    line = sparkline(values, width, low, high) if values else ""
    return [Text(what, style="dim"), Text(number), Text(line, style=style, no_wrap=True)]


def _figures(last: Mapping[str, Json]) -> list[str]:
    """Return speed, lag and health of the newest update, as far as it tells them."""
    speeds = {what: last.get(f"tokens/{what}_per_second") for what in ("generated", "trained")}
    found = [f"{speed:,.0f} tokens/s {what}" for what, speed in speeds.items() if speed is not None]
    lags = [int(value) for key, value in last.items() if key.startswith("lag/trained/") and key.endswith("/max")]
    means = [value for key, value in last.items() if key == "lag/trained/0/mean"]
    if lags:
        found.append(f"lag {means[0] if means else 0.0:.1f}, at most {max(lags)}")
    found += [f"ESS {last['ess']:.2f}"] if last.get("ess") is not None else []
    for who in ("learner", "engine"):
        if (idle := last.get(f"idle/{who}")) is not None:
            found.append(f"{who} idle {100 * idle:.0f} %")
    if last.get("memory/peak_bytes"):
        found.append(f"{last['memory/peak_bytes'] / 2**30:.1f} GiB")
    return found


def _joined(figures: Sequence[str], width: int) -> list[str]:
    """Join figures to lines, none of them broken."""
    lines: list[str] = []
    for figure in figures:
        if lines and len(lines[-1]) + 3 + len(figure) <= width:
            lines[-1] += f" · {figure}"
        else:
            lines.append(figure)
    return lines


def _validation(found: Sequence[Score], width: int, room: int) -> RenderableType:
    """Draw the score of each checkpoint with its interval; where they are too many, the first, best and newest."""
    best = max(found, key=lambda score: score.score)
    shown = list(found)
    if len(found) > room:
        shown = sorted({score.version: score for score in (found[0], best, *found[-room + 2 :])}.values(), key=_version)
    span = max(LEAST_CURVE, min(60, width - 44))
    table = Table.grid(padding=(0, 1))
    for score in shown:
        mark = "best" if score is best else ""
        cells: list[RenderableType] = [
            Text(f"validation {score.version}" if width >= 50 else f"@{score.version}", style="dim", no_wrap=True),
            f"{score.score:.3f}",
            Text(f"[{score.low:.3f}, {score.high:.3f}]", style="dim", no_wrap=True),
        ]
        cells += [_bar(score, span)] if width >= 60 else []
        table.add_row(*cells, Text(mark, style="green"))
    if len(shown) < len(found):
        return Group(table, Text(f"and {len(found) - len(shown)} between", style="dim"))
    return table


def _version(score: Score) -> int:
    return score.version


def _bar(score: Score, width: int) -> Text:
    """Draw an interval on the line from 0 to 1."""
    places = [min(width - 1, int(value * width)) for value in (score.low, score.score, score.high)]
    line = ["·" if place < places[0] or place > places[2] else "─" for place in range(width)]
    line[places[1]] = "●"
    return Text("".join(line), style="blue", no_wrap=True)
