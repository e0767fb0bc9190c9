"""Pages out of templates, and hostile text made harmless to look at.

Decided here: autoescaping is always on and an unknown name in a template is an error. Text of a model, an environment
or a log passes `shown` on its way to a page: what would hide, reorder or steer becomes a visible sign. A page that
stands alone carries its stylesheet and script inside, allowed by their hashes and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import SetupError
from harness.table import count, fraction, percent

if TYPE_CHECKING:
    from jinja2 import Environment

HERE = Path(__file__).parent
PACKAGES = ("jinja2", "vl_convert", "starlette", "uvicorn")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d", re.ASCII)
_HIDDEN = [
    *range(0x7F, 0xA0), 0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2060, 0x2070),
    0xFEFF, *range(0xFFF9, 0xFFFC), *range(0xE0000, 0xE0080),
]  # fmt: skip
_SIGNS = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)},
    **{code: f"⟪U+{code:04X}⟫" for code in _HIDDEN},
    **{code: f"⟪U+{code:04X}⟫" for code in range(0xD800, 0xE000)},
}


def require() -> None:
    """Check that the packages of pages and plots are there. SetupError with the remedy where one is not."""
    for name in PACKAGES:
        if importlib.util.find_spec(name) is None:
            raise SetupError(f"the package '{name}' is missing: pip install 'agent-harness[view]'")


def shown(text: str) -> str:
    r"""Return text with control, bidi and invisible characters as visible signs; newlines and tabs stay.

    Example: "a\x1b[2J\u202e" -> "a␛[2J⟪U+202E⟫".
    """
    return text.translate(_SIGNS)


def seconds(value: float) -> str:
    """Write a duration as a person says it: 0.3 ms, 1.24 s, 3 min 20 s, 2 h 05 min."""
    if value < 1:
        thousandths = value * 1000
        return "<0.1 ms" if thousandths < 0.05 else f"{thousandths:.1f} ms" if value < 0.01 else f"{thousandths:.0f} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def cost(value: float | None) -> str:
    """Write US dollars; an unknown cost is never zero."""
    return "unknown" if value is None else f"${value:,.4f}" if 0 < value < 0.1 else f"${value:,.2f}"


def clock(moment: str) -> str:
    """Shorten an ISO time to minutes: 2026-01-02 03:04 UTC."""
    return f"{moment[:16].replace('T', ' ')} UTC" if _MOMENT.match(moment) else shown(moment)


def environment(*folders: Path) -> Environment:
    """Return the templates' environment, with further folders that are searched first."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, HERE / "templates"]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "clock": clock, "cost": cost, "count": count, "fraction": fraction, "percent": percent, "seconds": seconds,
        "shown": shown,
    }  # fmt: skip
    made.globals |= {
        "stylesheet": stylesheet,
        "script": script,
        "policy_inline": policy_inline,
        "inline": False,
        "scripts": (),
    }
    return made


def render(template: str, /, **values: Any) -> str:
    """Render one of the hub's templates."""
    return _own().get_template(template).render(**values)


@cache
def _own() -> Environment:
    return environment()


@cache
def _static(name: str) -> str:
    return (HERE / "static" / name).read_text(encoding="utf-8")


def stylesheet() -> Any:
    """Return the one stylesheet, to be put into a page as it is."""
    return _trusted(_static("style.css"))


def script(name: str = "view.js") -> Any:
    """Return a script of this package, to be put into a page as it is."""
    return _trusted(_static(name))


def policy_inline(scripts: Sequence[str] = ()) -> str:
    """Return the content security policy of a page that stands alone: its own style and scripts, nothing else.

    `scripts` are those beside the viewer's, by name.
    """
    allowed = " ".join(f"'{_hash(_static(name))}'" for name in ("view.js", *scripts))
    return (
        f"default-src 'none'; style-src '{_hash(_static('style.css'))}'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _trusted(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - a file of this package, never text from outside
