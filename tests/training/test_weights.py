"""New weights on their way to an engine: it serves exactly them, and refuses what does not compute what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: pip install -e '.[local]'")
pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[local]'")

import msgspec
import torch

from harness.config import LocalOptions
from harness.errors import ModelError
from harness.models import proof
from harness.models.hf.engine import TransformersSampler, load
from harness.models.local import LocalModel
from harness.models.sampler import Request
from training import weights
from training.policies import PooledSampler, PoolOptions


def published(root: Path, base: Path, version: int) -> Path:
    """Publish the base's weights, moved a little."""
    model = load(base, LocalOptions(dtype="float32", device="cpu"))
    torch.manual_seed(version)
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.02 * torch.randn_like(each))
    folder, _ = weights.publish(root, version, weights.model_writer(model.state_dict(), model, base))
    return folder


async def test_engines_serve_what_was_published_each_pool_its_own(tmp_path: Path, base: Path) -> None:
    options = LocalOptions(dtype="float32", device="cpu")
    engines = [TransformersSampler(base, options) for _ in range(2)]
    sampler = PooledSampler(engines, PoolOptions(stale_interval=2), base)
    folders = {version: published(tmp_path, base, version) for version in (1, 2, 3)}
    request = Request(episode="e", prompt_ids=(5, 6, 7), max_tokens=6, seed=1)
    await sampler.open()
    try:
        for version, folder in folders.items():
            await sampler.update(str(folder), version)
        for engine, version in zip(engines, (3, 2), strict=True):
            sampled = await engine.sample(request)
            assert set(sampled.versions) == {version}
            model = load(folders[version], options)
            ids = torch.tensor([[*request.prompt_ids, *sampled.ids]])
            with torch.inference_mode():
                logprobs = torch.log_softmax(model(input_ids=ids).logits[0, 2:-1], dim=-1)
            own = logprobs.gather(1, ids[0, 3:, None])[:, 0]
            assert torch.allclose(own, torch.tensor(sampled.logprobs), atol=1e-5)
    finally:
        await sampler.close()
    assert weights.prune(tmp_path, [Path(served.folder) for served in sampler.serving]) == [folders[1]]


async def test_weights_that_do_not_compute_what_they_should_are_refused(tmp_path: Path, base: Path) -> None:
    folder = published(tmp_path, base, 1)
    probe = proof.read(folder)
    assert probe is not None
    wrong = msgspec.structs.replace(probe, logprobs=tuple(value - 1 for value in probe.logprobs))
    (folder / proof.FILE).write_bytes(msgspec.json.encode(wrong))
    engine = TransformersSampler(base, LocalOptions(dtype="float32", device="cpu"))
    sampler = PooledSampler([engine], PoolOptions(depth=0), base)
    await sampler.open()
    try:
        with pytest.raises(ModelError, match="does not compute the weights it was given"):
            await sampler.update(str(folder), 1)
    finally:
        await sampler.close()


async def test_a_snapshot_is_a_model_that_can_be_played(tmp_path: Path, base: Path) -> None:
    folder = published(tmp_path, base, 1)
    sampler = TransformersSampler(folder, LocalOptions(dtype="float32", device="cpu"))
    model = LocalModel("snapshot", folder, sampler, LocalOptions())
    assert model.style == "hermes"
    await model.opened()
    await model.close()
