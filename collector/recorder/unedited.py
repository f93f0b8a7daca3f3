"""Find the training of a script that was not edited, and record it with its framework's recorder.

Frameworks are patched right after the script has imported them, in its own process. What trains first is
recorded: Keras' ``fit``, a Trainer of transformers or Lightning, or a loop of PyTorch.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import multiprocessing.process
import os
import runpy
import sys
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Set, Type

from .job.world import world_of_training
from .options import OptionArguments, check_probe_input
from .unedited_loops import GluonLoops, Loops

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("stallscope")

#: The folder for the logs, below the current one.
LOG_DIR = "stallscope-logs"
#: Variables in place of the options.
TO, NAME, PROBE = "STALLSCOPE_TO", "STALLSCOPE_NAME", "STALLSCOPE_PROBE_INPUT"

#: The modules in which a patch is made, each with the function that makes it.
Patches = Dict[str, Callable[[ModuleType], None]]


class Unedited:
    """One process of a script that is recorded without an edit.

    Args:
        log_dir: the folder for the logs.
        arguments: more arguments of StepLogger.
    """

    def __init__(self, log_dir: str, **arguments: Unpack[OptionArguments]) -> None:
        # Scripts may change their folder.
        self.log_dir = str(Path(log_dir).absolute())
        self._shown_dir = log_dir
        self.arguments: Dict[str, Any] = dict(arguments)
        self._pid = os.getpid()
        #: What is recorded; None before a training began.
        self.recorded: Optional[str] = None
        #: What the script has imported that can be recorded.
        self.imported: Set[str] = set()
        #: Whether the script has started processes, which may train.
        self.has_started_processes = False
        self._keras_logger: Any = None

    def install(self) -> None:
        """Patch what is imported already, and the rest when it is imported."""
        patches: Patches = {
            # Keras 2 of TensorFlow 2.12, of later versions, on its own, and Keras 3.
            "keras.callbacks": self._patch_keras,
            "keras.src.callbacks": self._patch_keras,
            "tf_keras.src.callbacks": self._patch_keras,
            "keras.src.callbacks.callback_list": self._patch_keras,
            "transformers.trainer": self._patch_transformers,
            "lightning.pytorch.trainer.trainer": self._patch_lightning,
            "pytorch_lightning.trainer.trainer": self._patch_lightning,
        }
        patches.update({**Loops(self).patches, **GluonLoops(self).patches})
        for name in patches:
            module = sys.modules.get(name)
            if module is not None:
                _guarded(patches[name], module)
        sys.meta_path.insert(0, _ImportWatch(patches))
        self._follow_processes()

    def _follow_processes(self) -> None:
        """Do the same in processes that the script spawns; those that it forks have it already."""
        process_type: Any = multiprocessing.process.BaseProcess
        original = process_type.__init__

        @functools.wraps(original)
        def initialise(process: Any, *args: Any, **kwargs: Any) -> None:
            original(process, *args, **kwargs)
            target = getattr(process, "_target", None)
            if not str(getattr(target, "__module__", "")).startswith("torch.utils.data"):
                self.has_started_processes = True
                if target is not None and getattr(process, "_start_method", None) != "fork":
                    process._target = _Followed(target, self.log_dir, self.arguments)

        process_type.__init__ = initialise

    def records(self, training: str) -> bool:
        """Say once, on rank 0, what is recorded; return whether this training is the one."""
        if self.recorded is None:
            self.recorded = training
            if world_of_training().rank == 0:
                _say("records %s in %s" % (training, self._shown_dir))
        return self.recorded == training

    def said_at_the_end(self) -> None:
        """Say why nothing was recorded, if that is so."""
        if self.recorded is not None or self.has_started_processes or os.getpid() != self._pid:
            return
        if world_of_training().rank == 0:
            known = ", ".join(sorted(self.imported))
            reason = (
                "it has imported %s, and no fit, Trainer or optimizer of it has made a step" % known
                if known
                else "it has imported no framework that can be recorded without an edit"
            )
            _say("found no training in this script: %s" % reason)

    # -- the frameworks

    def _patch_keras(self, module: ModuleType) -> None:
        callbacks = getattr(module, "CallbackList", None)
        if callbacks is None or hasattr(callbacks.__init__, "__wrapped__"):
            return
        self.imported.add("Keras")
        original = callbacks.__init__

        @functools.wraps(original)
        def with_logger(owner: Any, callbacks: Any = None, *args: Any, **kwargs: Any) -> None:
            model = kwargs.get("model")
            if model is not None and getattr(model, "optimizer", None) is not None:
                callbacks = self._with_keras_logger(callbacks)
            original(owner, callbacks, *args, **kwargs)

        callbacks.__init__ = with_logger

    def _with_keras_logger(self, callbacks: Any) -> Any:
        """Add the logger to the callbacks of a model that trains, evaluates or predicts."""
        try:
            given = callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]
            given = [callback for callback in given if callback is not None]
            if self._keras_logger is None:
                self._keras_logger = _keras_logger(self)
            if any(hasattr(callback, "recording_type") for callback in given):
                return callbacks
            return [*given, self._keras_logger]
        except Exception as error:  # no error may reach training
            _not_recorded("Keras", error)
            return callbacks

    def _patch_transformers(self, module: ModuleType) -> None:
        self.imported.add("transformers")

        def add(trainer: Any) -> None:
            from .pytorch.trainer_callback import StepLogger

            training = "the training of transformers' Trainer"
            callbacks = trainer.callback_handler.callbacks
            self._add_logger(StepLogger, training, callbacks, trainer.add_callback)

        self._before(module.Trainer, "train", "transformers' Trainer", add)

    def _patch_lightning(self, module: ModuleType) -> None:
        self.imported.add("Lightning")

        def add(trainer: Any) -> None:
            from .pytorch.lightning_callback import StepLogger

            training = "the fit of Lightning's Trainer"
            self._add_logger(StepLogger, training, trainer.callbacks, trainer.callbacks.append)

        self._before(module.Trainer, "fit", "Lightning's Trainer", add)

    def _add_logger(
        self, logger_type: Any, training: str, callbacks: List[Any], add: Callable[[Any], None]
    ) -> None:
        """Add the recorder to a Trainer's callbacks, unless the script has done so."""
        has_one = any(isinstance(callback, logger_type) for callback in callbacks)
        if not has_one and self.records(training):
            add(logger_type(self.log_dir, **self.arguments))

    def _before(self, owner: Any, name: str, what: str, add: Callable[[Any], None]) -> None:
        """Call ``add`` with a Trainer each time before its method that trains."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def training(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                add(trainer)
            except Exception as error:  # no error may reach training
                _not_recorded(what, error)
            return original(trainer, *args, **kwargs)

        setattr(owner, name, training)


def _keras_logger(script: Unedited) -> Any:
    """Make the callback for Keras, which says what it records when a training begins."""
    from .keras_common.fit_callback import is_keras_2

    if is_keras_2():
        from .tf_keras.tf_keras_callback import StepLogger
    else:
        from .keras3.keras3_callback import StepLogger  # type: ignore[assignment]

    class FoundFit(StepLogger):
        def on_train_begin(self, logs: Any = None) -> None:
            if script.records("Keras' fit"):
                super().on_train_begin(logs)

    return FoundFit(script.log_dir, **script.arguments)


class _Followed:
    """What a spawned process runs, with the same recording."""

    def __init__(self, target: Callable[..., Any], log_dir: str, arguments: Dict[str, Any]) -> None:
        self._target = target
        self._log_dir = log_dir
        self._arguments = arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            Unedited(self._log_dir, **self._arguments).install()
        except Exception as error:  # no error may reach the script
            _not_recorded("a spawned process", error)
        return self._target(*args, **kwargs)


# -- imports of the script ------------------------------------------------------------------------


class _ImportWatch(importlib.abc.MetaPathFinder):
    """Patches modules right after they were imported, each once."""

    def __init__(self, patches: Patches) -> None:
        self._patches = patches
        self._searching: List[str] = []

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname not in self._patches or fullname in self._searching:
            return None
        self._searching.append(fullname)
        try:
            spec = importlib.util.find_spec(fullname)
        except (ImportError, ValueError):
            return None
        finally:
            self._searching.remove(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, self._patches[fullname])
        return spec


class _PatchingLoader(importlib.abc.Loader):
    """Loads a module as another loader does, and patches it."""

    def __init__(self, loader: Any, patch: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        module: Optional[ModuleType] = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        spec = module.__spec__
        if spec is not None:
            # What asks for the module's source or resources finds its own loader.
            spec.loader = module.__loader__ = self._loader
        _guarded(self._patch, module)


def _guarded(patch: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        patch(module)
    except Exception as error:  # no error may reach the script
        _not_recorded(module.__name__, error)


def _not_recorded(what: str, error: Exception) -> None:
    logger.warning("stallscope: %s is not recorded: %r", what, error)


def _say(sentence: str) -> None:
    """Print a line to standard error, which no script's output is parsed from."""
    print("stallscope: %s" % sentence, file=sys.stderr, flush=True)


