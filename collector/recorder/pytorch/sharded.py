"""Steps of models whose ranks communicate throughout forward and backward, on CPUs.

That is FSDP (``fully_shard``, ``FullyShardedDataParallel``), DeepSpeed's engines, Megatron-Core, tensor
parallelism and ``torch.distributed.pipelining``. On CPUs a rank that waits for a collective, or for a
message, does nothing else, so its own work is all the other time. All of them wait in ``Work.wait``, or
in ``wait_tensor`` of the functional collectives, which DTensors use. On a device collectives overlap
with compute, which the host cannot see.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch

from ..guards import patch
from ..job.job_facts import known
from ..job.world import torch_distributed
from ..loop_steps import Reduction
from .gradient_timestamps import GradientClock
from .reductions import ForwardHook, Reductions, Report
from .waits import (
    ALL_RANKS,
    NO_NAME,
    Function,
    RoutedRows,
    Waits,
    WaitsByGroup,
    group_name,
    process_groups,
    timed_batches,
    watch_operator,
)

#: What *ready* means in these steps: the start of the last wait, less all other waits.
OWN_WORK = "own work"
FULLY_SHARD, FSDP_1 = "fully_shard", "FullyShardedDataParallel"
DEEPSPEED, MEGATRON = "DeepSpeed", "Megatron-Core"
TENSOR_PARALLEL, PIPELINE = "tensor parallel", "pipeline"
#: Where torch has had the class of modules that fully_shard has sharded.
FSDP_PLACES = ("torch.distributed.fsdp", "torch.distributed._composable.fsdp")
_SCHEDULES = "torch.distributed.pipelining.schedules"
_STAGES = "torch.distributed.pipelining.stage"
_MEGATRON_MODULES = "megatron.core.transformer.module"
_MEGATRON_SCHEDULES = "megatron.core.pipeline_parallel.schedules"
_MEGATRON_STATE = "megatron.core.parallel_state"
# Where Megatron-Core has this rank's group of each dimension of its mesh.
_MEGATRON_GROUPS = {
    "tp": "_TENSOR_MODEL_PARALLEL_GROUP",
    "pp": "_PIPELINE_MODEL_PARALLEL_GROUP",
    "cp": "_CONTEXT_PARALLEL_GROUP",
    "dp": "_DATA_PARALLEL_GROUP",
    "ep": "_EXPERT_MODEL_PARALLEL_GROUP",
}
# Before these steps, ranks connect and fill their caches: their waits are not typical.
_WARM_UP_STEPS = 10


def sharding_of(model: Any) -> Optional[str]:
    """Return how the ranks share the model's work; None if each has all of it, or if that is unknown."""
    if is_deepspeed(model):
        return PIPELINE if _has_stages(model) else DEEPSPEED
    if not isinstance(model, torch.nn.Module):
        return None
    if is_megatron(model):
        return MEGATRON
    if any(modules_of(model, FSDP_PLACES, "FSDPModule")):
        return FULLY_SHARD
    if any(modules_of(model, FSDP_PLACES[:1], FSDP_1)):
        return FSDP_1
    if any(hasattr(parameter, "placements") for parameter in model.parameters()):
        return TENSOR_PARALLEL
    return PIPELINE if _is_stage(model) and not _has_ddp(model) else None


def is_deepspeed(model: Any) -> bool:
    """Return whether the model is an engine of DeepSpeed."""
    return type(model).__module__.startswith("deepspeed.")


def is_megatron(model: Any) -> bool:
    """Return whether the model has modules of Megatron-Core."""
    return any(modules_of(model, (_MEGATRON_MODULES,), "MegatronModule"))


def _has_stages(engine: Any) -> bool:
    """Return whether DeepSpeed's engine trains a stage of a pipeline, in ``train_batch``."""
    return type(engine).__name__ == "PipelineEngine"


