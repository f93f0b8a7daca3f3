"""Find the loop of PyTorch or MXNet that trains in a script that was not edited.

The loop over a DataLoader in which an optimizer steps is the one that trains: from that step on its
iterations are recorded, as ``StepLogger.watch`` does. Where no DataLoader gives the batches, each step
of an optimizer of PyTorch ends a step.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import weakref
from multiprocessing.util import Finalize
from types import ModuleType
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Protocol, Set

from .input.loader_wrappers import RestOfLoader, each_of

# This module is imported before frameworks are: nothing here imports one at the top.

logger = logging.getLogger("stallscope")

# An optimizer that steps so often without a batch of a loader has batches from elsewhere.
_STEPS_WITHOUT_LOADER = 3


class Script(Protocol):
    """What is known of the script whose loops these are."""

    log_dir: str
    #: Of StepLogger.
    arguments: Dict[str, Any]
    #: The frameworks that it has imported.
    imported: Set[str]
    #: What is recorded; None before a training began.
    recorded: Optional[str]

    def records(self, training: str) -> bool:
        """Say once what is recorded; return whether this training is the one."""

    def note(self, remark: str) -> None:
        """Say what else is to know of what is recorded."""


class Loops:
    """Watches loaders and optimizers of PyTorch, until it is known which loop trains.

    Args:
        script: the script.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        #: The functions that patch torch's modules after they were imported.
        self.patches: Dict[str, Callable[[ModuleType], None]] = {
            "torch.utils.data.dataloader": self._patch_loaders,
            "accelerate.data_loader": self._patch_loaders,
            "timm.data.loader": self._patch_loaders,
            "torch.nn.modules.module": self._patch_modules,
            "torch.nn.parallel.distributed": self._patch_ddp,
            "torch.distributed.fsdp.fully_sharded_data_parallel": self._patch_fsdp,
            "torch.distributed.fsdp._fully_shard._fully_shard": self._patch_fully_shard,
            "torch.optim.optimizer": self._patch_optimizers,
        }
        # The StepLogger, its recording and its optimizer, once the loop is known.
        self._log: Any = None
        self._optimizer: Any = None
        self._loader: Any = None
        # The identities of other optimizers that have made a step since.
        self._others: Set[int] = set()
        # Models whose wrappers reduce gradients, and modules whose weights the script has taken.
        self._models: List["weakref.ref[Any]"] = []
        self._owners: Dict[int, "weakref.ref[Any]"] = {}
        # The loop that gave the first batch since the optimizer's last step.
        self._first: Optional[_Batches] = None
        self._steps_without_loader = 0
        self._inside = threading.local()
        self._off = False
        self._thread = 0
        self._model: Callable[[], Any] = lambda: None

    # -- patches

    def _patch_loaders(self, module: ModuleType) -> None:
        # timm's takes a batch ahead of training from a loader of torch.
        names = ("DataLoader", "DataLoaderShard", "DataLoaderDispatcher", "PrefetchLoader")
        for loader in [vars(module).get(name) for name in names]:
            if loader is not None and loader.__module__ == module.__name__:
                self._patch_loader(loader)

    def _patch_loader(self, loader_type: Any) -> None:
        original = loader_type.__iter__

        @functools.wraps(original)
        def iterate(loader: Any) -> Any:
            self._before_loop(loader)
            batches = original(loader)
            if self._off or getattr(self._inside, "loader", False):
                return batches
            return _Batches(self, loader, batches)

        loader_type.__iter__ = iterate

    def _patch_modules(self, module: ModuleType) -> None:
        """Note the modules whose weights a script takes, as for its optimizer, until a loop is found."""
        original = module.Module.named_parameters

        @functools.wraps(original)
        def named_parameters(owner: Any, *args: Any, **kwargs: Any) -> Any:
            # DistributedDataParallel asks each module for its own weights.
            if self._log is None and kwargs.get("recurse", True):
                self._owners[id(owner)] = weakref.ref(owner)
            return original(owner, *args, **kwargs)

        module.Module.named_parameters = named_parameters

    def _patch_ddp(self, module: ModuleType) -> None:
        self._after_init(module.DistributedDataParallel)

    def _patch_fsdp(self, module: ModuleType) -> None:
        self._after_init(module.FullyShardedDataParallel)

    def _after_init(self, model_type: Any) -> None:
        original = model_type.__init__

        @functools.wraps(original)
        def initialise(model: Any, *args: Any, **kwargs: Any) -> None:
            original(model, *args, **kwargs)
            self._models.append(weakref.ref(model))

        model_type.__init__ = initialise

    def _patch_fully_shard(self, module: ModuleType) -> None:
        original = module.fully_shard

        @functools.wraps(original)
        def fully_shard(*args: Any, **kwargs: Any) -> Any:
            sharded = original(*args, **kwargs)
            if not isinstance(sharded, (list, tuple)) and sharded is not None:
                self._models.append(weakref.ref(sharded))
            return sharded

        # It is a function with attributes, as its decorator gives it.
        vars(fully_shard).update(vars(original))
        module.fully_shard = fully_shard  # type: ignore[attr-defined]

    def _patch_optimizers(self, module: ModuleType) -> None:
        self._script.imported.add("torch")
        register = getattr(module, "register_optimizer_step_post_hook", None)
        if register is None:
            logger.warning("stallscope: loops of this version of torch are not found")
            return
        register(self._stepped)

    # -- loops over loaders

    def _before_loop(self, loader: Any) -> None:
        """Prepare for another loop of the training, before it makes its iterator."""
        try:
            if not self._off and self._trains(loader) and not self._validates(trains=True):
                self._log._recording_of_loop().before_loop(loader)
        except Exception as error:  # no error may reach training
            self.give_up(error)

    def _trains(self, loader: Any) -> bool:
        """Whether a loader is that of the loop that trains, or a new one with its data."""
        if self._log is None or self._loader is None:
            return False
        dataset = getattr(loader, "dataset", None)
        return loader is self._loader or (
            dataset is not None and dataset is getattr(self._loader, "dataset", None)
        )

    def begins(self, loop: _Batches) -> None:
        """Record a loop that begins and goes on with the training, or validates."""
        if self._log is None or loop.thread != self._thread:
            return
        trains = self._trains(loop.loader)
        if self._validates(trains):
            loop.pause(self._log)
        elif trains:
            # What another loop fetched before, such as one that validates, is not trained on here.
            self._first = None
            loop.record(self._log._recording_of_loop(), loop.loader)

    def _validates(self, trains: bool) -> bool:
        """Whether a loop that begins validates; ``trains`` is whether it has the training's loader.

        Some scripts leave ``eval()`` only after the first batch has come.
        """
        torch: Any = sys.modules["torch"]
        model = None if trains else self._model()
        return not torch.is_grad_enabled() or (model is not None and not model.training)

    def fetches(self, loop: "_Batches") -> None:
        """Note that a loop that is not recorded fetches a batch."""
        if self._first is None:
            self._first = loop

    # -- steps of the optimizer

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Find the loop in which an optimizer has made a step; called after each step of any."""
        if self._off:
            return
        first, self._first = self._first, None
        try:
            if first is not None and first.thread != threading.get_ident():
                # Another thread fetches batches in advance.
                first = None
            if self._log is None:
                self._find(optimizer, first)
            elif optimizer is self._optimizer:
                if self._loader is None:
                    self._log._loop.next_iteration()
                elif first is not None and not first.pauses:
                    # The job goes on with another loader.
                    self._record_rest(self._log._recording_of_loop(), first)
            elif id(optimizer) not in self._others:
                self._note_another(optimizer)
        except Exception as error:  # no error may reach training
            self.give_up(error)

    def _find(self, optimizer: Any, first: Optional["_Batches"]) -> None:
        self._steps_without_loader += first is None
        if first is None and self._steps_without_loader < _STEPS_WITHOUT_LOADER:
            return
        if self._records_itself():
            self._script.recorded = "a training with its own StepLogger"
            self._off = True
            return
        if not self._script.records(self._described(optimizer, first is not None)):
            self._off = True
            return
        log = self._log = self._logger(optimizer)
        self._optimizer = optimizer
        self._thread = threading.get_ident()
        # Also at the end of a process that another one has started; those run no other exit handlers.
        Finalize(None, log.close, exitpriority=1)
        done = 1 if first is not None else _STEPS_WITHOUT_LOADER
        recording = log._recording_of_loop(None if self._counts(optimizer) else done)
        if first is None:
            recording.begin_loop(self, None)
            recording.begin_epoch()
            recording.begin_iteration()
        else:
            self._record_rest(recording, first)

    def _note_another(self, optimizer: Any) -> None:
        """Say that another optimizer trains as well, unless it wraps the first one, or is in it."""
        if self._weights(optimizer).isdisjoint(self._weights(self._optimizer)) and not self._others:
            self._script.note("another optimizer trains, too; steps are those of the first one")
        self._others.add(id(optimizer))

    def _record_rest(self, recording: Any, loop: "_Batches") -> None:
        """Record the rest of a loop whose first batch has come."""
        self._loader = loop.loader
        loop.record(recording, RestOfLoader(loop.loader))

    # -- what differs between frameworks

    def _records_itself(self) -> bool:
        """Whether the script records this training."""
        from .pytorch.pytorch_recording import open_recordings

        return bool(open_recordings)

    def _weights(self, optimizer: Any) -> Set[int]:
        """Return the identities of what an optimizer trains."""
        return {id(weight) for group in optimizer.param_groups for weight in group["params"]}

    def _described(self, optimizer: Any, has_loader: bool) -> str:
        """Return what is said of the training."""
        model = self._model_of(optimizer)
        wrapper = "" if model is None else ", %s" % type(model).__name__
        batches = "" if has_loader else "; its batches come from no DataLoader"
        return "a loop of PyTorch (%s%s%s)" % (type(optimizer).__name__, wrapper, batches)

    def _logger(self, optimizer: Any) -> Any:
        from .pytorch.pytorch_logger import StepLogger

        script, model = self._script, self._model_of(optimizer)
        trained = self._trained_by(optimizer)
        # Of a model that trains in eval(), that tells nothing.
        if trained is not None and trained.training:
            self._model = weakref.ref(trained)
        return StepLogger(script.log_dir, optimizer=optimizer, model=model, **script.arguments)

    def _counts(self, optimizer: Any) -> bool:
        """Whether an optimizer counts its steps."""
        from .pytorch.pytorch_facts import steps_counted
        from .pytorch.reductions import innermost_optimizer

        return bool(steps_counted(innermost_optimizer(optimizer)))

    def _model_of(self, optimizer: Any) -> Any:
        """Return the wrapped model with the optimizer's parameters; None without one."""
        # Blocks are sharded before the model that has them.
        return next(self._with_weights_of(optimizer, reversed(self._models)), None)

    def _trained_by(self, optimizer: Any) -> Any:
        """Return the smallest known module with the optimizer's parameters; None without one.

        ``eval()`` of a model reaches the modules in it.
        """
        known = [*self._models, *self._owners.values()]
        owners = self._with_weights_of(optimizer, known)
        return min(owners, key=lambda owner: sum(1 for _ in owner.modules()), default=None)

    def _with_weights_of(
        self, optimizer: Any, modules: Iterable["weakref.ref[Any]"]
    ) -> Iterator[Any]:
        """Yield the modules with all of an optimizer's parameters."""
        updated = self._weights(optimizer)
        for module in [reference() for reference in modules]:
            if module is not None and updated <= {id(weight) for weight in module.parameters()}:
                yield module

    def give_up(self, error: Exception) -> None:
        self._off = True
        logger.warning("stallscope: this loop is not recorded, training goes on: %r", error)