# -- the command ----------------------------------------------------------------------------------


def main(program: str) -> None:
    """Run the script or the module of the command line, and record its training.

    Args:
        program: the file that calls this.
    """
    given = _parser().parse_args()
    rest = given.module or given.script
    if not rest:
        _parser().error("a SCRIPT is missing, or -m MODULE")
    code = None if given.module else _code_of(rest[0])
    script = Unedited(
        given.to,
        run_name=given.name,
        synthetic=given.synthetic,
        probe_input=given.probe_input,
    )
    script.install()
    atexit.register(script.said_at_the_end)
    sys.argv = rest
    _without_these_frames(program)
    if code is None:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        _run(code)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m stallscope.record",
        usage="%(prog)s [--to DIR] [--name NAME] [--synthetic] [--probe-input BATCHES]"
        " (SCRIPT | -m MODULE) [ARGUMENT …]",
        description="Record a training script that is not edited.",
        allow_abbrev=False,
    )
    environment = os.environ
    parser.add_argument(
        "--to",
        metavar="DIR",
        default=environment.get(TO) or LOG_DIR,
        help="the folder for the logs; by default $%s, otherwise %s" % (TO, LOG_DIR),
    )
    parser.add_argument(
        "--name",
        default=environment.get(NAME) or None,
        help="the run's name; by default $%s" % NAME,
    )
    parser.add_argument(
        "--synthetic", action="store_true", help="the script trains on synthetic data: a baseline"
    )
    parser.add_argument(
        "--probe-input",
        metavar="BATCHES",
        type=_batches,
        default=environment.get(PROBE) or None,
        help="measure what faster input gains, on so many batches that are fetched ahead; 20 are enough"
        " (by default $%s, otherwise none)" % PROBE,
    )
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="a module to run"
    )
    parser.add_argument("script", nargs=argparse.REMAINDER, metavar="SCRIPT", help="its path")
    return parser


def _batches(number: str) -> Optional[int]:
    try:
        return check_probe_input(int(number))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _code_of(path: str) -> CodeType:
    try:
        with Path(path).open("rb") as file:
            # Since Python 3.9 a program has its absolute path.
            path = str(Path(path).absolute()) if sys.version_info >= (3, 9) else path
            return compile(file.read(), path, "exec")
    except OSError as error:
        sys.exit("stallscope: cannot open %s: %s" % (path, error.strerror))


def _run(code: CodeType) -> None:
    """Run a file as ``python FILE`` does: processes that it starts find its ``__main__``."""
    path = code.co_filename
    sys.path[0] = str(Path(path).resolve().parent)
    module = ModuleType("__main__")
    module.__file__ = path
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    sys.modules["__main__"] = module
    exec(code, vars(module))


def _without_these_frames(program: str) -> None:
    """Print tracebacks as they are without these files."""
    original = sys.excepthook

    def print_traceback(
        kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        files = (__file__, program, runpy.__file__, "<frozen runpy>")
        while trace is not None and trace.tb_frame.f_code.co_filename in files:
            trace = trace.tb_next
        original(kind, error.with_traceback(trace), trace)

    sys.excepthook = print_traceback
