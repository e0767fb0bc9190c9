"""Plots as SVG, of plain values: curves with bands, points, differences with their intervals. No package is needed.

Colours are Okabe and Ito's, which people who see fewer colours tell apart; the same figures give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

import numpy as np

from benchmarks.training.lines import Curve, Floats

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999", "#f0e442")
WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 34, 48
ROW = 16
BARS = 400
"""Width of a plot of differences, beside their names."""
LETTER = 6.6
"""Width of a letter, about."""
NAMES = 26
"""From a plot to the names of its legend."""
SLACK = 20
"""After them: capitals are wider than LETTER."""
POINTS = 60
"""Of a band."""
BANDS = 5
"""As many lie on one another and can be told apart."""


class Band(NamedTuple):
    """A curve and what the seeds span around it."""

    name: str
    xs: Floats
    middle: Floats
    low: Floats
    high: Floats


class Dots(NamedTuple):
    """Points of one colour."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


class Bar(NamedTuple):
    """A difference with its interval."""

    name: str
    middle: float
    low: float
    high: float


class _Frame(NamedTuple):
    """Where values lie on the page."""

    xs: tuple[float, float]
    ys: tuple[float, float]
    width: float = WIDTH
    height: float = HEIGHT
    left: float = LEFT

    def x(self, value: float) -> float:
        low, high = self.xs
        return round(self.left + (value - low) / (high - low) * (self.width - self.left - RIGHT), 1)

    def y(self, value: float) -> float:
        low, high = self.ys
        return round(self.height - BOTTOM - (value - low) / (high - low) * (self.height - TOP - BOTTOM), 1)


