"""Time within steps that is no work of the model: collections, compilations, saves, and others.

All are intervals of the rank's own clock, and the analysis finds the steps that they delayed. Hooks run
only when something happens. What takes less than a millisecond is only counted.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import weakref
from pathlib import Path
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Optional, Tuple

from .guards import patch
from .job.job_facts import known
from .lock_waits import LockWaits, TrainingThread
from .step_log.line_format import (
    BACKGROUND_EVALUATION,
    BACKGROUND_SAVING,
    COMPILATION,
    GARBAGE_COLLECTION,
    INTERPRETER,
    SAVING,
    InterruptionRow,
)

_LEAST_NS = 10**6
# Facts about threads that have the lock are totals, so a few are enough.
_FACTS_EVERY_NS = 30 * 10**9
#: Kinds that are counted, with their facts.
_COUNTED = {
    GARBAGE_COLLECTION: "collections",
    COMPILATION: "compilations",
    SAVING: "saves",
    BACKGROUND_SAVING: "background_saves",
    BACKGROUND_EVALUATION: "background_evaluations",
}
_DISTRIBUTED_SAVING = "torch.distributed.checkpoint.state_dict_saver"
# Reasons of compilations may have several lines.
_MOST_REASONS, _LONGEST_REASON = 8, 200
# Functions of TensorFlow and JAX whose traces are compared.
_MOST_FUNCTIONS = 1024
# JAX's function that traces, which is not public, reports an event at its end, a few calls deeper.
_JAX_TRACED, _JAX_TRACING = "/jax/core/compile/jaxpr_trace_duration", "_trace_for_jit"
_MOST_CALLS = 4
#: JAX's events, whose durations are reported when they end, with those of Orbax.
_OF_JAX = {
    _JAX_TRACED: COMPILATION,
    "/jax/core/compile/jaxpr_to_mlir_module_duration": COMPILATION,
    "/jax/core/compile/backend_compile_duration": COMPILATION,
    "/jax/orbax/write/total_duration_secs": SAVING,
    "/jax/orbax/write/async/blocking_duration_secs": SAVING,
    "/jax/orbax/write/async/total_duration_secs": BACKGROUND_SAVING,
}


# TensorFlow's module, which is not public, and its function that traces.
_TF_TRACING = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
_TRACES = "_create_concrete_function"


class Interruptions:
    """Records collections, compilations, saves and waits for Python's lock in this process as rows.

    Args:
        emit: receives each row, on any thread.
        next_step: returns the number of the next step.
        training: the thread that trains; saves on others are beside training.
        looks: whether its waits for the lock are recorded.
        pauses: returns whether training pauses between steps, as for a checkpoint that has a row.
    """

    def __init__(
        self,
        emit: Callable[[InterruptionRow], None],
        next_step: Callable[[], int],
        training: TrainingThread,
        looks: bool = False,
        pauses: Callable[[], bool] = bool,
    ) -> None:
        self._emit = emit
        self._next_step = next_step
        # A forked child, such as a loader's worker, has a copy of the hooks.
        self._pid = os.getpid()
        self._collecting = self._compiling = 0
        #: Numbers and nanoseconds by kind, also of short ones.
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._times = dict.fromkeys(_COUNTED, 0)
        self._undo: List[Callable[[], None]] = []
        self._hooked: List[str] = []
        self._compiled_before = 0
        # Why TensorFlow or JAX traced again; by function its parameters, in words, of the last trace.
        self._retraced: List[str] = []
        self._traced: Dict[Tuple[str, Any], Dict[str, Tuple[str, str]]] = {}
        self._training, self._pauses = training, pauses
        self._lock_waits = LockWaits(training, emit, next_step) if looks else None
        self._facts_due = 0
        #: What is recorded; compilations and saves only once there is a module that tells them.
        self.kinds: List[str] = []
        self._told: List[str] = []
        #: Whether a thread saves, and calls other functions that save.
        self._saving = threading.local()

    def start(self) -> None:
        """Hook into the collector, and into the compilers of frameworks that are imported."""
        gc.callbacks.append(self._collected)
        self._undo.append(lambda: gc.callbacks.remove(self._collected))
        self.kinds.append(GARBAGE_COLLECTION)
        self._hook_modules()
        self._told = list(self.kinds)
        if self._lock_waits is not None:
            self._lock_waits.start()
            self._undo.append(self._lock_waits.stop)

    def _hook_modules(self) -> None:
        """Hook into modules that have been imported since the last call."""
        for name, hook, kinds in (
            ("torch._dynamo.callback", self._hook_torch, (COMPILATION,)),
            ("jax.monitoring", self._hook_jax, (COMPILATION, SAVING, BACKGROUND_SAVING)),
            (_TF_TRACING, self._hook_tensorflow, (COMPILATION,)),
            ("torch.serialization", self._hook_saving, (SAVING, BACKGROUND_SAVING)),
            (_DISTRIBUTED_SAVING, self._hook_saving, (SAVING, BACKGROUND_SAVING)),
        ):
            module = sys.modules.get(name)
            if module is not None and name not in self._hooked:
                self._hooked.append(name)
                # Versions differ, and the recording works without it.
                if known(functools.partial(hook, module)):
                    self.kinds += [kind for kind in kinds if kind not in self.kinds]

    def news(self) -> Dict[str, Any]:
        """Return facts that have become known since the last call; called about once a second."""
        facts: Dict[str, Any] = {}
        looks = self._lock_waits is not None and self._lock_waits.is_on
        if looks and INTERPRETER not in self.kinds:
            self.kinds.append(INTERPRETER)
        elif not looks and INTERPRETER in self.kinds:
            self.kinds.remove(INTERPRETER)
        self._hook_modules()
        if self.kinds != self._told:
            self._told = list(self.kinds)
            facts["interruptions"] = self._told
        now = monotonic_ns()
        if now >= self._facts_due:
            self._facts_due = now + _FACTS_EVERY_NS
            facts.update(self._lock_facts())
        return facts

    def stop(self) -> None:
        """Remove all hooks."""
        while self._undo:
            known(self._undo.pop())

    def facts(self) -> Dict[str, Any]:
        """Return how many there were, how long they took, and why or for whom."""
        facts: Dict[str, Any] = self._lock_facts()
        if self.kinds != self._told:
            facts["interruptions"] = list(self.kinds)
        for kind, name in _COUNTED.items():
            if self._counts[kind]:
                ms = round(self._times[kind] / 1e6, 1)
                facts[name] = {"count": self._counts[kind], "ms": ms}
        if "collections" in facts:
            facts["collections"]["thresholds"] = list(gc.get_threshold())
        reasons = known(self._reasons) if "compilations" in facts else None
        if reasons:
            facts["compilations"]["reasons"] = reasons
        return facts

    def _lock_facts(self) -> Dict[str, Any]:
        fact = None if self._lock_waits is None else known(self._lock_waits.fact)
        return {} if fact is None else {INTERPRETER: fact}

    def _collected(self, phase: str, info: Dict[str, Any]) -> None:
        """Time a collection; Python calls this at its start and at its end, with all threads stopped."""
        if phase == "start":
            self._collecting = monotonic_ns()
        elif self._collecting:
            began, self._collecting = self._collecting, 0
            self._add(GARBAGE_COLLECTION, began, monotonic_ns(), info.get("generation", 0))

    def _add(self, kind: str, begin: int, end: int, amount: int) -> None:
        self._counts[kind] += 1
        self._times[kind] += end - begin
        if end - begin >= _LEAST_NS and os.getpid() == self._pid:
            # An error would reach the compiler, and training.
            known(lambda: self._emit(InterruptionRow(kind, self._next_step(), begin, end, amount)))

    # -- compilers

    def _hook_torch(self, module: Any) -> bool:
        handler = module.callback_handler

        def begin(*_: Any) -> None:
            self._compiling = monotonic_ns()

        def end(*_: Any) -> None:
            began, self._compiling = self._compiling, 0
            if began:
                self._add(COMPILATION, began, monotonic_ns(), 1)

        handler.register_start_callback(begin)
        self._undo.append(lambda: handler.remove_start_callback(begin))
        handler.register_end_callback(end)
        self._undo.append(lambda: handler.remove_end_callback(end))
        self._compiled_before = len(self._torch_metrics())
        return True

    def _hook_jax(self, module: Any) -> bool:
        is_on = [True]

        def ended(event: str, seconds: float, **_: Any) -> None:
            kind = _OF_JAX.get(event)
            if is_on[0] and kind is not None and not (kind == SAVING and self._pauses()):
                now = monotonic_ns()
                self._add(kind, now - int(seconds * 1e9), now, 1)
                if event == _JAX_TRACED:
                    known(functools.partial(self._note_trace_of_jax, sys._getframe(1)))

        module.register_event_duration_secs_listener(ended)

        def remove() -> None:
            # Old versions keep their listeners.
            is_on[0] = False
            unregister = getattr(module, "unregister_event_duration_listener", None)
            if unregister is not None:
                unregister(ended)

        self._undo.append(remove)
        return True

    def _hook_tensorflow(self, module: Any) -> bool:
        trace, depth = getattr(module, _TRACES), threading.local()

        def timed(function_type: Any, *arguments: Any, **named: Any) -> Any:
            outermost = not getattr(depth, "inside", False)
            depth.inside, began = True, monotonic_ns()
            try:
                return trace(function_type, *arguments, **named)
            finally:
                if outermost:
                    depth.inside = False
                    self._add(COMPILATION, began, monotonic_ns(), 1)
                    known(lambda: self._note_trace_of_tensorflow(function_type, arguments[2]))

        self._undo.append(patch(module, _TRACES, timed))
        return True

    def _note_trace_of_tensorflow(self, function_type: Any, options: Any) -> None:
        """Note what is new in a function's parameters; ``options`` belong to the function."""
        parameters = {}
        for name, parameter in function_type.parameters.items():
            constraint = parameter.type_constraint
            is_literal = type(constraint).__name__ == "Literal"
            what = "Python argument" if is_literal else "shape or type of"
            # A text: types may keep the model alive.
            parameters[name] = (what, str(constraint))
        self._note_trace(options.name, id(options.function_cache), parameters)

    def _note_trace_of_jax(self, frame: Any) -> None:
        """Note what is new in the arguments of a function, which is in a frame of JAX."""
        for _ in range(_MOST_CALLS):
            if frame.f_code.co_name == _JAX_TRACING:
                break
            frame = frame.f_back
        else:
            return
        function, information, types = (frame.f_locals[name] for name in ("fun", "dbg", "avals"))
        # JAX has functions, too: those for operations on arrays are traced for each new shape.
        package = Path(sys.modules["jax"].__file__ or "").parent
        if package not in Path(information.func_filename).parents:
            names = information.safe_arg_names(len(types))
            parameters = {name: ("shape or type of", str(of)) for name, of in zip(names, types)}
            self._note_trace(information.func_name, weakref.ref(function), parameters)

    def _note_trace(self, name: str, function: Any, parameters: Dict[str, Tuple[str, str]]) -> None:
        """Note which parameters differ from those of this function's trace before."""
        if len(self._traced) >= _MOST_FUNCTIONS:
            self._traced.clear()
        key = (name, function)
        before, self._traced[key] = self._traced.get(key, {}), parameters
        for parameter, (what, new) in parameters.items():
            old = before.get(parameter, (what, new))[1]
            if old != new and len(self._retraced) < _MOST_REASONS:
                self._retraced.append(
                    "%s: new %s %s: %s, before %s" % (name, what, parameter, new, old)
                )

    # -- saves

    def beside_training(self, kind: str, begin: int, end: int) -> None:
        """Record a save or an evaluation on another thread, in monotonic nanoseconds."""
        if kind not in self.kinds:
            self.kinds.append(kind)
        self._add(kind, begin, end, 1)

    def _hook_saving(self, module: Any) -> bool:
        """Time the functions of torch that save, in their module and in the package that offers them."""
        package = sys.modules[module.__name__.rpartition(".")[0]]
        for name in ("save", "async_save"):
            save = getattr(module, name, None)
            if save is not None:
                timed = self._timed_save(save)
                for owner in (module, package):
                    if getattr(owner, name, None) is save:
                        self._undo.append(patch(owner, name, timed))
        return True

    def _timed_save(self, save: Callable[..., Any]) -> Callable[..., Any]:
        saving = self._saving

        @functools.wraps(save)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if getattr(saving, "is_on", False):
                return save(*args, **kwargs)
            saving.is_on, begin = True, monotonic_ns()
            try:
                result = save(*args, **kwargs)
            finally:
                saving.is_on = False
                known(functools.partial(self._saved, begin, monotonic_ns()))
            known(functools.partial(self._goes_on, result, monotonic_ns()))
            return result

        return timed

    def _saved(self, begin: int, end: int) -> None:
        if threading.get_ident() != self._training.ident:
            self.beside_training(BACKGROUND_SAVING, begin, end)
        elif not self._pauses():
            self._add(SAVING, begin, end, 1)

    def _goes_on(self, result: Any, begin: int) -> None:
        """Record a save that goes on in the background, if this is its future, once it ends."""
        future = getattr(result, "upload_completion", result)
        when_done = getattr(future, "add_done_callback", None)
        if when_done is not None:
            when_done(lambda _: self.beside_training(BACKGROUND_SAVING, begin, monotonic_ns()))

    def _torch_metrics(self) -> List[Any]:
        utils = sys.modules.get("torch._dynamo.utils")
        read: Optional[Callable[[], List[Any]]] = getattr(utils, "get_compilation_metrics", None)
        return [] if read is None else list(read())

    def _reasons(self) -> List[str]:
        """Return the last lines of the reasons why models were compiled again, each of them once."""
        reasons = (
            getattr(metrics, "recompile_reason", None)
            for metrics in self._torch_metrics()[self._compiled_before :]
        )
        every = (*(str(reason) for reason in reasons if reason), *self._retraced)
        lines = (reason.strip().splitlines()[-1] for reason in every)
        return list(dict.fromkeys(line[:_LONGEST_REASON] for line in lines))[:_MOST_REASONS]