class CollectiveReductions(Reductions):
    """Steps that an optimizer's updates tell apart; the last wait of a step is its reduction.

    That may come after the update, as where updated parameters are gathered. A forward pass or another
    iteration of the loop begins the next step.
    """

    needs_gradients = False

    def __init__(self, optimizer: Any, model: Any, sharding: str) -> None:
        super().__init__(_why_unseen(model, sharding))
        self.averages = sharding in (FULLY_SHARD, FSDP_1, DEEPSPEED)
        self._model = model
        self._has_stages = is_deepspeed(model) and _has_stages(model)
        self._is_megatron = sharding == MEGATRON
        self._watch_updates = _watch_of_updates(optimizer, model)
        self.counts = self._watch_updates is not None
        if not self.counts:
            self.reason = self.reason or "updates of the optimizer cannot be seen"
        self._report: Optional[Report] = None
        self._waits: Optional[Waits] = None
        self._schedule: Optional[Dict[str, Any]] = None
        # In a step of Megatron-Core.
        self._micro_batches: Optional[int] = None
        # By their addresses, the names of groups that torch does not know.
        names_of_groups = _megatron_groups if self._is_megatron else _deepspeed_groups
        self._names = known(lambda: names_of_groups(model)) or {}
        self._by_group = WaitsByGroup(self._names)
        self._by_group.on_all_to_all = self._exchanged
        self._routed = RoutedRows()
        # The steps that the last fact on that was about.
        self._told_steps = 0
        # The current step: its number, its last wait, the nanoseconds of all waits before that, and the
        # iteration of its update.
        self._step = 0
        self._last: Optional[Tuple[int, int]] = None
        self._earlier_ns = 0
        self._updated_in: Optional[int] = None

    def install(self, gradients: Optional[GradientClock], report: Report, waits: Waits) -> None:
        if self._watch_updates is None:
            return
        self._report, self._waits = report, waits
        self._undo.append(self._watch_updates(self._updated))
        self._undo.append(self._model.register_forward_pre_hook(ForwardHook(self)).remove)
        if self._has_stages:
            self._watch_stages(self._model, waits)
        if self._is_megatron:
            self._watch_micro_batches(waits)
        for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
            kind = getattr(sys.modules.get(_SCHEDULES), name, None)
            if kind is not None:
                self._undo.append(patch(kind, "step", self._noting_schedule(kind.step)))
        if gradients is not None:
            waits.on_wait = self._waited
            self._undo += _watch_collectives(waits, self._by_group)

    def before_forward(self) -> None:
        if torch.is_grad_enabled() and self._updated_in is not None:
            self._next_step()

    def facts(self) -> Dict[str, Any]:
        schedule = self._schedule
        if self._has_stages:
            schedule = known(functools.partial(_engine_schedule, self._model))
        if self._is_megatron:
            schedule = known(functools.partial(_megatron_schedule, self._micro_batches))
        return {"groups": self._groups(), "pipeline_schedule": schedule}

    def _groups(self) -> Optional[List[Dict[str, Any]]]:
        groups = process_groups(self._names)
        if groups is None or not self._is_megatron:
            return groups
        # Its other groups are unions of these.
        return [group for group in groups if group["name"] in _MEGATRON_GROUPS]

    def waits_by_group(self, ends: bool) -> Optional[Dict[str, Any]]:
        steps = self._step - _WARM_UP_STEPS + (self._updated_in is not None)
        # Twice as many steps are news: a long job has few such lines.
        if steps <= self._told_steps or (steps < 2 * self._told_steps and not ends):
            return None
        fact, self._told_steps = self._by_group.fact(steps), steps
        return None if fact is None else {"collectives": fact}

    def _waited(self, began: int, ended: int, iteration: int, awaited: Any) -> None:
        if self._updated_in not in (None, iteration):
            self._next_step()
        self._by_group.waited(awaited, ended - began, self._step >= _WARM_UP_STEPS)
        if self._last is not None:
            self._earlier_ns += self._last[1] - self._last[0]
        self._last = began, ended
        if self._updated_in is not None:
            self._report_step()

    def _exchanged(self, sent: Any, from_ranks: Any, to_ranks: Any) -> None:
        """Count what the step's experts receive: tokens are rows of floating-point numbers."""
        if self._waits is None or sent.dim() != 2 or not sent.is_floating_point():
            return
        iteration = self._waits.iteration
        if self._updated_in not in (None, iteration):
            self._next_step()
        if iteration is not None and self._updated_in is None:
            self._routed.exchange(tuple(from_ranks), tuple(to_ranks))

    def _updated(self, *_: Any) -> None:
        assert self._waits is not None
        iteration = self._waits.iteration
        if self._updated_in not in (None, iteration):
            self._next_step()
        # Outside of the loop's iterations it still ends the step.
        self._updated_in = -1 if iteration is None else iteration
        self._report_step()

    def _next_step(self) -> None:
        self._step += 1
        self._last, self._earlier_ns, self._updated_in = None, 0, None
        self._routed.begin_step()

    def _report_step(self) -> None:
        """Report the step's reduction; a later report of the same step replaces it."""
        assert self._report is not None
        began, ended = (None, None) if self._last is None else self._last
        rows = self._routed.rows
        self._report(Reduction(self._step, began, ended, waited=self._earlier_ns, routed=rows))

    def _watch_stages(self, engine: Any, waits: Waits) -> None:
        """Watch the steps of DeepSpeed's pipeline, and the micro-batches that it fetches in them."""
        train, fetch = engine.train_batch, getattr(engine, "_next_batch", None)

        @functools.wraps(train)
        def train_batch(*args: Any, **kwargs: Any) -> Any:
            self.before_forward()
            return train(*args, **kwargs)

        self._undo.append(patch(engine, "train_batch", train_batch))
        if fetch is not None:
            self._undo.append(patch(engine, "_next_batch", waits.fetches(fetch)))

    def _watch_micro_batches(self, waits: Waits) -> None:
        """Watch the forward passes of Megatron-Core's schedules: their number, and their batches."""
        schedules = sys.modules.get(_MEGATRON_SCHEDULES)
        step = getattr(schedules, "forward_step", None)
        if step is None:
            return

        @functools.wraps(step)
        def forward_step(*args: Any, **kwargs: Any) -> Any:
            self.before_forward()
            # The function of the training, its batches, the model and the number of micro-batches.
            if len(args) > 3:
                self._micro_batches = args[3]
                args = (args[0], timed_batches(args[1], waits), *args[2:])
            return step(*args, **kwargs)

        self._undo.append(patch(schedules, "forward_step", forward_step))

    def _noting_schedule(self, step: Function) -> Function:
        """Return the method of a pipeline's schedule that makes a step, and note the schedule."""

        @functools.wraps(step)
        def noting(schedule: Any, *args: Any, **kwargs: Any) -> Any:
            if self._schedule is None:
                # Versions of torch may hide it.
                self._schedule = known(functools.partial(_schedule_facts, schedule))
            return step(schedule, *args, **kwargs)

        return noting


