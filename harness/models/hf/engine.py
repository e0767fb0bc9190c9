"""The sampler over transformers: one thread that owns the model, and asks of it one token of every turn at a time."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from harness.config import LocalOptions
from harness.core import Json
from harness.errors import ModelError, OutOfContext, SetupError
from harness.models import proof
from harness.models.sampler import Refresh, Request, Sampled

KEEP_SHARE = 0.2
"""Of the free memory, what the caches of waiting episodes may take."""
KEEP_MOST = 32 << 30
ADMITTED_EVERY = 8
"""Tokens sampled on a GPU between two admissions of new turns: reading in a few costs as much as so many tokens."""
LARGE = 1 << 28
PART = 1 << 24
"""Bytes of a file that is hashed part by part, side by side, and of such a part."""
HASHERS = 8
SAMPLE_SECONDS = 7200.0
CLOSE_SECONDS = 30.0
WAITING = 100_000
LOADING = threading.Lock()


class TransformersSampler:
    """A model in this process."""

    def __init__(self, folder: Path, options: LocalOptions) -> None:
        self.name = "hf:0"
        self.context = 0
        self._folder = folder
        self._options = options
        self._orders: queue.Queue[Callable[[], None]] = queue.Queue(WAITING)
        self._waiting: list[tuple[Request, Future[Sampled]]] = []
        self._running: dict[str, tuple[Future[Sampled], float]] = {}
        self._thread: threading.Thread | None = None
        self._ended = False
        self._since = 0
        """Tokens sampled of each turn since others were admitted."""
        self._batch: Any = None
        self._dtype = ""
        self._digest = weights_digest(folder)

    async def open(self) -> None:
        """Load the weights. SetupError where they cannot be."""
        model = await asyncio.to_thread(load, self._folder, self._options)
        from harness.models.hf.batch import Batch

        self._dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        own = int(model.config.max_position_embeddings)
        self.context = min(self._options.context or own, own)
        self._batch = Batch(model, self._options.batch, keep_bytes(model))
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    async def sample(self, request: Request) -> Sampled:
        """Sample one turn, together with those of other episodes."""
        if len(request.prompt_ids) + request.max_tokens > self.context:
            raise OutOfContext(
                f"a prompt of {len(request.prompt_ids)} tokens and an answer of {request.max_tokens} do not fit into "
                f"{self.context}"
            )
        if not request.prompt_ids:
            raise ModelError("there is nothing to answer: the prompt has no token")
        future: Future[Sampled] = Future()
        self._order(lambda: self._waiting.append((request, future)))
        try:
            async with asyncio.timeout(SAMPLE_SECONDS):
                return await asyncio.wrap_future(future)
        except (asyncio.CancelledError, TimeoutError):
            self._order(lambda: self._release(request.episode))
            raise

    async def release(self, episode: str) -> None:
        """Forget an episode's cache, and end its turn if one is under way."""
        if self._thread is not None and not self._ended:
            self._order(lambda: self._release(episode))

    async def update(self, weights: Json, version: int, refresh: Refresh = "recompute_kv") -> None:
        """Take the weights of a folder between two tokens. ModelError where they are not those of this model."""
        folder, done = Path(str(weights)), Future[None]()

        def take() -> None:
            try:
                load_weights(self._batch.model, folder)
                self._batch.updated(version, refresh)
                if (expected := proof.read(folder)) is not None:
                    found = proof.measure(self._batch.model, expected.ids)
                    proof.compare(expected, found.logprobs, self._dtype, self.name)
                self._digest = weights_digest(folder)
                done.set_result(None)
            except Exception as error:
                done.set_exception(error)

        self._order(take)
        async with asyncio.timeout(SAMPLE_SECONDS):
            await asyncio.wrap_future(done)

    def protocol(self) -> Mapping[str, Json]:
        """Return what a score depends on."""
        from importlib.metadata import version

        return {
            "engine": "transformers",
            "version": version("transformers"),
            "torch": version("torch"),
            "dtype": self._options.dtype,
            "context": self._options.context,
            "weights": self._digest,
        }

    async def close(self) -> None:
        """End the thread and let go of the model."""
        if self._thread is not None:
            self._order(self._end)
            await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        self._thread, self._batch = None, None

    def _order(self, what: Callable[[], None]) -> None:
        if self._thread is None or self._ended or not self._thread.is_alive():
            raise ModelError("the model is closed")
        try:
            self._orders.put_nowait(what)
        except queue.Full as error:
            raise ModelError(f"more than {WAITING} orders wait for the model") from error

    def _end(self) -> None:
        self._ended = True

    def _work(self) -> None:
        """Carry out orders between tokens, until the end."""
        with own_stream(self._batch.model):
            self._carry_out()

    def _carry_out(self) -> None:
        while not self._ended:
            idle = not (self._batch.busy or self._waiting)
            with contextlib.suppress(queue.Empty):
                while not self._ended:
                    self._orders.get(block=idle)()
                    idle = False
            try:
                self._admit()
                if self._batch.busy:
                    self._since += 1
                    for done in self._batch.step():
                        self._tell(done)
            except Exception as error:  # whatever the model raises is told to who waits
                self._fail(error)
        self._fail(ModelError("the model was closed"))

    def _admit(self) -> None:
        if self._batch.busy and self._batch.records and self._since < ADMITTED_EVERY:
            return
        self._since = 0
        while self._waiting and self._batch.free:
            request, future = self._waiting.pop(0)
            if future.cancelled():
                continue
            self._running[request.episode] = (future, time.monotonic())  # what waited is not charged for that
            self._batch.join(request)

    def _tell(self, done: Any) -> None:
        future, begun = self._running.pop(done.request.episode)
        sampled = Sampled(
            ids=tuple(done.ids),
            logprobs=tuple(done.logprobs),
            versions=tuple(done.versions),
            mixed_kv=tuple(done.mixed) if any(done.mixed) else (),
            finish=done.finish,
            engine=self.name,
            seconds=time.monotonic() - begun,
            cached_tokens=done.cached,
        )
        settle(future, sampled)

    def _release(self, episode: str) -> None:
        self._batch.release(episode)
        if found := self._running.pop(episode, None):
            settle(found[0], ModelError("the turn was given up"))
        self._waiting = [item for item in self._waiting if item[0].episode != episode]

    def _fail(self, error: Exception) -> None:
        text = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        memory = " (lower batch or context, of connection.local or of a recipe's engine)" if "memory" in text else ""
        for episode, (future, _) in list(self._running.items()):
            self._batch.release(episode)
            settle(future, ModelError(f"{self.name}: {text}{memory}"))
        self._running.clear()
        if self._ended:
            for _, future in self._waiting:
                settle(future, ModelError(f"{self.name}: {text}"))
            self._waiting.clear()


