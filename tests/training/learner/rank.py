"""One rank of a learner: `python -m tests.training.learner.rank BACKEND MODEL STORE OUT RANK RANKS OPTIONS`."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import torch
from torch import distributed

from tests.training import making
from training import learner
from training.learner.options import LearnerOptions

DEADLINE = timedelta(seconds=120)


def main() -> None:
    backend, model, store, out, rank, ranks, options = sys.argv[1:]
    torch.set_num_threads(1)
    os.environ |= {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank}
    if backend == "deepspeed" or int(ranks) > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(ranks), timeout=DEADLINE
        )
    settings = {"device": "cpu", "lr": 1e-3, "warmup": 0, "minibatches": 2, "micro_tokens": 64}
    wanted = msgspec.convert({**settings, **json.loads(options)}, LearnerOptions)
    one = learner.make(backend, Path(model), wanted)
    samples, gold = making.samples(9), making.samples(3, seed=2)
    metrics = [one.update(samples, version, gold) for version in range(2)]
    folder = Path(out)
    folder.mkdir(exist_ok=True)
    one.save(folder)
    if distributed.is_initialized():
        distributed.barrier()  # rank 0 may still be writing
    again = learner.make(backend, Path(model), wanted)
    again.load(folder)
    metrics += [one.update(samples, 2, gold), again.update(samples, 2, gold)]
    weights = {name: each.detach().cpu() for name, each in one.weights().items()}
    if rank == "0":
        torch.save(weights, folder / "weights.pt")
        (folder / "metrics.json").write_text(json.dumps(metrics))
    if distributed.is_initialized():
        distributed.barrier()
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # A thread of gloo may let go of a tensor while the interpreter ends, and that aborts (pytorch/pytorch#179291).
    os._exit(0)
