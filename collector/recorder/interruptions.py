"""Time within steps that is no work of the model: Python's garbage collections, and compilations.

Both are intervals of the rank's own clock, and the analysis finds the steps that they delayed. Hooks run
only when something happens. An interval below a millisecond is only counted.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
from time import monotonic_ns
from typing import Any, Callable, Dict, List, Optional, Tuple

from .guards import patch
from .job.job_facts import known
from .step_log.line_format import COMPILATION, GARBAGE_COLLECTION, InterruptionRow

_LEAST_NS = 10**6
# Reasons of compilations may have several lines.
_MOST_REASONS, _LONGEST_REASON = 8, 200
# Functions of TensorFlow whose traces are compared.
_MOST_FUNCTIONS = 1024
#: JAX's events about compiling, whose durations are reported when they end.
_OF_JAX = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)


# TensorFlow's module, which is not public, and its function that traces.
_TF_TRACING = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
_TRACES = "_create_concrete_function"


class Interruptions:
    """Records collections and compilations of this process as rows.

    Args:
        emit: receives each row, on any thread.
        next_step: returns the number of the next step.
    """

    def __init__(
        self, emit: Callable[[InterruptionRow], None], next_step: Callable[[], int]
    ) -> None:
        self._emit = emit
        self._next_step = next_step
        # A forked child, such as a loader's worker, has a copy of the hooks.
        self._pid = os.getpid()
        self._collecting = self._compiling = 0
        #: Numbers and nanoseconds by kind, also of short ones.
        self._counts = {GARBAGE_COLLECTION: 0, COMPILATION: 0}
        self._times = {GARBAGE_COLLECTION: 0, COMPILATION: 0}
        self._undo: List[Callable[[], None]] = []
        self._hooked: List[str] = []
        self._compiled_before = 0
        # Why TensorFlow traced again, and the parameters of each function when it was traced last.
        self._retraced: List[str] = []
        self._traced: Dict[Tuple[str, int], Dict[str, Tuple[str, str]]] = {}
        #: What is recorded; compilations only once there is a compiler that tells them.
        self.kinds: List[str] = []

    def start(self) -> None:
        """Hook into the collector, and into the compilers of frameworks that are imported."""
        gc.callbacks.append(self._collected)
        self._undo.append(lambda: gc.callbacks.remove(self._collected))
        self.kinds.append(GARBAGE_COLLECTION)
        self.hook_compilers()

    def hook_compilers(self) -> bool:
        """Hook into compilers that have been imported since the last call; return whether any were."""
        before = len(self.kinds)
        for name, hook in (
            ("torch._dynamo.callback", self._hook_torch),
            ("jax.monitoring", self._hook_jax),
            (_TF_TRACING, self._hook_tensorflow),
        ):
            module = sys.modules.get(name)
            if module is not None and name not in self._hooked:
                self._hooked.append(name)
                # Versions differ, and the recording works without it.
                if known(functools.partial(hook, module)) and COMPILATION not in self.kinds:
                    self.kinds.append(COMPILATION)
        return len(self.kinds) > before

    def stop(self) -> None:
        """Remove all hooks."""
        while self._undo:
            known(self._undo.pop())

    def facts(self) -> Dict[str, Any]:
        """Return how many there were, how long they took, and why models were compiled again."""
        facts: Dict[str, Any] = {}
        for kind, name in ((GARBAGE_COLLECTION, "collections"), (COMPILATION, "compilations")):
            if self._counts[kind]:
                ms = round(self._times[kind] / 1e6, 1)
                facts[name] = {"count": self._counts[kind], "ms": ms}
        if "collections" in facts:
            facts["collections"]["thresholds"] = list(gc.get_threshold())
        reasons = known(self._reasons) if "compilations" in facts else None
        if reasons:
            facts["compilations"]["reasons"] = reasons
        return facts

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
            if is_on[0] and event in _OF_JAX:
                now = monotonic_ns()
                self._add(COMPILATION, now - int(seconds * 1e9), now, 1)

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
                    known(lambda: self._note_trace(function_type, arguments[2]))

        self._undo.append(patch(module, _TRACES, timed))
        return True

    def _note_trace(self, function_type: Any, options: Any) -> None:
        """Note what is new in a function's parameters; ``options`` belong to the function."""
        if len(self._traced) >= _MOST_FUNCTIONS:
            self._traced.clear()
        # Texts: types may keep the model alive.
        parameters = {
            name: (type(parameter.type_constraint).__name__, str(parameter.type_constraint))
            for name, parameter in function_type.parameters.items()
        }
        key = (options.name, id(options.function_cache))
        before, self._traced[key] = self._traced.get(key, {}), parameters
        for name, (kind, new) in parameters.items():
            old = before.get(name, (kind, new))[1]
            if old != new and len(self._retraced) < _MOST_REASONS:
                what = "Python argument" if kind == "Literal" else "shape or type of"
                self._retraced.append(
                    "%s: new %s %s: %s, before %s" % (options.name, what, name, new, old)
                )

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
