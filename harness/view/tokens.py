"""The text of sampled tokens, where the model's tokenizer lies on this machine.

A log holds token ids alone. `hf/FOLDER` and `vllm/FOLDER` name a folder; the tokenizer in it is read by the small
`tokenizers` package, and by no code that came with the model. Without either, ids are shown.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.view.conversation import Decode

FILE = "tokenizer.json"
MOST_BYTES = 64 << 20
LOCAL = ("hf/", "vllm/")


def decoder(model: str) -> Decode | None:
    """Return what turns the ids of a model's tokens into text; None where its tokenizer is not at hand."""
    folder = next((model.removeprefix(prefix) for prefix in LOCAL if model.startswith(prefix)), None)
    tokenizer = _tokenizer(folder) if folder else None
    if tokenizer is None:
        return None

    def decode(ids: Sequence[int]) -> list[str]:
        return [tokenizer.decode([number], skip_special_tokens=False) or f"⟨{number}⟩" for number in ids]

    return decode


@lru_cache(maxsize=8)
def _tokenizer(folder: str) -> Any:
    path = Path(folder).expanduser() / FILE
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        return importlib.import_module("tokenizers").Tokenizer.from_file(str(path))
    except Exception:  # the package raises nothing narrower for a file that is no tokenizer
        return None
