"""Collect facts of a model, its optimizer and loader, and of torch's settings."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import torch

from ..job.job_facts import (
    SWITCHED_OFF,
    LearningRates,
    batches_in,
    compression_name,
    gradient_sizes,
    horovod_transports,
    known,
    largest_gathered,
    module_version,
    optimizer_facts,
)
from ..job.world import torch_distributed
from ..session import Session
from ..step_log.line_format import StepRow
from .batches import innermost_loader
from .iterable_sources import loader_in_pipeline
from .loader_pipeline import PoolQueue, queue_of
from .reductions import Reductions, innermost_model
from .sharded import FSDP_PLACES, FULLY_SHARD, is_deepspeed, is_megatron, modules_of, sharding_of

# The number of epochs for which the order of samples is recorded.
_MOST_ORDERS = 8


def parameters_of(optimizer: Any, model: Any) -> List[torch.Tensor]:
    """Return the parameters with reduced gradients; some of them may be frozen."""
    inner = innermost_model(model)
    ddp = isinstance(inner, torch.nn.parallel.DistributedDataParallel)
    # ZeRO's optimizer has flat parts of them, and Megatron-Core's may have copies.
    if optimizer is None or ddp or is_deepspeed(inner) or is_megatron(inner):
        return [] if model is None else list(model.parameters())
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def why_no_timestamps(
    reductions: Reductions, parameters: List[torch.Tensor], stages: bool
) -> Optional[str]:
    """Return why only the host's times are recorded; None where gradients can be timed."""
    if not stages:
        return SWITCHED_OFF
    if not parameters:
        # DeepSpeed's optimizer may show no parameters.
        return reductions.reason or "neither an optimizer nor a model was given"
    kinds = device_types(parameters)
    for kind in kinds:
        if kind != "cpu" and kinds != ["cuda"]:
            return "on %s gradients are ready later than the host can see" % kind.upper()
    if kinds == ["cuda"] and cuda_device(parameters) is None:
        return "the model is spread over several CUDA devices"
    return reductions.reason


def cuda_device(parameters: List[torch.Tensor]) -> Optional[int]:
    """Return the number of the CUDA device of all parameters; None unless there is exactly one."""
    devices = {parameter.device for parameter in parameters}
    return (
        devices.pop().index if len(devices) == 1 and device_types(parameters) == ["cuda"] else None
    )


def model_facts(
    optimizer: Any, model: Any, parameters: List[torch.Tensor], size: int
) -> Dict[str, Any]:
    """Return facts of the model and its optimizer; unknown ones are None."""
    inner = innermost_model(model)
    sharded = known(lambda: sharding_of(innermost_model(model))) is not None
    inner = _megatron_part(inner) if is_megatron(inner) else getattr(inner, "module", inner)
    training = [parameter for parameter in parameters if parameter.requires_grad]
    rate = learning_rate(optimizer)
    return {
        "framework": "pytorch",
        "versions": {
            "torch": str(torch.__version__),
            "horovod": module_version("horovod"),
            "accelerate": module_version("accelerate"),
            "megatron-core": module_version("megatron.core"),
        },
        "model": None if inner is None else type(inner).__name__,
        "parameters": known(lambda: sum(map(_numbers_in, parameters))),
        **optimizer_facts(optimizer, "lr", rate, size),
        "backward_passes_per_step": getattr(optimizer, "backward_passes_per_step", None),
        "compression": known(lambda: _compression(optimizer, model)),
        "bucket_bytes": known(lambda: int(innermost_model(model).bucket_bytes_cap)),
        "gradient_tensors": len(training),
        "sharding": known(lambda: _sharding(innermost_model(model))),
        # Sharded models have no allreduce of such sizes.
        **gradient_sizes(None if sharded else known(lambda: list(map(_bytes, training)))),
        "threads": {
            "inter_op": torch.get_num_interop_threads(),
            "intra_op": torch.get_num_threads(),
        },
        "reduces_with": known(lambda: _reduces_with(optimizer)) if size > 1 else None,
        "devices": [kind.upper() for kind in device_types(parameters)],
    }


