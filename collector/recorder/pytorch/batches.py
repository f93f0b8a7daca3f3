"""The samples and the memory of a batch of any structure, and random batches of the same."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Iterable, Iterator, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..input.loader_wrappers import LOST, UNKNOWN_KIND, BatchReader, Memory, RepeatedBatch

# Old versions have it in another module.
_default_collate = getattr(torch.utils.data, "default_collate", None)

_SEED = 20240229


def samples_in(batch: Any) -> Optional[int]:
    """Return the samples in a batch: the first dimension of the first tensor that has one, or None."""
    return samples_of(shape_in(batch))


def samples_of(shape: Optional[Sequence[int]]) -> Optional[int]:
    """Return the samples of a batch with this ``shape_in``."""
    return int(shape[0]) if shape else None


def shape_in(batch: Any) -> Optional[Sequence[int]]:
    """Return the shape of the first tensor in a batch that has dimensions; empty or None without any.

    Labels come first in some mappings, and one number per sample does not tell how long samples are:
    there it is the first tensor with more dimensions, if it has as many samples.

    The number of samples can be computed from it later; only the shape is read during training.
    """
    if batch is None:
        return None
    # The usual kinds of batch. Training has just filled the caches, so calls are slow.
    kind, first = type(batch), batch
    if (kind is list or kind is tuple) and batch:
        first = batch[0]
    elif kind is dict and batch:
        first = next(iter(batch.values()))
    shape: Sequence[int] = first.shape if type(first) is Tensor else ()
    if shape and (len(shape) > 1 or kind is not dict):
        return shape
    if isinstance(batch, Tensor):
        return tuple(batch.shape)
    if isinstance(batch, torch.nn.utils.rnn.PackedSequence):
        return [int(batch.batch_sizes[0])]
    members: Iterable[Any] = ()
    if isinstance(batch, Mapping):
        members = batch.values()
    elif isinstance(batch, (list, tuple)):
        members = batch
    shapes = filter(None, map(shape_in, members))
    shape = next(shapes, ())
    if len(shape) == 1 and isinstance(batch, Mapping):
        return next((more for more in shapes if len(more) > 1 and more[0] == shape[0]), shape)
    return shape or None


def full_batches(loader: Any) -> Tuple[int, Optional[Sequence[int]]]:
    """Return the number of batches at the start that are certainly full, and the start of their shape.

    A tensor makes its shape anew for every caller, which is half the cost of an iteration. The shape is
    known for torch's own loader with its own collate function, also in Accelerate's. Elsewhere the
    result is 0.
    """
    ranks = 1
    if _is_accelerates(loader, "DataLoaderShard") and not loader.skip_batches:
        loader = getattr(loader, "base_dataloader", loader)
    batches: Any = getattr(loader, "batch_sampler", None)
    if _is_accelerates(batches, "BatchSamplerShard") and not batches.split_batches:
        ranks, batches = batches.num_processes, batches.batch_sampler
    if (
        type(loader) is not DataLoader
        or type(batches) is not BatchSampler
        or isinstance(loader.dataset, IterableDataset)
        or loader.collate_fn is not _default_collate
        # Workers may deliver the last batch early.
        or not getattr(loader, "in_order", True)
        # One sample may have any shape; several of them are stacked, and have the same.
        or batches.batch_size == 1
    ):
        return 0, None
    # A custom sampler may give fewer samples than its length says, or have no length.
    if not type(batches.sampler).__module__.startswith(("torch.", "accelerate.")):
        return 0, None
    try:
        return len(batches.sampler) // batches.batch_size // ranks, (batches.batch_size,)
    except Exception:
        # Most samplers call the data set, which is user code.
        return 0, None


def _is_accelerates(part: Any, name: str) -> bool:
    kind = type(part)
    return kind.__name__ == name and kind.__module__ == "accelerate.data_loader"


# -- Fetch batches ahead: which loaders allow it, and how much memory that takes ------------------

#: Loaders of Ray Train and timm, which take the next batch before they give one.
AHEAD_BY_ONE = ("_WrappedDataLoader", "PrefetchLoader")
# Where these, and Lightning Fabric's, have the loader whose batches they give.
_INNER = {
    "_FabricDataLoader": "_dataloader",
    "_WrappedDataLoader": "_dataloader",
    "PrefetchLoader": "loader",
}
# Batches in objects in objects; deeper ones are not looked for.
_DEEPEST = 6


def innermost_loader(loader: Any) -> Any:
    """Return the loader inside of that of Lightning Fabric, Ray Train or timm, or of the rest of a loop.

    Batches come out in the order of that loader.
    """
    if hasattr(type(loader), "batches_before"):
        return innermost_loader(loader._loader)
    inner = _INNER.get(type(loader).__name__)
    return loader if inner is None else getattr(loader, inner, loader)


def why_not_ahead(loader: Any, is_named: bool) -> Optional[str]:
    """Return why a loader's batches cannot be fetched ahead; None if they can.

    Args:
        loader: what the training iterates over.
        is_named: whether the user wants it for this loader; otherwise unknown kinds are refused.
    """
    loader = innermost_loader(loader)
    kind = type(loader).__name__
    if isinstance(loader, SyntheticLoader):
        return "the data is synthetic"
    if hasattr(loader, "__next__"):
        return LOST % kind
    if kind == "DataLoaderDispatcher":
        return "rank 0 sends the batches of all ranks, in collectives"
    if hasattr(getattr(loader, "base_dataloader", loader), "state_dict"):
        return "a checkpoint of %s would count batches that were fetched and not trained" % kind
    if isinstance(loader, DataLoader):
        return _why_not_dataset(loader)
    if is_named or isinstance(loader, (list, tuple)) or type(loader).__module__ == _PETASTORM:
        return None
    return UNKNOWN_KIND % kind


_PETASTORM = "petastorm.pytorch"


def _why_not_dataset(loader: "DataLoader[Any]") -> Optional[str]:
    dataset, kind = loader.dataset, type(loader.dataset).__name__
    if hasattr(loader, "end_of_dataloader") and not hasattr(dataset, "__len__"):
        return "Accelerate marks the last batch when it is fetched, and %s has no length" % kind
    if not loader.num_workers and hasattr(dataset, "__next__"):
        return LOST % kind
    return None


def _batches_ready(loader: Any) -> Optional[int]:
    """Return the batches that a loader's workers keep ready; None where that is unknown."""
    loader = innermost_loader(loader)
    if isinstance(loader, (list, tuple)):
        return 0
    if not isinstance(loader, DataLoader):
        return None
    return int(loader.num_workers * (loader.prefetch_factor or 2))


