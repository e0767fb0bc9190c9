"""The model that is trained, and its log-probabilities of given tokens.

Decided here: logits are computed only where a token is trained on; their log-softmax is float32, of logits divided by
the temperature the token was sampled at. There is no dropout, so that what is trained is what was sampled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from harness.errors import SetupError
from harness.models.hf.engine import pretrained
from training import machine
from training.learner import qwen3
from training.learner.options import LearnerOptions, LoraOptions, halves, most_logits, own_passes
from training.packing import Rows

ADAPTER = "default"


class Scorer(nn.Module):  # type: ignore[misc]
    """A causal language model that answers log-probabilities."""

    def __init__(self, network: Any, options: LearnerOptions, *, autocast: bool = True, own: bool = True) -> None:
        """Take a model, and whether passes may be cast here, and be made by `qwen3` where it fits."""
        super().__init__()
        self.network = network
        self._autocast = autocast and halves(options, network.device.type)
        config = network.config
        layers = getattr(config, "layer_types", None) or ()
        self._own = own and own_passes(config.model_type, layers, network.device.type)
        self._checkpointing = options.checkpointing
        self._by_positions = "flash" in str(getattr(network.config, "_attn_implementation", ""))

    def forward(self, rows: Rows) -> Tensor:
        """Return the log-probabilities of the tokens trained on, row by row: [n] float32."""
        device = self.network.device
        ids = torch.from_numpy(rows.ids).to(device)
        trained = torch.from_numpy(rows.trained).to(device)
        temperatures = torch.from_numpy(rows.tokens.temperatures).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=self._autocast):
            before = self._before(rows, ids, trained)  # [n, hidden] what each token is predicted from
            return token_logprobs(self.network.get_output_embeddings(), before, ids[trained], temperatures)

    def _before(self, rows: Rows, ids: Tensor, trained: Tensor) -> Tensor:
        """Return what the head reads where the next token is trained on: [n, hidden]."""
        attention = self._attention(rows, ids.device)
        if self._own:
            asked = functional.pad(trained[:, 1:], (0, 1))
            return qwen3.hidden(self.network, ids, asked, checkpointing=self._checkpointing, **attention)
        hidden = self.network.base_model(input_ids=ids, use_cache=False, **attention)[0]
        return hidden[:, :-1][trained[:, 1:]]

    def _attention(self, rows: Rows, device: torch.device) -> dict[str, Tensor]:
        """Say who sees whom. Padding comes last, so a causal model's own mask keeps it out of sight."""
        if not rows.packed:
            return {}
        positions = torch.from_numpy(rows.positions).to(device)
        if self._by_positions:
            return {"position_ids": positions}
        blocks = torch.from_numpy(rows.blocks).to(device)
        alike = blocks[:, None, :, None] == blocks[:, None, None, :]
        return {"position_ids": positions, "attention_mask": alike.tril()}  # [rows, 1, length, length]


def token_logprobs(head: nn.Module, hidden: Tensor, targets: Tensor, temperatures: Tensor) -> Tensor:
    """Return log softmax(head(hidden) / T) at the targets: [n] float32."""

    def part(hidden: Tensor, targets: Tensor, temperatures: Tensor) -> Tensor:
        logits = head(hidden).float() / temperatures[:, None]
        return -functional.cross_entropy(logits, targets, reduction="none")

    most = max(1, most_logits(hidden.device.type) // int(head.weight.shape[0] or 1))
    if len(targets) <= most:
        return part(hidden, targets, temperatures)
    parts = zip(hidden.split(most), targets.split(most), temperatures.split(most), strict=True)
    return torch.cat([checkpoint(part, *each, use_reentrant=False) for each in parts])


def load(folder: Path, options: LearnerOptions) -> Any:
    """Return the model of a folder, ready to be trained. SetupError where it cannot be loaded."""
    frozen = options.lora is not None and options.precision == "bfloat16"
    dtype = torch.bfloat16 if frozen else torch.float32
    network = pretrained(folder, dtype, device_of(options), " for training")
    if options.lora is not None:
        adapt(network, options.lora, options.seed)
    if options.checkpointing:
        # transformers 5 renames it, and warns of the old name.
        enable = getattr(network, "activation_checkpointing_enable", None) or network.gradient_checkpointing_enable
        enable({"use_reentrant": False})
    without_dropout(network)
    return network.train()


def device_of(options: LearnerOptions) -> torch.device:
    """Return the device to train on. SetupError where torch knows none of that name."""
    name = options.device or machine.default_device()
    try:
        return torch.device(name)
    except RuntimeError:
        raise SetupError(f"torch knows no device '{name}': take 'cpu', or a GPU as in 'cuda:1'") from None


def without_dropout(network: Any) -> None:
    """Switch every dropout off."""
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout", "hidden_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def adapt(network: Any, lora: LoraOptions, seed: int) -> None:
    """Put adapters into a model, in place, and freeze all else: the same on every rank.

    SetupError where PEFT is missing or nothing fits.
    """
    if find_spec("peft") is None:
        raise SetupError("learner.lora needs the package 'peft': pip install -e '.[train]'")
    from peft import LoraConfig, inject_adapter_in_model

    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    try:
        config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, task_type="CAUSAL_LM")
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            inject_adapter_in_model(config, network, ADAPTER)
    except ValueError as error:
        raise SetupError(f"learner.lora cannot be applied: {str(error).splitlines()[0][:200]}") from error
    for name, weights in network.named_parameters():
        if "lora_" in name:
            weights.data = weights.data.float()


@contextmanager
def without_adapters(network: Any) -> Iterator[None]:
    """Let the frozen model speak alone."""
    adapted = [module for module in network.modules() if hasattr(module, "get_delta_weight")]
    for module in adapted:
        module.enable_adapters(False)
    try:
        yield
    finally:
        for module in adapted:
            module.enable_adapters(True)


def merged(
    network: Any,
    whole: Callable[[Sequence[Any]], AbstractContextManager[Any]] = lambda parameters: nullcontext(),
    take: Callable[[Tensor], Tensor] = lambda weights: weights.detach(),
) -> dict[str, Tensor]:
    """Return a model's weights under their own names, adapters added in; what is tied is given once.

    Args:
        network: the model.
        whole: makes parameters that are spread over ranks whole, for a while.
        take: what to keep of a weight.
    """
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for path, module in network.named_modules():
        if "lora_" in path or path.endswith(".base_layer"):
            continue
        adapted = hasattr(module, "get_delta_weight")
        own = module.get_base_layer() if adapted else module
        with whole(list(module.parameters(recurse=adapted))):
            for leaf, weights in own.named_parameters(recurse=False):
                if id(weights) in seen:
                    continue
                seen.add(id(weights))
                delta = module.get_delta_weight(ADAPTER).to(weights.dtype) if adapted and leaf == "weight" else None
                found[f"{path}.{leaf}" if path else leaf] = take(weights if delta is None else weights + delta)
    return found
