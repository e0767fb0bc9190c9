"""Qwen3's forward pass as training on a CPU wants it: less time than `transformers`' takes, and the same values.

Decided here: norms and rotations keep what their gradients need and no more, since beside small matrices the many
passes over activations are what takes the time; the last layer asks only where a token is predicted, where what is
read is long and what is said is short. The weights, and all that has some, are `transformers`' own modules.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

MOST_ASKED = 0.5
"""Share of a row's positions up to which the last layer asks at those alone."""


class Angles(NamedTuple):
    """Of each position."""

    cos: Tensor
    """[rows or 1, 1, length, head]"""
    sin: Tensor
    """As `cos`; its first half negative."""


class Places(NamedTuple):
    """Positions of each row that are asked for, behind each other; rows with fewer are filled up."""

    index: Tensor
    """[rows, most]"""
    valid: Tensor
    """[rows, most] bool: not filled up."""

    def of(self, values: Tensor) -> Tensor:
        """Return what stands at these positions: [rows, length, ...] to [rows, most, ...]."""
        return values[torch.arange(len(values), device=values.device)[:, None], self.index]


def hidden(
    network: Any,
    ids: Tensor,
    asked: Tensor,
    *,
    position_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    checkpointing: bool = False,
) -> Tensor:
    """Return what the head reads at the positions that are asked for, row by row: [n, hidden].

    Args:
        network: a model that fits.
        ids: [rows, length].
        asked: [rows, length] bool.
        position_ids: [rows, length] of each token in its text; None counts from the row's beginning.
        attention_mask: [rows, 1, length, length] bool, which tokens each one sees; None stands for all up to it.
        checkpointing: compute a layer's activations again instead of keeping them.
    """
    model = network.base_model
    stream = model.embed_tokens(ids)  # [rows, length, hidden]
    halved = torch.is_autocast_enabled(ids.device.type)
    dtype = torch.get_autocast_dtype(ids.device.type) if halved else stream.dtype
    positions = torch.arange(ids.shape[1], device=ids.device)[None] if position_ids is None else position_ids
    cos, sin = (each[:, None] for each in model.rotary_emb(stream.float(), positions))
    first, second = sin.chunk(2, -1)
    angles = Angles(cos, torch.cat([-first, second], -1))
    through = partial(checkpoint, _layer, use_reentrant=False) if checkpointing else _layer
    *before, last = model.layers
    for layer in before:
        stream = through(layer, stream, angles, attention_mask, dtype, None)
    places = _places(asked)
    stream = through(last, stream, angles, attention_mask, dtype, places)
    # Each is normalised by itself, so what is left out first costs nothing.
    return _norm(model.norm, stream[asked if places is None else places.valid], dtype)


def _places(asked: Tensor) -> Places | None:
    """Return the positions that are asked for, None where they are many; a row of none has one that is filled up."""
    counts = asked.sum(1)
    most = max(1, int(counts.max()))
    if most > MOST_ASKED * asked.shape[1]:
        return None
    index = asked.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[:, :most]
    return Places(index, torch.arange(most, device=asked.device) < counts[:, None])


def _layer(
    layer: Any, stream: Tensor, angles: Angles, seen: Tensor | None, dtype: torch.dtype, places: Places | None
) -> Tensor:
    """Return what a layer makes of the stream, at the places alone where there are some."""
    attention = layer.self_attn
    read = _norm(layer.input_layernorm, stream, dtype)
    keys = _turned_heads(attention.k_norm, attention.k_proj(read), angles, dtype)
    values = _heads(attention.v_proj(read), attention.head_dim)
    if places is not None:
        length = torch.arange(stream.shape[1], device=stream.device)
        of_places = places.index[:, :, None] >= length if seen is None else places.of(seen[:, 0])
        seen = of_places[:, None]  # [rows, 1, most, length]
        stream, read = places.of(stream), places.of(read)
        angles = Angles(*(places.of(each[:, 0].expand(len(stream), -1, -1))[:, None] for each in angles))
    queries = _turned_heads(attention.q_norm, attention.q_proj(read), angles, dtype)
    found = functional.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=seen,
        is_causal=seen is None,
        scale=attention.scaling,
        enable_gqa=attention.num_key_value_groups > 1,
    )
    stream = stream + attention.o_proj(found.transpose(1, 2).flatten(2))
    return stream + layer.mlp(_norm(layer.post_attention_layernorm, stream, dtype))


def _heads(values: Tensor, size: int) -> Tensor:
    """Return [rows, length, heads * size] as [rows, heads, length, size]."""
    return values.unflatten(-1, (-1, size)).transpose(1, 2)


def _turned_heads(norm: Any, values: Tensor, angles: Angles, dtype: torch.dtype) -> Tensor:
    """Return heads normalised and turned: [rows, heads, length, size]."""
    # In this order in memory, since attention gives its gradient back in it.
    heads = _heads(values, angles.cos.shape[-1]).to(torch.float32, memory_format=torch.contiguous_format)
    return _Turned.apply(_norm(norm, heads, torch.float32), angles.cos, angles.sin, dtype)


def _norm(module: Any, values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return values [..., size] divided by their root mean square, times the module's weight."""
    return _Normed.apply(values, module.weight, module.variance_epsilon, dtype)


class _Normed(torch.autograd.Function):  # type: ignore[misc]
    """RMSNorm (arXiv 1910.07467), computed in float32."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        values = values.float()
        squares = torch.linalg.vector_norm(values, dim=-1, keepdim=True).square_()
        inverse = squares.div_(values.shape[-1]).add_(epsilon).rsqrt_()  # [..., 1]
        ctx.save_for_backward(values, weight, inverse)
        return (values * inverse).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, inverse = ctx.saved_tensors
        given = given.float()
        towards = (values * inverse).mul_(given).flatten(0, -2)
        of_weight = towards.sum(0) if ctx.needs_input_grad[1] else None
        along = (towards @ weight.float()).div_(values.shape[-1]).view_as(inverse).mul_(inverse)
        return (given * weight).addcmul_(values, along, value=-1).mul_(inverse), of_weight, None, None


class _Turned(torch.autograd.Function):  # type: ignore[misc]
    """Rotary position embedding (arXiv 2104.09864) of [..., length, head], first half against second."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turned(values, cos, sin).to(dtype)

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _turned(given.float(), cos, -sin), None, None, None


def _turned(values: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return pairs (a, b), half a head apart, as (a cos - b sin, b cos + a sin); the sine's first half is negative."""
    first, second = values.chunk(2, -1)
    return torch.cat([second, first], -1).mul_(sin).addcmul_(values, cos)