def _kept_back(loader: Any) -> int:
    """Return the last batches of an epoch that must not be fetched ahead.

    Accelerate updates the model at the end of an epoch, and takes that from the last fetch.
    """
    before = getattr(type(loader), "batches_before", 0)
    return before + (2 if hasattr(loader, "end_of_dataloader") else 0)


def memory_of(batch: Any) -> Memory:
    """Return the bytes of a batch's tensors and arrays, and their addresses."""
    size = 0
    addresses: Set[int] = set()
    for array in _arrays_in(batch, _DEEPEST):
        if isinstance(array, Tensor):
            held = array.untyped_storage() if hasattr(array, "untyped_storage") else array.storage()
            address, held_bytes = held.data_ptr(), held.nbytes()
        else:
            address, held_bytes = array.ctypes.data, array.nbytes
        if held_bytes and address not in addresses:
            addresses.add(address)
            size += held_bytes
    return Memory(size, addresses)


def _arrays_in(structure: Any, deepest: int) -> Iterator[Any]:
    """Yield the dense tensors and NumPy arrays in a batch of any structure."""
    if isinstance(structure, Tensor):
        if structure.layout is torch.strided:
            yield structure
        elif structure.layout is torch.sparse_coo:
            yield structure._indices()
            yield structure._values()
    elif hasattr(structure, "nbytes") and hasattr(structure, "ctypes"):
        yield structure
    elif deepest:
        members: Iterable[Any] = ()
        if isinstance(structure, Mapping):
            members = structure.values()
        elif isinstance(structure, (list, tuple)):
            members = structure
        elif hasattr(structure, "__dict__"):
            members = vars(structure).values()
        for member in members:
            yield from _arrays_in(member, deepest - 1)