def _watch_collectives(waits: Waits, by_group: WaitsByGroup) -> List[Callable[[], None]]:
    """Time all waits for other ranks in Python; return the functions that end that."""
    c10d = torch.distributed.distributed_c10d
    operators = torch.ops._c10d_functional
    undo = [patch(c10d.Work, "wait", waits.timed(c10d.Work.wait))]
    undo += watch_operator(operators, "wait_tensor", waits.timed)
    # Versions of torch without these operators have no names of groups either.
    group_of_name = getattr(c10d, "_resolve_process_group", None)
    return undo + by_group.watch(torch.distributed.ProcessGroup, operators, group_of_name)


def _watch_of_updates(
    optimizer: Any, model: Any
) -> Optional[Callable[[Callable[..., None]], Callable[[], None]]]:
    """Return a function that calls another one after each update; None where updates cannot be seen."""
    if is_deepspeed(model):
        return functools.partial(_watch_engine, model) if hasattr(model, "global_steps") else None
    watch = getattr(optimizer, "register_step_post_hook", None)
    if watch is None and optimizer is None:
        watch = getattr(torch.optim.optimizer, "register_optimizer_step_post_hook", None)
    return None if watch is None else lambda updated: watch(updated).remove


def _watch_engine(engine: Any, updated: Callable[..., None]) -> Callable[[], None]:
    """Call a function after each update by DeepSpeed's engine; its optimizers hide theirs."""
    name = "train_batch" if _has_stages(engine) else "step"
    original = getattr(engine, name)

    @functools.wraps(original)
    def step(*args: Any, **kwargs: Any) -> Any:
        before = engine.global_steps
        result = original(*args, **kwargs)
        if engine.global_steps != before:
            updated()
        return result

    return patch(engine, name, step)


def _why_unseen(model: Any, sharding: str) -> Optional[str]:
    """Return why waits cannot be timed; None where they can."""
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return "on a device collectives overlap with compute, which the host cannot see"
    if torch_distributed() is None:
        return "torch.distributed does not run the collectives"
    if is_deepspeed(model):
        return _why_engine_is_unseen(model)
    if sharding != FULLY_SHARD and any(map(_is_compiled, model.modules())):
        return "the collectives of a compiled model cannot be seen"
    return None


def _why_engine_is_unseen(engine: Any) -> Optional[str]:
    """Return why DeepSpeed's engine waits where it cannot be seen; None where it does not."""
    hidden = "DeepSpeed's engine communicates where it cannot be seen"
    try:
        deep = getattr(engine, "is_deepcompile_enabled", bool)()
        unknown = type(engine).__name__ not in ("DeepSpeedEngine", "PipelineEngine")
        return hidden if deep or unknown or getattr(engine, "zenflow", False) else None
    except Exception as error:
        return "%s: %r" % (hidden, error)


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")


# -- Facts -----------------------------------------------------------------------------------------