def settle(future: Future[Sampled], outcome: Sampled | Exception) -> None:
    """Give an outcome to who waits, if anybody still does."""
    if future.cancelled() or future.done():
        return
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)


def load(folder: Path, options: LocalOptions) -> Any:
    """Return the model in a folder, ready to compute. SetupError names what is wrong with it."""
    import torch

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    named = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    dtype = named.get(options.dtype, torch.float32 if device == "cpu" else "auto")
    model = pretrained(folder, dtype, device).eval()
    window = getattr(model.config, "sliding_window", None)
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds - {"full_attention"} or (window and getattr(model.config, "use_sliding_window", True)):
        raise SetupError(
            f"the model in {folder} has layers of another kind than full attention ({', '.join(sorted(kinds))}): "
            "play it with vllm/"
        )
    return model


def pretrained(folder: Path, dtype: Any, device: Any, purpose: str = "") -> Any:
    """Return the model in a folder, of any architecture that transformers knows, on a device.

    Loads one at a time: transformers takes `tie_weights` out of its own class meanwhile and puts back what it found
    (`initialization.no_tie_weights`), so two loads at once can leave every later model with embeddings and head untied.

    Raises:
        SetupError: it cannot be loaded; `purpose` (` for training`) stands in its sentence.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        # cuDNN's attention plans anew for each shape, and here no two passes have the same: 65 ms instead of 5.
        torch.backends.cuda.enable_cudnn_sdp(False)
        with LOADING:
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        return model.to(device)
    except Exception as error:  # broken files, unknown architectures, too little memory: no common base
        reason = str(error).splitlines()[0][:300] if str(error) else type(error).__name__
        raise SetupError(f"the model in {folder} cannot be loaded{purpose}: {reason}") from error


def load_weights(model: Any, folder: Path) -> None:
    """Copy the safetensors files of a folder into a model. ModelError where they do not fit it."""
    from safetensors.torch import load_file

    state: dict[str, Any] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            state |= load_file(path)
        missing, unexpected = model.load_state_dict(state, strict=False)
    except Exception as error:
        reason = str(error).splitlines()[0][:300]
        raise ModelError(f"the weights in {folder} cannot be taken: {reason}") from error
    tied = set(getattr(model, "all_tied_weights_keys", None) or ())
    if not state or unexpected or set(missing) - tied:
        wrong = "there are none" if not state else next(iter([*unexpected, *(set(missing) - tied)]))
        raise ModelError(f"the weights in {folder} are not those of this model: {wrong}")


def keep_bytes(model: Any) -> int:
    """Return the bytes that the caches of waiting episodes may take."""
    import torch

    device = next(model.parameters()).device
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
    else:
        import os

        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(KEEP_MOST, int(free * KEEP_SHARE))


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 over a folder's weight files: their names, sizes and bytes, or the digests of their parts."""
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        size = path.stat().st_size
        total.update(f"{path.name} {size}\n".encode())
        parts = range(0, size, PART)
        if size < LARGE:
            for start in parts:
                total.update(_part(path, start))
            continue
        with ThreadPoolExecutor(HASHERS) as hashers:
            for digest in hashers.map(lambda start, path=path: hashlib.sha256(_part(path, start)).digest(), parts):
                total.update(digest)
    return total.hexdigest()


def _part(path: Path, start: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(PART)


@contextlib.contextmanager
def own_stream(model: Any) -> Iterator[None]:
    """Let a thread compute beside others on a GPU; on a CPU it does anyway."""
    import torch

    device = next(model.parameters()).device
    if device.type != "cuda":
        yield
        return
    torch.cuda.synchronize(device)  # the weights were put there by another thread
    with torch.cuda.stream(torch.cuda.Stream(device)):
        yield