def _megatron_part(model: Any) -> Any:
    """Return the first part of a model of Megatron-Core, without its wrappers."""
    part = model[0] if isinstance(model, torch.nn.ModuleList) else model
    while hasattr(part, "module"):
        part = part.module
    return part


def learning_rate(optimizer: Any) -> Optional[float]:
    """Return the current rate of the first parameter group."""
    return known(lambda: float(optimizer.param_groups[0]["lr"]))


def weights(optimizer: Any, parameters: List[torch.Tensor]) -> Optional[Dict[str, Any]]:
    """Return some numbers of the first trained matrix, which are equal on ranks that train one model.

    None where they may differ: with a process set of some ranks only, and with sharded parameters.
    """

    def read() -> Optional[Dict[str, Any]]:
        if getattr(getattr(optimizer, "process_set", None), "process_set_id", 0):
            return None
        for number, parameter in enumerate(parameters):
            # Vectors mostly start as zeros or ones, equal on all ranks anyway.
            if parameter.requires_grad and parameter.dim() > 1:
                if _is_sharded(parameter):
                    # Reading all of it would be a collective.
                    return None
                some = parameter.detach().reshape(-1)[:_SOME_WEIGHTS]
                return {"of": "parameter %d" % number, "values": some.tolist()}
        return None

    return known(read)


def sparse_gradients(
    optimizer: Any, model: Any, parameters: List[torch.Tensor], size: int
) -> Optional[Dict[str, Any]]:
    """Return the gradients that are sparse when they are reduced.

    Read right after a reduction: only the gradient itself shows that it is sparse.
    """

    def read() -> Optional[Dict[str, Any]]:
        horovods = _is_horovod_optimizer(optimizer)
        if all(parameter.grad is None or _is_sharded(parameter) for parameter in parameters):
            return None
        if horovods and getattr(optimizer, "sparse_as_dense", False):
            return largest_gathered([])
        names = _names(optimizer, model)
        gradients = []
        for number, parameter in enumerate(parameters):
            gradient = parameter.grad
            if gradient is not None and gradient.is_sparse:
                # Horovod's have the rows of all ranks by now; others repeat no row.
                rows = round(gradient._nnz() / size) if horovods else None
                name = names.get(id(parameter), "parameter %d" % number)
                shape, itemsize = list(parameter.shape), parameter.element_size()
                gradients.append({"name": name, "shape": shape, "itemsize": itemsize, "rows": rows})
        return largest_gathered(gradients)

    return known(read)


def shuffling(loader: Any) -> Optional[Dict[str, Any]]:
    """Describe the order of a loader's samples; None if it is unknown.

    A ``DistributedSampler`` draws the order from ``seed`` and ``epoch``.
    """
    sampler = getattr(loader, "sampler", None)
    data = torch.utils.data
    # With a custom batch sampler, the loader's sampler is not used.
    batches = getattr(loader, "batch_sampler", None)
    if batches is not None and type(batches) is not data.BatchSampler:
        return None
    if isinstance(sampler, data.distributed.DistributedSampler):
        if sampler.shuffle:
            drawn = [int(sampler.seed), int(sampler.epoch)]
            return {"sampler": "DistributedSampler", "shuffles": True, "drawn": drawn}
        return {"sampler": "DistributedSampler", "shuffles": False}
    if type(sampler) is data.SequentialSampler:
        return {"sampler": "SequentialSampler", "shuffles": False}
    return None


_SOME_WEIGHTS = 8


def _is_horovod_optimizer(optimizer: Any) -> bool:
    """Return whether Horovod reduces this optimizer's gradients."""
    return hasattr(optimizer, "_parameter_names")