def _random_states() -> Any:
    cuda = torch.cuda
    on_device = (
        cuda.get_rng_state().tolist()
        if cuda.is_available() and cuda.is_initialized() and not cuda.is_current_stream_capturing()
        else None
    )
    return torch.get_rng_state().tolist(), on_device


READER = BatchReader(why_not_ahead, memory_of, _batches_ready, _kept_back, _random_states)


# -- Random data in the shape of real data, as input of a baseline run ----------------------------


def synthetic_like(loader: Iterable[Any]) -> "SyntheticLoader":
    """Make random batches with the same structure, shapes and dtypes as the loader's, held in memory.

    They are modelled on one real batch, and integers stay within its range, so that labels stay valid.
    One random batch is repeated; torch's random state is restored.

    Args:
        loader: a ``DataLoader``, or any other iterable of batches.

    Returns:
        A loader as long as the real one where that has a length, otherwise endless. All its other
        attributes, such as the sampler, are the real loader's.

    Raises:
        ValueError: if the loader has no batch.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            real = next(iter(loader))
        except StopIteration:
            raise ValueError("the loader has no batch to take shapes from") from None
    return SyntheticLoader(loader, _random_like(real, torch.Generator().manual_seed(_SEED)))


class SyntheticLoader(RepeatedBatch):
    """Repeats one batch, with the real loader's attributes."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # missing while a copy is made
            raise AttributeError(name)
        return getattr(self._real, name)


def _random_like(structure: Any, generator: torch.Generator) -> Any:
    if isinstance(structure, torch.Tensor):
        return _random_tensor(structure, generator)
    if isinstance(structure, Mapping):
        values = {key: _random_like(value, generator) for key, value in structure.items()}
        if isinstance(structure, dict):
            like = copy.copy(structure)
            like.update(values)
            return like
        return type(structure)(values)  # type: ignore[call-arg]  # a tokenizer's batch takes a dict
    if isinstance(structure, torch.nn.utils.rnn.PackedSequence):
        return structure._replace(data=_random_tensor(structure.data, generator))
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*[_random_like(value, generator) for value in structure])
    if isinstance(structure, (list, tuple)):
        return type(structure)([_random_like(value, generator) for value in structure])
    # Numbers, text and objects of other libraries.
    return structure


def _random_tensor(real: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Make a random tensor on the same device, in pinned memory where the real one is."""
    # Keep sparse tensors: the positions of their values decide how much work there is.
    if real.numel() == 0 or real.layout is not torch.strided:
        return real
    flat = real.detach().cpu().reshape(-1)
    order = torch.randperm(flat.numel(), generator=generator)
    if flat.dtype.is_floating_point:
        finite = flat[flat.isfinite()].double()
        low, high = finite.aminmax() if finite.numel() else (0.0, 1.0)
        random = torch.rand(flat.shape, generator=generator, dtype=torch.float64)
        values = (low + (high - low) * random).to(flat.dtype)
    elif flat.dtype.is_complex or flat.dtype is torch.bool:
        values = flat[order]
    else:
        low, high = flat.min(), flat.max()
        values = torch.randint(int(low), int(high) + 1, flat.shape, generator=generator)
        values = values.to(flat.dtype)
    values = values.reshape(real.shape).to(real.device)
    return values.pin_memory() if real.is_pinned() else values
