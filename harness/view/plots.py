"""Plots as SVG and PNG, by Vega-Lite inside one package (`vl-convert-python`).

Decided here: equal rows give equal bytes, nothing is fetched, and an SVG holds no style of its own, so that it may
stand in a page under a strict policy. Colours are those of `PALETTE`; the stylesheet maps each to one that suits the
theme.
Text from outside stands in data values and titles only, never in a field name or an expression.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from harness.view.html import shown

if TYPE_CHECKING:
    from markupsafe import Markup

Spec = dict[str, Any]
Row = Mapping[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
VERSION = "5.21"
INK, SOFT, LINE, PAPER = "#1b2430", "#55606e", "#d8dde4", "#ffffff"
PALETTE = ("#2563c9", "#c2410c", "#15803d", "#9333ea", "#b91c6b", "#0e7490", "#854d0e", "#525b68")
"""Series in their order; each reads on white at 3:1 and better."""
WIDTH, HEIGHT = 330, 180
TICKS = 6
LETTER, MOST_LEGEND = 7, 20
"""Width of a letter of a legend, and letters of a name there: a plot stays as wide as it is."""
MOST_POINTS = 60
"""A line with fewer points shows each of them."""
MOST_LABEL = 200
"""Characters of a text in a plot."""
MOST_ROWS = 4_000
"""Longer data is thinned evenly: no eye sees more."""


def svg(spec: Spec) -> Markup:
    """Return a plot as SVG, to stand inside a page."""
    from markupsafe import Markup

    return Markup(_svg(_written(spec)))  # noqa: S704 - made by the renderer, which escapes its texts


@lru_cache(maxsize=256)
def _svg(spec: str) -> str:
    import vl_convert

    text = vl_convert.vegalite_to_svg(spec, vl_version=VERSION, allowed_base_urls=[])
    return str(text).replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def png(spec: Spec, scale: float = 2) -> bytes:
    """Return a plot as PNG, on white."""
    import vl_convert

    white = {**spec, "background": PAPER}
    return bytes(vl_convert.vegalite_to_png(_written(white), vl_version=VERSION, scale=scale))


def _written(spec: Spec) -> str:
    """Write a plot for the renderer, which ends the whole process over a control character in a text."""
    return json.dumps(_harmless(spec), sort_keys=True)


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return shown(value[:MOST_LABEL]).replace("\n", " ").replace("\t", " ")
    if isinstance(value, Mapping):
        return {key: _harmless(one) for key, one in value.items()}
    return [_harmless(one) for one in value] if isinstance(value, list | tuple) else value


def lines(rows: Sequence[Row], *, x: str, y: str, share: bool = False, log: bool = False) -> Spec:
    """Return lines over numbers. Rows have `x`, `y` and `series`; `x` and `y` here are the axes' titles.

    `share` fixes the y axis to 0 … 1, `log` makes it logarithmic.
    """
    longest = max((sum(one["series"] == name for one in rows) for name in _series(rows)), default=0)
    scale: Spec = {"domain": [0, 1]} if share else {"type": "symlog"} if log else _domain([row["y"] for row in rows])
    return _spec(
        rows,
        {"type": "line", "strokeWidth": 2, "point": {"size": 28} if longest <= MOST_POINTS else False},
        {
            "x": {
                "field": "x",
                "type": "quantitative",
                "title": x,
                "scale": {"zero": False},
                "axis": _ticks([row["x"] for row in rows]),
            },
            "y": {"field": "y", "type": "quantitative", "title": y, "scale": scale},
            "color": _colour(rows),
        },
    )


def bars(rows: Sequence[Row], *, x: str, y: str, share: bool = False) -> Spec:
    """Return bars, stacked by series. Rows have `x` (a name), `y` and `series`; `share` makes each stack a whole."""
    order = list(dict.fromkeys(str(row["x"]) for row in rows))
    return _spec(
        rows,
        {"type": "bar"},
        {
            "x": {"field": "x", "type": "nominal", "title": x, "sort": order, "axis": {"labelAngle": 0}},
            "y": {"field": "y", "type": "quantitative", "title": y, "stack": "normalize" if share else "zero"},
            "color": _colour(rows),
        },
    )


def intervals(rows: Sequence[Row], *, x: str) -> Spec:
    """Return values with their intervals, one below the other. Rows: `name`, `low`, `value`, `high`, `series`."""
    place = {"field": "name", "type": "nominal", "title": None, "sort": None}
    domain = {"domain": [0, 1]}
    rule = {
        "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.45},
        "encoding": {
            "x": {"field": "low", "type": "quantitative", "title": x, "scale": domain},
            "x2": {"field": "high"},
            "y": place,
            "color": _colour(rows),
        },
    }
    point = {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
        "encoding": {
            "x": {"field": "value", "type": "quantitative", "title": x, "scale": domain},
            "y": place,
            "color": _colour(rows),
        },
    }
    room = {"left": 28, "right": 4, "top": 4, "bottom": 4}  # a browser's letters may be wider than the renderer's
    return {**_frame(rows), "padding": room, "height": {"step": 24}, "layer": [rule, point]}


def differences(rows: Sequence[Row], *, x: str) -> Spec:
    """Return differences with their intervals and a line at zero. Rows as for `intervals`, from -1 to 1."""
    spec = intervals(rows, x=x)
    reach = max([0.1, *(abs(row[end]) for row in rows for end in ("low", "high"))])
    for layer in spec["layer"]:
        layer["encoding"]["x"] = {**layer["encoding"]["x"], "scale": {"domain": [-reach, reach]}}
    zero = {"mark": {"type": "rule", "color": SOFT, "strokeDash": [3, 3]}, "encoding": {"x": {"datum": 0}}}
    return {**spec, "layer": [zero, *spec["layer"]]}


def pareto(rows: Sequence[Row], *, x: str, y: str) -> Spec:
    """Return cost against score with the front as a line. Rows have `name`, `x`, `y`, `series` and `front` (bool)."""
    across = {"field": "x", "type": "quantitative", "title": x, "scale": {"type": "symlog", "constant": 0.01}}
    up = {"field": "y", "type": "quantitative", "title": y, "scale": {"zero": False}}
    front = [row for row in rows if row["front"]]
    return {
        **_frame(rows),
        "layer": [
            {
                "data": {"values": [dict(row) for row in front]},
                "mark": {"type": "line", "interpolate": "step-after", "color": SOFT, "strokeDash": [4, 3]},
                "encoding": {"x": across, "y": up},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {"x": across, "y": up, "color": _colour(rows)},
            },
            {
                "data": {"values": [dict(row) for row in front]},
                "mark": {"type": "text", "align": "left", "dx": 7, "dy": -6, "color": INK, "limit": 160},
                "encoding": {"x": across, "y": up, "text": {"field": "name"}},
            },
        ],
    }


def _spec(rows: Sequence[Row], mark: Spec, encoding: Spec) -> Spec:
    return {**_frame(rows), "mark": mark, "encoding": encoding}


def _frame(rows: Sequence[Row]) -> Spec:
    return {
        "$schema": SCHEMA,
        "width": WIDTH,
        "height": HEIGHT,
        "background": None,
        "padding": 4,
        "data": {"values": _thinned(rows)},
        "config": _CONFIG,
    }


def _ticks(values: Sequence[float]) -> Spec:
    """Return an axis with few ticks; where a few whole numbers are all there is, with those alone."""
    low, high = min(values, default=0), max(values, default=0)
    if high - low < TICKS and all(isinstance(value, int) for value in values):
        return {"values": list(range(int(low), int(high) + 1)), "format": "d"}
    return {"tickCount": TICKS}


def _domain(values: Sequence[float]) -> Spec:
    """Return a scale around values; of values that are all alike the scale has a width too."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    room = 0.0 if high - low > 1e-9 * abs(high) else max(0.1, abs(high) / 10)
    return {"domain": [low - room, high + room], "nice": True}