def _reduces_with(optimizer: Any) -> Optional[List[str]]:
    """Return the process group's backends, or the libraries that Horovod can reduce with."""
    distributed = torch_distributed()
    if distributed is None or _is_horovod_optimizer(optimizer):
        return horovod_transports()
    return [str(distributed.get_backend())]


def _compression(optimizer: Any, model: Any) -> Optional[str]:
    """Return the gradient compression of Horovod or DistributedDataParallel."""
    if _is_horovod_optimizer(optimizer):
        return compression_name(optimizer._compression)
    model = innermost_model(model)
    dtype = _shards_dtype(model)
    if dtype is not None:
        return dtype
    if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return None
    hooks = model._comm_hooks
    return compression_name(hooks[-1][0]) if hooks else "none"


def _names(optimizer: Any, model: Any) -> Dict[int, str]:
    """Return the parameters' names: Horovod's, otherwise the model's own."""
    if _is_horovod_optimizer(optimizer):
        return {id(parameter): str(name) for parameter, name in optimizer._parameter_names.items()}
    return (
        {}
        if model is None
        else {id(parameter): name for name, parameter in model.named_parameters()}
    )


def _is_sharded(parameter: torch.Tensor) -> bool:
    """Return whether it is a DTensor: each rank has a part of it."""
    return hasattr(parameter, "placements")


def _numbers_in(parameter: torch.Tensor) -> int:
    """Return the size of a parameter, of which ZeRO's stage 3 keeps a part elsewhere."""
    return int(getattr(parameter, "ds_numel", None) or parameter.numel())


def _bytes(parameter: torch.Tensor) -> int:
    return int(parameter.numel() * parameter.element_size())


def _sharding(model: Any) -> Optional[Dict[str, Any]]:
    """Return facts of the sharding; None without one."""
    kind = sharding_of(model)
    if kind is None:
        return None
    groups = _groups_of(model) if kind == FULLY_SHARD else []
    if not groups:
        return {"kind": kind}
    gathers_again = any(group.post_forward_mesh_info is not None for group in groups)
    return {"kind": kind, "reshard_after_forward": gathers_again}


def _shards_dtype(model: Any) -> Optional[str]:
    """Return the 16-bit type in which gradients are reduced, or ``none``; None without a sharding."""
    groups = _groups_of(model)
    if not groups:
        return None
    policy = groups[0].mp_policy
    dtype = policy.reduce_dtype or policy.param_dtype
    return "none" if dtype is None or dtype.itemsize > 2 else str(dtype).replace("torch.", "")


def _groups_of(model: Any) -> List[Any]:
    """Return fully_shard's groups of parameters, gathered together; none where torch hides them."""
    all_groups: List[Any] = []
    for module in modules_of(model, FSDP_PLACES, "FSDPModule"):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:
            groups = [state._fsdp_param_group]
        all_groups += [group for group in groups if group is not None and group not in all_groups]
    return all_groups


def device_types(parameters: List[torch.Tensor]) -> List[str]:
    return sorted({parameter.device.type for parameter in parameters})


def computes_on_host(parameters: List[torch.Tensor]) -> bool:
    """Return whether training computes on CPUs; an optimizer may hide its parameters."""
    kinds = device_types(parameters)
    return kinds == ["cpu"] or (not kinds and not torch.cuda.is_available())


def steps_counted(optimizer: Any) -> int:
    """Return the steps that the optimizer has ever counted; 0 where it counts none, like SGD."""
    states = getattr(optimizer, "state", {}).values()
    counts = [state["step"] for state in states if isinstance(state, dict) and "step" in state]
    # Reading a count from a device would wait for the device.
    on_cpu = [count for count in counts if getattr(count, "is_cpu", True)]
    return max(map(int, on_cpu), default=0)


# -- Record facts that are known only during training: of loaders, epochs and gradients -----------