class GluonLoops(Loops):
    """Watches loaders and trainers of MXNet's Gluon, until it is known which loop trains."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.patches = {
            "mxnet.gluon.data.dataloader": self._patch_loaders,
            "mxnet.gluon.trainer": self._patch_trainer,
            "mxnet.io.io": self._patch_iterators,
        }

    def _patch_iterators(self, module: ModuleType) -> None:
        self._patch_loader(module.DataIter)

    def _patch_trainer(self, module: ModuleType) -> None:
        self._script.imported.add("MXNet")
        trainer_type = module.Trainer
        for name in ("step", "update"):
            setattr(trainer_type, name, self._with_news(getattr(trainer_type, name)))

    def _with_news(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def stepping(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(trainer, *args, **kwargs)
            self._stepped(trainer, args, kwargs)
            return result

        return stepping

    def _before_loop(self, loader: Any) -> None:
        """Do nothing: how Gluon's loaders make batches is not recorded."""

    def _find(self, optimizer: Any, first: Optional["_Batches"]) -> None:
        if first is not None:
            super()._find(optimizer, first)

    def _validates(self, trains: bool) -> bool:
        # Only within an iteration does MXNet say that it trains.
        return False

    def _records_itself(self) -> bool:
        from .mxnet.mxnet_recording import open_recordings

        return bool(open_recordings)

    def _weights(self, optimizer: Any) -> Set[int]:
        return set(map(id, optimizer._params))

    def _described(self, optimizer: Any, has_loader: bool) -> str:
        kind = type(optimizer).__name__
        wrapper = "" if kind == "Trainer" else ", %s" % kind
        return "a loop of MXNet (%s%s)" % (type(optimizer._optimizer).__name__, wrapper)

    def _logger(self, optimizer: Any) -> Any:
        from .mxnet.mxnet_recording import StepLogger

        return StepLogger(self._script.log_dir, trainer=optimizer, **self._script.arguments)

    def _counts(self, optimizer: Any) -> bool:
        return True