def _deepspeed_groups(engine: Any) -> Dict[int, str]:
    """Return the names of the groups of DeepSpeed's pipelines, by their addresses.

    DeepSpeed gives them none, and makes several of the same ranks.
    """
    grid = engine.grid
    dimensions = {"pp": grid.pp_group, "dp": grid.dp_group, "tp": grid.slice_group}
    names = {frozenset(ranks): name for name, ranks in dimensions.items() if len(ranks) > 1}
    members = torch.distributed.distributed_c10d._world.pg_group_ranks
    return {
        id(group): names[frozenset(ranks)]
        for group, ranks in members.items()
        if frozenset(ranks) in names and group_name(group) == NO_NAME
    }


def _megatron_groups(_: Any) -> Dict[int, str]:
    """Return the names of Megatron-Core's groups, by their addresses.

    It makes several groups of the same ranks: they have the name of the same dimension.
    """
    state = sys.modules[_MEGATRON_STATE]
    members = torch.distributed.distributed_c10d._world.pg_group_ranks
    of_dimensions = {name: getattr(state, group, None) for name, group in _MEGATRON_GROUPS.items()}
    dimensions = {name: group for name, group in of_dimensions.items() if group in members}
    by_ranks: Dict[Tuple[bool, Any], str] = {}
    for name, group in dimensions.items():
        if len(members[group]) > 1:
            by_ranks[name == "ep", frozenset(members[group])] = name
    names = {}
    for group, ranks in members.items():
        description = group_name(group)
        is_of_experts = description.startswith("EXPERT")
        in_words = description.replace("_GROUP", "").replace("_", " ").lower()
        has_all = len(ranks) == torch.distributed.get_world_size()
        other_name = ALL_RANKS if has_all else in_words
        names[id(group)] = by_ranks.get((is_of_experts, frozenset(ranks)), other_name)
    names.update((id(group), name) for name, group in dimensions.items())
    return names


def _megatron_schedule(micro_batches: Optional[int]) -> Optional[Dict[str, Any]]:
    """Return the schedule, micro-batches and stages of Megatron-Core's pipeline; None without one."""
    state = sys.modules[_MEGATRON_STATE]
    ranks = state.get_pipeline_model_parallel_world_size()
    if ranks < 2 or micro_batches is None:
        return None
    chunks = state.get_virtual_pipeline_model_parallel_world_size()
    first, kind = state.get_pipeline_model_parallel_rank(), "with" if chunks else "without"
    return {
        "schedule": "forward_backward_pipelining_%s_interleaving" % kind,
        "micro_batches": micro_batches,
        "stages": [first + ranks * chunk for chunk in range(chunks or 1)],
        "of": ranks * (chunks or 1),
    }


def _engine_schedule(engine: Any) -> Dict[str, Any]:
    """Return the schedule, micro-batches and stages of DeepSpeed's pipeline."""
    return {
        "schedule": type(engine._train_schedule()).__name__,
        "micro_batches": int(engine.micro_batches),
        "stages": [int(engine.stage_id)],
        "of": int(engine.num_stages),
    }


def _schedule_facts(schedule: Any) -> Dict[str, Any]:
    """Return the schedule, micro-batches and stages of torch's pipeline."""
    stages = getattr(schedule, "_stages", None) or [schedule._stage]
    return {
        "schedule": type(schedule).__name__,
        "micro_batches": int(schedule._n_microbatches),
        "stages": [int(stage.stage_index) for stage in stages],
        "of": int(stages[0].num_stages),
    }


def modules_of(model: Any, places: Tuple[str, ...], name: str) -> Iterator[Any]:
    """Yield the modules of a model with a class of torch, which has had it in one of these places."""
    kinds = [getattr(sys.modules.get(place), name, None) for place in places]
    known = tuple(kind for kind in kinds if kind is not None)
    if known and isinstance(model, torch.nn.Module):
        yield from (module for module in model.modules() if isinstance(module, known))


def _is_stage(model: Any) -> bool:
    """Return whether a stage of a pipeline has the model, or a part of it."""
    kind = getattr(sys.modules.get(_STAGES), "_PipelineStageBase", None)
    if kind is None:
        return False
    parts = set(map(id, model.modules()))
    # A stage knows its model, but a model not its stage.
    stages = (value for value in gc.get_objects() if issubclass(type(value), kind))
    return any(id(getattr(stage, "submod", None)) in parts for stage in stages)


def _has_ddp(model: Any) -> bool:
    ddp = torch.nn.parallel.DistributedDataParallel
    return any(isinstance(module, ddp) for module in model.modules())