class LateFacts:
    """Records facts once, or when they change.

    Args:
        session: receives the facts.
        optimizer, model: the user's arguments.
        ranks: the number of processes that train together.
        batch_size: samples per rank and iteration, if the user gave the number.
        of_reductions: returns what the first reduction shows.
    """

    def __init__(
        self,
        session: Session,
        optimizer: Any,
        model: Any,
        ranks: int,
        batch_size: Optional[int],
        of_reductions: Callable[[], Dict[str, Any]],
    ) -> None:
        self._session = session
        self._optimizer = optimizer
        self._model = model
        self._ranks = ranks
        self._batch_size = batch_size
        self._of_reductions = of_reductions
        self._first_step = session.next_step
        self._rates = LearningRates()
        self._loader: Any = None
        self._seen_loader = False
        self._orders: List[Any] = []
        self._pool: Optional[PoolQueue] = None
        # Horovod's optimizer knows how many backward passes it sums; the first step of others shows it.
        self._passes_known = hasattr(optimizer, "backward_passes_per_step")

    def begin_loop(self, loader: Any) -> None:
        """Record the facts of a DataLoader, at the start of the first loop."""
        if not self._seen_loader:
            self._seen_loader = True
            inner = loader_in_pipeline(innermost_loader(loader))
            if type(inner).__name__ == "DeepSpeedDataLoader":
                # It makes one of torch for each loop.
                inner = getattr(inner, "dataloader", inner)
            settings = [getattr(inner, name, None) for name in ("batch_size", "num_workers")]
            batch_size, workers = (value if isinstance(value, int) else None for value in settings)
            self._batch_size = self._batch_size or batch_size
            persistent = getattr(inner, "persistent_workers", None)
            described = {
                "loader_workers": workers,
                "persistent_workers": persistent if isinstance(persistent, bool) else None,
                "batches_per_epoch": batches_in(loader),
            }
            self._session.facts({"batch_size": self._batch_size, **described})
        self._loader = loader
        self._pool = queue_of(loader, self._pool)

    def sample_queue(self) -> None:
        """Count the row groups that wait now, if the loader is Petastorm's."""
        if self._pool is not None:
            self._pool.sample()

    def record_rate(self, epoch: int) -> None:
        """Record the learning rate at the start of a later epoch, if it has changed."""
        changes = self._rates.changed(epoch, learning_rate(self._optimizer))
        if changes is not None:
            self._session.facts({"learning_rates": changes})

    def end_epoch(self) -> None:
        """Record weights once, the orders of samples of the first epochs, and the loader's queue."""
        loader, self._loader = self._loader, None
        facts: Dict[str, Any] = {}
        if not self._orders and self._ranks > 1:
            sample = weights(self._optimizer, parameters_of(self._optimizer, self._model))
            if sample is not None:
                facts["weights"] = {**sample, "after": self._session.next_step - self._first_step}
        if len(self._orders) < _MOST_ORDERS:
            self._orders.append(shuffling(loader))
            facts["orders"] = self._orders[:]
        if self._pool is not None:
            facts["petastorm"] = self._pool.fact()
        if facts:
            self._session.facts(facts)

    def gradients_reduced(self) -> None:
        """Record sparse gradients once, after the first reduction, while the gradients exist."""
        facts = known(self._of_reductions)
        if facts:
            self._session.facts(facts)
        if self._ranks > 1:
            parameters = parameters_of(self._optimizer, self._model)
            gradients = sparse_gradients(self._optimizer, self._model, parameters, self._ranks)
            self._session.facts({"sparse_gradients": gradients})

    def rows_recorded(self, rows: List[StepRow]) -> None:
        """Record samples per batch and batches per step, from the first step, where they are unknown.

        The last batch of an epoch may be smaller.
        """
        for row in rows:
            if not self._passes_known:
                self._passes_known = True
                self._session.facts({"backward_passes_per_step": row.micro})
            if self._batch_size is None and row.samples:
                self._batch_size = row.samples // row.micro
                self._session.facts({"batch_size": self._batch_size})
