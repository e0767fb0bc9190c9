"""A new model looks one token back, and finds where a token stood before, whatever its weights were drawn as."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install -e '.[local]'")
transformers = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[local]'")

from harness import newmodel  # noqa: E402
from harness.core import EnvOptions  # noqa: E402

PERIOD = 250


@pytest.mark.parametrize("shape", ["nano", "tiny", "small"])
@pytest.mark.parametrize("seed", [0, 1])
async def test_a_new_model_has_heads_to_look_back_with(shape: str, seed: int, tmp_path: Path) -> None:
    plays = await newmodel.gold_play("kg", 30, 0, EnvOptions())
    newmodel.make(tmp_path / "model", newmodel.SHAPES[shape]._replace(copies=True), plays, seed=seed)
    model = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "model", attn_implementation="eager")
    once = torch.randint(600, (4, PERIOD), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        attention = model(once.repeat(1, 2), output_attentions=True).attentions
    asking = torch.arange(PERIOD, 2 * PERIOD - 1)
    assert attention[0][:, 0, asking, asking - 1].mean() > 0.9
    assert attention[1][:, 0, asking, asking - PERIOD + 1].mean() > 0.3
