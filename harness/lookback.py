"""Gives a new model weights to look back with, so that it learns to copy in hundreds of steps and not in thousands.

What says again what came after a token the last time is an induction head (Olsson et al. 2022, arXiv 2209.11895): a
head of the first layer looks one token back and keeps what it sees, and one of the second finds by that where this
token stood before, and says what stands there. From weights that are all random, either is of use only once the other
is there, so when they are found is a lottery. Here both begin with weights of that form (as in mimetic initialisation,
Trockman and Kolter 2023, arXiv 2305.09828), which training is as free to change as any other.
"""

from __future__ import annotations

import math
from typing import Any

ROPE_THETA = 1e6
"""Qwen3's own. Half of a head's dimensions then hardly turn within `FAR` tokens, so they can tell what stands there."""
FAR = 700
"""Tokens within which a dimension that tokens are found by turns by a radian at most."""
FAST = 4
"""Pairs of a head's dimensions by which it looks one token back: those that turn by the most a token."""
BACK, FOUND = 30.0, 25.0
"""Attention logits of the token before, and of a token that is sought."""


def prepare(model: Any) -> None:
    """Write the two heads into a Qwen3 model with random weights; draws from torch's generator.

    Args:
        model: transformers' `Qwen3ForCausalLM`, untied, of two layers or more, made with `ROPE_THETA`.
    """
    import torch

    config, embeddings = model.config, model.get_input_embeddings().weight
    hidden, width = config.hidden_size, config.head_dim
    turned = ROPE_THETA ** (-torch.arange(0, width, 2) / width)  # [width / 2] radians a token
    pairs = [pair for pair, radians in enumerate(turned.tolist()) if radians * FAR < 1]
    slow = [*pairs, *(pair + width // 2 for pair in pairs)]
    many = len(slow)
    before, seeker = (model.model.layers[number].self_attn for number in (0, 1))
    drawn = torch.linalg.qr(torch.randn(hidden - 1, min(hidden - 1, 2 * many + width)))[0]  # orthonormal columns
    here, there, said = torch.nn.functional.pad(drawn, (0, 0, 1, 0)).split([many, many, drawn.shape[1] - 2 * many], 1)
    with torch.no_grad():
        # The same for all tokens: by it the first head asks for a place and not for a token.
        embeddings[:, 0] = config.initializer_range * math.sqrt(hidden)
        constant = math.sqrt(hidden / 2)  # what the layer's norm makes of it: it is half of a token's square
        _clear(before, width, BACK)
        for pair in range(FAST):
            strength, angle = math.sqrt(width / FAST) / constant, float(turned[pair])
            before.k_proj.weight[pair, 0] = strength
            before.q_proj.weight[pair, 0] = strength * math.cos(angle)
            before.q_proj.weight[pair + width // 2, 0] = -strength * math.sin(angle)
        read = torch.cat([here, there], 1)  # [hidden, 2 many]
        for writer in (before.o_proj, model.model.layers[0].mlp.down_proj):
            writer.weight -= read @ (read.T @ writer.weight)  # nothing else writes what the second head reads
        written = math.sqrt(2) * config.initializer_range  # an embedding's length, of what the norm makes of it
        before.v_proj.weight[:many] = here.T
        before.o_proj.weight[:, :many] = written * there
        _clear(seeker, width, FOUND)
        seeker.q_proj.weight[slow] = here.T
        seeker.k_proj.weight[slow] = there.T
        seeker.v_proj.weight[: said.shape[1]] = said.T
        seeker.o_proj.weight[:, : said.shape[1]] = written * said
        head = model.get_output_embeddings().weight
        head.copy_(embeddings)
        head[:, 0] = 0


def _clear(attention: Any, width: int, largest: float) -> None:
    """Make a layer's first head write nothing, and its attention logits as large as that."""
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight[:width] = 0
    attention.o_proj.weight[:, :width] = 0
    for norm in (attention.q_norm, attention.k_norm):
        norm.weight.fill_(math.sqrt(largest / math.sqrt(width)))  # of a query and a key as long as sqrt(width)