def _thinned(rows: Sequence[Row]) -> list[Spec]:
    """Return at most about `MOST_ROWS` rows, each series thinned evenly."""
    step = max(1, -(-len(rows) // MOST_ROWS))
    seen: Counter[str] = Counter()
    kept = []
    for row in rows:
        name = str(row.get("series"))
        if seen[name] % step == 0:
            kept.append(dict(row))
        seen[name] += 1
    return kept


def _series(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["series"]) for row in rows))


def _colour(rows: Sequence[Row]) -> Spec:
    """Return the colours of the series in their order; one series needs no legend."""
    names = _series(rows)
    colours = [PALETTE[place % len(PALETTE)] for place in range(len(names))]
    columns = max(1, min(4, WIDTH // (LETTER * min(max(map(len, names), default=0), MOST_LEGEND) + 24)))
    limit = LETTER * MOST_LEGEND
    legend = {"title": None, "orient": "top", "columns": columns, "labelLimit": limit} if len(names) > 1 else None
    return {"field": "series", "type": "nominal", "scale": {"domain": names, "range": colours}, "legend": legend}


_CONFIG: Spec = {
    "aria": False,
    "font": "Liberation Sans, Arial, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT, "titleColor": INK, "gridColor": LINE, "domainColor": SOFT, "tickColor": SOFT,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 160,
    },
    "legend": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "symbolSize": 80, "columnPadding": 20},
    "line": {"strokeCap": "round"},
}  # fmt: skip