def band(name: str, curves: Sequence[Curve], over: str) -> Band | None:
    """Return mean, least and most of the seeds' curves, over `seconds` or `samples`, as far as all of them go."""
    drawn = [(np.array(getattr(each, over), float), np.array(each.values)) for each in curves if len(each.values) > 1]
    if not drawn:
        return None
    xs: Floats = np.linspace(max(x[0] for x, _ in drawn), min(x[-1] for x, _ in drawn), POINTS)
    values = np.stack([np.interp(xs, x, y) for x, y in drawn])
    return Band(name, xs, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def curves(title: str, x_name: str, y_name: str, bands: Sequence[Band]) -> str:
    """Draw curves, with their bands where these are few."""
    if len(bands) > BANDS:
        bands = [each._replace(low=each.middle, high=each.middle) for each in bands]
    frame = _Frame(
        _ends([x for each in bands for x in each.xs]),
        _ends([y for each in bands for y in (*each.low, *each.high)]),
    )
    parts = []
    for colour, each in zip(_colours(len(bands)), bands, strict=True):
        edge = [*zip(each.xs, each.high, strict=True), *reversed([*zip(each.xs, each.low, strict=True)])]
        parts.append(f'<polygon points="{_points(frame, edge)}" fill="{colour}" fill-opacity="0.15"/>')
        line = _points(frame, zip(each.xs, each.middle, strict=True))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return _page(title, frame, [*_axes(frame, x_name, y_name), *parts], [each.name for each in bands])


def points(title: str, x_name: str, y_name: str, dots: Sequence[Dots]) -> str:
    """Draw points."""
    frame = _Frame(_ends([x for each in dots for x in each.xs]), _ends([y for each in dots for y in each.ys]))
    parts = [
        f'<circle cx="{frame.x(x)}" cy="{frame.y(y)}" r="4" fill="{colour}" fill-opacity="0.7"/>'
        for colour, each in zip(_colours(len(dots)), dots, strict=True)
        for x, y in zip(each.xs, each.ys, strict=True)
    ]
    return _page(title, frame, [*_axes(frame, x_name, y_name), *parts], [each.name for each in dots])


def bars(title: str, x_name: str, rows: Sequence[Bar]) -> str:
    """Draw differences with their intervals, one a row, around a line at zero."""
    left = 20 + LETTER * max(len(row.name) for row in rows)
    height = TOP + BOTTOM + 26 * len(rows)
    frame = _Frame(
        _ends([0.0, *(value for row in rows for value in (row.low, row.high))]),
        (0, len(rows)),
        left + BARS,
        height,
        left,
    )
    zero = frame.x(0)
    parts = [f'<line x1="{zero}" x2="{zero}" y1="{TOP}" y2="{height - BOTTOM}" stroke="#666" stroke-dasharray="3 3"/>']
    for place, row in enumerate(rows):
        y = frame.y(len(rows) - place - 0.5)
        parts += [
            f'<line x1="{frame.x(row.low)}" x2="{frame.x(row.high)}" y1="{y}" y2="{y}" stroke="{COLOURS[0]}"/>',
            f'<circle cx="{frame.x(row.middle)}" cy="{y}" r="4" fill="{COLOURS[0]}"/>',
            _text(left - 8, y + 4, row.name, "end"),
        ]
    return _page(title, frame, [*_bottom(frame, x_name), *parts])


def _colours(count: int) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(count)]


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return a little more than what the values span; never nothing."""
    low, high = float(min(values)), float(max(values))
    room = 0.04 * (high - low) or max(abs(high) * 0.1, 0.1)
    return low - room, high + room


def _ticks(ends: tuple[float, float]) -> list[float]:
    """Return about five round values between two ends."""
    span = ends[1] - ends[0]
    step = 10 ** math.floor(math.log10(span / 5))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
    first = math.ceil(ends[0] / step)
    return [round(number * step, 10) for number in range(first, math.floor(ends[1] / step) + 1)]


def _axes(frame: _Frame, x_name: str, y_name: str) -> list[str]:
    parts = _bottom(frame, x_name)
    for tick in _ticks(frame.ys):
        y = frame.y(tick)
        parts.append(f'<line x1="{frame.left}" x2="{frame.width - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(_text(frame.left - 6, y + 4, f"{tick:g}", "end"))
    middle = (TOP + frame.height - BOTTOM) / 2
    turned = f'transform="rotate(-90 14 {middle})"'
    return [*parts, f'<text x="14" y="{middle}" text-anchor="middle" {turned}>{escape(y_name)}</text>']


def _bottom(frame: _Frame, x_name: str) -> list[str]:
    floor = frame.height - BOTTOM
    parts = [f'<line x1="{frame.left}" x2="{frame.width - RIGHT}" y1="{floor}" y2="{floor}" stroke="#666"/>']
    parts += [_text(frame.x(tick), floor + 16, f"{tick:g}", "middle") for tick in _ticks(frame.xs)]
    return [*parts, _text((frame.left + frame.width - RIGHT) / 2, floor + 36, x_name, "middle")]


def _legend(frame: _Frame, names: Sequence[str]) -> list[str]:
    """Draw what each colour is, to the right of the plot."""
    parts = []
    for place, (colour, name) in enumerate(zip(_colours(len(names)), names, strict=True)):
        y = TOP + 8 + ROW * place
        parts.append(f'<rect x="{frame.width + 8}" y="{y - 6}" width="12" height="6" fill="{colour}"/>')
        parts.append(_text(frame.width + NAMES, y, name, "start"))
    return parts


def _points(frame: _Frame, pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{frame.x(float(x))},{frame.y(float(y))}" for x, y in pairs)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{round(x, 1)}" y="{round(y, 1)}" text-anchor="{anchor}">{escape(text)}</text>'


def _page(title: str, frame: _Frame, parts: Sequence[str], legend: Sequence[str] = ()) -> str:
    width = round(frame.width + (NAMES + LETTER * max(map(len, legend)) + SLACK if legend else 0))
    size = f'width="{width}" height="{frame.height}" viewBox="0 0 {width} {frame.height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    ground = f'<rect width="{width}" height="{frame.height}" fill="white"/>'
    name = f'<text x="{frame.width / 2}" y="20" text-anchor="middle" font-size="14">{escape(title)}</text>'
    body = [*parts, *_legend(frame, legend)]
    return "\n".join([head, f"<title>{escape(title)}</title>", ground, name, *body, "</svg>"]) + "\n"
