"""Train on batches of every kind and size, real and synthetic."""

from __future__ import annotations

import sys
from collections import UserDict, namedtuple
from collections.abc import Iterator
from typing import Any

import torch
from pytorch.base import (
    BATCH,
    CLASSES,
    INPUTS,
    STEPS,
    Case,
    Training,
    alone,
)
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from stallscope.torch import synthetic_like


class Streamed(IterableDataset):
    """Samples of an unknown number."""

    def __init__(self, data: TensorDataset) -> None:
        self._data = data

    def __iter__(self) -> Any:
        return iter(self._data)


class Unmeasured:
    """A sampler without a length."""

    def __iter__(self) -> Any:
        return iter(range(20))


class Overstated(Unmeasured):
    """A sampler that reports more samples than it has."""

    def __len__(self) -> int:
        return 40


def twice(samples: list[Any]) -> Any:
    return default_collate([*samples, *samples])


@alone
def batches_of_every_size(case: Case) -> Any:
    """Train on batches of different sizes; the result is the sizes that the loop saw."""
    training, data = Training(), case.data(2 * BATCH + 8)
    loaders: list[Any] = [
        DataLoader(data, BATCH),
        DataLoader(data, BATCH, shuffle=True),
        DataLoader(data, BATCH, drop_last=True),
        DataLoader(data, BATCH, collate_fn=twice),
        DataLoader(data, batch_sampler=[[0, 1, 2], list(range(30)), [7]]),
        DataLoader(data, BATCH, sampler=Unmeasured()),
        DataLoader(data, BATCH, sampler=Overstated()),
        DataLoader(Streamed(data), BATCH),
        [data[:5], data[5:12]],
    ]
    sizes = []
    with training.logger(case) as log:
        for loader in loaders:
            for batch in log.watch(loader):
                sizes.append(len(batch[0]))
                training.step(batch)
    return training.seen(samples=sizes)


Pair = namedtuple("Pair", ["inputs", "labels"])


class Tokens(UserDict):
    """A mapping that is no dict, as tokenizers return it."""


@alone
def kinds_of_batches(case: Case) -> Any:
    """Count the samples in each kind of batch, and make synthetic data like it."""
    ragged = nn.utils.rnn.pack_sequence([torch.rand(3, 2), torch.rand(1, 2)])
    batches = {
        "pair": (torch.rand(5, 3), torch.tensor([3, 4, 5, 3, 5])),
        "named": Pair(torch.rand(5, 3).double(), torch.randint(4, (5,), dtype=torch.uint8)),
        "dict": {"names": ["a", "b"], "inputs": torch.rand(7, 2).half()},
        "tokens": Tokens(ids=torch.randint(100, (6, 9)), mask=torch.rand(6, 9) > 0.5),
        "nested": [[torch.rand(4, 2), torch.rand(4, 1)], torch.tensor(3.0)],
        "packed": ragged,
        "empty": torch.rand(0, 3),
        "text": ["a", "b"],
        "infinite": torch.tensor([[1.0, float("inf")], [2.0, float("nan")]]),
        "sparse": torch.eye(3).to_sparse(),
    }
    from stallscope.collector.recorder.loop_steps import count_padded, padded_in
    from stallscope.collector.recorder.pytorch.batches import samples_in, shape_in

    seen = {}
    for name, batch in batches.items():
        state = torch.get_rng_state()
        like = next(iter(synthetic_like([batch])))
        assert torch.equal(torch.get_rng_state(), state)
        seen[name] = {
            "samples": samples_in(batch),
            "shape": described(batch),
            "like": described(like),
            "same": same(batch, like),
        }
    ids, mask = torch.ones(2, 5), torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    padded: dict[str, Any] = {
        "mask": {"input_ids": ids, "attention_mask": mask},
        "of a tokenizer": (UserDict(input_ids=ids, attention_mask=mask), torch.ones(2)),
        "lengths": {"inputs": ids, "lengths": torch.tensor([3, 5])},
        # Samples of sound, of which the model makes fewer places.
        "of something else": {"inputs": ids, "lengths": torch.tensor([3000, 5000])},
        "for each pair of places": {"input_ids": ids, "attention_mask": mask[:, None, None]},
        "added to scores": {"input_ids": ids, "attention_mask": (mask - 1.0) * 1e9},
        "elsewhere": {"input_ids": ids, "attention_mask": mask.to("meta")},
        "of KerasHub": {"token_ids": ids, "padding_mask": mask},
        "of fairseq": {"src_tokens": ids, "padding_mask": ~mask.bool()},
        "of NumPy": {"input_ids": ids.numpy(), "attention_mask": mask.numpy()},
        "none": {"input_ids": ids},
        "a tensor": ids,
    }
    labels, ids = torch.ones(2), torch.ones(2, 5)
    sized = {
        "labels first": {"labels": labels, "input_ids": ids},
        "labels first, of a tokenizer": UserDict(labels=labels, input_ids=ids),
        "labels first, and edges": {"labels": labels, "edges": torch.ones(7, 2)},
        "labels alone": {"labels": labels},
        "labels first in a list": [labels, ids],
    }
    tokens = synthetic_like([batches["pair"]])
    labels = next(iter(tokens))[1]
    return {
        "weights": "",
        "ours": [],
        "kinds": seen,
        "padding": {name: count_padded(padded_in(batch)) for name, batch in padded.items()},
        "shapes": {name: list(shape_in(batch) or ()) for name, batch in sized.items()},
        "labels": sorted(set(labels.tolist())),
        "length": len(tokens),
        "batches": len(list(tokens)),
    }


def described(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor):
        return [str(batch.dtype), str(batch.layout), list(batch.shape)]
    if isinstance(batch, (dict, UserDict)):
        return [type(batch).__name__, {key: described(value) for key, value in batch.items()}]
    if isinstance(batch, (list, tuple)):
        return [type(batch).__name__, [described(value) for value in batch]]
    return batch


def same(batch: Any, like: Any) -> bool:
    """Return whether the first tensor of both has the same numbers."""
    if isinstance(batch, torch.Tensor):
        return torch.equal(batch.to_dense(), like.to_dense())
    if isinstance(batch, (dict, UserDict)):
        batch, like = list(batch.values())[-1:], list(like.values())[-1:]
    return same(batch[0], like[0]) if isinstance(batch, (list, tuple)) else batch == like


class Endless(IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield torch.rand(INPUTS), torch.randint(CLASSES, ()).item()


@alone
def synthetic_run(case: Case) -> Any:
    """Train on synthetic data, as long as the real data, or endless if that has no length."""
    training = Training()
    real = case.loader(num_workers=1, shuffle=True)
    endless = synthetic_like(DataLoader(Endless(), BATCH))
    with training.logger(case, synthetic=True) as log:
        for batch in log.watch(synthetic_like(real)):
            training.step(batch)
        for iteration, batch in enumerate(log.watch(endless)):
            training.step(batch)
            if iteration == STEPS - 1:
                break
    return training.seen(
        sampler=type(synthetic_like(real).sampler).__name__, horovod="horovod" in sys.modules
    )