class _Batches:
    """A loop over the batches of a loader; recorded once it is known to train."""

    def __init__(self, loops: Loops, loader: Any, batches: Iterator[Any]) -> None:
        self._loops = loops
        self._given = batches
        # What a loader that is its own iterator gives is not another loop over it.
        self._batches = each_of(batches) if batches is loader else batches
        self._began = False
        self._recorded = False
        self.loader = loader
        #: The thread that fetches, and whether this is a pause of the training.
        self.thread = 0
        self.pauses = False

    def __iter__(self) -> "_Batches":
        return self

    def __next__(self) -> Any:
        if self._recorded:
            return next(self._batches)
        if self._began:
            self._loops.fetches(self)
            return next(self._batches)
        return self._first_batch()

    def _first_batch(self) -> Any:
        """Fetch the first batch; a loader that is a part of this loader is not watched."""
        loops, self._began, self.thread = self._loops, True, threading.get_ident()
        try:
            loops.begins(self)
            if not self._recorded:
                loops.fetches(self)
        except Exception as error:  # no error may reach training
            loops.give_up(error)
        loops._inside.loader = True
        try:
            return next(self._batches)
        finally:
            loops._inside.loader = False

    def record(self, recording: Any, loader: Any) -> None:
        """Record the rest of the loop; ``loader`` tells what is known of its batches."""
        self._batches = recording.iterate(loader, self._batches)
        self._recorded = True

    def pause(self, log: Any) -> None:
        """Record the rest of the loop as validation."""
        self.pauses = True
        self._batches = _paused(log, self._batches)

    def __len__(self) -> int:
        return len(self._given)  # type: ignore[arg-type]  # raises the loader's own error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__dict__["_given"], name)


def _paused(log: Any, batches: Iterator[Any]) -> Iterator[Any]:
    with log.validation():
        yield from batches
