"""Record one ``fit``: patch the model, and write its steps as rows."""

from __future__ import annotations

import math
import sys
from time import monotonic_ns
from typing import Any, Dict, List, Optional

import keras

from ..guards import never_raises
from ..hangs import Position, running_frame
from ..job.job_facts import gradient_sizes, known, module_version, optimizer_facts
from ..job.world import World, world_of_training
from ..keras_common.finished_calls import FinishedCalls
from ..keras_common.fit_recording import FitRecording, TimedFunction, timed
from ..options import Options
from ..session import Session
from ..step_log.line_format import StepRow
from .stages import KerasFit, Stages, timed_batches

# The frameworks' names in reports.
_FRAMEWORKS = {"tensorflow": "tensorflow", "torch": "pytorch", "jax": "jax"}
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}


class Recording(FitRecording):
    """One ``fit`` of one model, with its timestamps and timers."""

    # Keras 3's own fit has it; the batches come from it.
    fit_variable = "epoch_iterator"
    _stream: Stages

    def __init__(self, model: Any, params: Optional[Dict[str, Any]], options: Options) -> None:
        super().__init__(model, params, options)
        fit = self._running_fit()
        self._epoch_iterator = None if fit is None else fit.f_locals.get(self.fit_variable)

    # -- start -----------------------------------------------------------------------------------

    def _world_of_training(self) -> World:
        self._passes = passes_per_step(self._optimizer)
        return world_of_training()

    def _takes_several(self) -> bool:
        return int(self.model.steps_per_execution) != 1

    def _facts(self) -> Dict[str, Any]:
        return {
            **model_facts(self.model, self._size),
            "loader_workers": loader_workers(self._epoch_iterator),
            "gradients_reduced": True if self._size == 1 else None,
            "stamps": {"placed": [], "reason": None},
        }

    def _install(self, session: Session, calls: FinishedCalls) -> None:
        stages = self._stream = self._stages_from(calls, session)
        # A fit that outlives its recording must not keep the epoch iterator alive.
        iterator, self._epoch_iterator = self._epoch_iterator, None
        self._undo.append(stages.remove)
        if self._probes:
            stages.probe_with(self._input_probe(stages.reader), self._batches_per_epoch())
        stages.install(iterator)

    def _stages_from(self, calls: FinishedCalls, session: Session) -> Stages:
        counted = (session.next_step, self._passes, self._counted_before)
        single = self._size == 1
        emits = self._emit, self._emit_counted, session.tokens
        fit = KerasFit(calls, self.model, self._options.stages, single, counted, *emits)
        backend = keras.backend.backend()
        if backend == "tensorflow":
            from .on_tensorflow import TensorFlowStages

            return TensorFlowStages(fit)
        if backend == "torch":
            from .on_torch import TorchStages

            return TorchStages(fit)
        if backend == "jax":
            from .on_jax import JaxStages

            return JaxStages(fit)
        raise RuntimeError("training of Keras on %s cannot be recorded" % backend)

    def _timed(self, train_function: Any, session: Session, calls: FinishedCalls) -> TimedFunction:
        stages = self._stream
        function = stages.function(train_function, self._runs_timer)
        return timed(function, self, session, calls, stages.saw, stages.key, stages.last_of)

    def _position_in_call(self, begin: int) -> Position:
        return self._stream.position(begin)

    def _position_between_calls(self) -> Position:
        fetch = running_frame(self._thread, timed_batches.__code__)
        return Position() if fetch is None else Position(fetch.f_locals.get("begin"))

    def _make_rows(self) -> None:
        self._stream.settle()

    def _next_step(self) -> Optional[int]:
        return self._stream.next_step()

    @never_raises
    def drain(self) -> None:
        super().drain()
        session = self._session
        if session is not None and self._stream is not None:
            fact = self._stream.loader_fact(monotonic_ns(), session.closed)
            if fact is not None:
                session.facts(fact)

    @never_raises
    def begin_epoch(self, epoch: int) -> None:
        super().begin_epoch(epoch)
        self._stream.begin_epoch()

    def _passes_counted(self) -> int:
        return passes_counted(self._optimizer)

    # -- one call of the train function ----------------------------------------------------------

    # These two run around calls now and then, or around every call if the stages are attentive.

    @never_raises
    def before_call(self) -> None:
        if getattr(self.model, "history", None) is not self._history:
            # Another fit trains the model without this callback, after an exception in this fit.
            self.stop()

    @never_raises
    def after_call(self) -> None:
        stages, calls = self._stream, self._calls
        assert calls is not None
        stages.check()
        self._update_facts()
        calls.schedule_check(every_call=stages.attentive)

    def _update_facts(self) -> None:
        assert self._calls is not None
        news = (self._stream.placed, self._stream.reason)
        if self._calls.checks and news != self._recorded_facts:
            self._recorded_facts = news
            self._record_facts()

    def _record_facts(self) -> None:
        """Record facts that are known only after the first step: TensorFlow builds and traces in it."""
        assert self._session is not None
        stages = self._stream
        timestamps = {"placed": list(stages.placed), "reason": stages.reason, "ready": stages.ready}
        self._session.facts({**weights(self.model), "stamps": timestamps})

    def _emit(self, rows: List[StepRow]) -> None:
        session = self._session
        assert session is not None
        for row in rows:
            self._last_end = row.end
            session.step(row)
            if self._batch_size is None and row.samples:
                # The first batch shows it; the last batch of an epoch may be smaller.
                self._batch_size = row.samples // row.micro
                session.facts({"batch_size": self._batch_size})


# -- Facts of a Keras 3 model, its optimizer and its backend --------------------------------------


def framework() -> str:
    """Return the backend's name in reports."""
    return _FRAMEWORKS.get(keras.backend.backend(), str(keras.backend.backend()))


def model_facts(model: Any, size: int) -> Dict[str, Any]:
    """Return facts of the model and its optimizer; None where a custom model stores them elsewhere."""
    backend = keras.backend.backend()
    optimizer = innermost(getattr(model, "optimizer", None))
    rate = known(lambda: float(keras.ops.convert_to_numpy(optimizer.learning_rate)))
    return {
        "framework": framework(),
        "versions": {
            "keras": keras.__version__,
            backend: module_version(backend),
            "horovod": module_version("horovod"),
        },
        "model": known(lambda: model.name),
        **optimizer_facts(optimizer, "learning_rate", rate, size),
        "backward_passes_per_step": passes_per_step(optimizer),
        "steps_per_execution": known(lambda: int(model.steps_per_execution)),
        "compute_dtypes": known(lambda: sorted({layer.compute_dtype for layer in model.layers})),
        "threads": known(_threads),
        "devices": known(lambda: _devices(model)),
        **weights(model),
    }


def weights(model: Any) -> Dict[str, Any]:
    """Return the numbers of parameters and gradients; None before the model is built."""
    trained = known(lambda: list(model.trainable_variables) if model.built else None)
    sizes = None if trained is None else known(lambda: list(map(_bytes, trained)))
    return {
        "parameters": known(lambda: int(model.count_params()) if model.built else None),
        "gradient_tensors": None if trained is None else len(trained),
        **gradient_sizes(sizes),
    }


def _bytes(variable: Any) -> int:
    return _BYTES[str(variable.dtype)] * math.prod(map(int, variable.shape))


def innermost(optimizer: Any) -> Any:
    """Return the optimizer inside loss-scaling wrappers; None where there is none."""
    inner = getattr(optimizer, "inner_optimizer", None)
    return optimizer if inner is None else innermost(inner)


def passes_per_step(optimizer: Any) -> int:
    """Return the backward passes whose gradients are summed before the weights are updated."""
    return int(getattr(innermost(optimizer), "gradient_accumulation_steps", None) or 1)


def passes_counted(optimizer: Any) -> int:
    """Return the backward passes that the optimizer has ever counted; 0 where it counts none."""
    counter = getattr(innermost(optimizer), "_iterations", None)
    return 0 if counter is None else int(keras.ops.convert_to_numpy(counter))


def loader_workers(epoch_iterator: Any) -> Optional[int]:
    """Return the loader's number of workers; None where it has none or it is unknown."""
    adapter = getattr(epoch_iterator, "data_adapter", None)
    loaders = [getattr(adapter, name, None) for name in ("_dataloader", "py_dataset")]
    counts = [
        getattr(loader, name, None) for loader in loaders for name in ("num_workers", "workers")
    ]
    return next((count for count in counts if isinstance(count, int)), None)


def _threads() -> Optional[Dict[str, int]]:
    tensorflow, torch = sys.modules.get("tensorflow"), sys.modules.get("torch")
    if keras.backend.backend() == "tensorflow" and tensorflow is not None:
        threading = tensorflow.config.threading
        return {
            "inter_op": threading.get_inter_op_parallelism_threads(),
            "intra_op": threading.get_intra_op_parallelism_threads(),
        }
    if keras.backend.backend() == "torch" and torch is not None:
        return {"inter_op": torch.get_num_interop_threads(), "intra_op": torch.get_num_threads()}
    return None


def _devices(model: Any) -> List[str]:
    """Return the kinds of devices; for TensorFlow one entry per device."""
    tensorflow, jax = sys.modules.get("tensorflow"), sys.modules.get("jax")
    if keras.backend.backend() == "tensorflow" and tensorflow is not None:
        return [device.device_type for device in tensorflow.config.list_logical_devices()]
    if keras.backend.backend() == "jax" and jax is not None:
        return sorted({device.platform.upper() for device in jax.local_devices()})
    return sorted({variable.value.device.type.upper() for variable in model.variables})
