"""Find the training of a script that was not edited, and record it with its framework's recorder.

Frameworks are patched right after the script has imported them, in its own process. What trains first is
recorded: Keras' ``fit``, a Trainer of transformers or Lightning, or a loop of PyTorch.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import importlib.machinery
import logging
import multiprocessing.process
import os
import runpy
import shutil
import sys
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple, Type

from .guards import Patches, patch_when_imported
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
        #: Whether the script has ended with an error, of which it says more itself.
        self.has_failed = False
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
            "lightning.fabric.strategies.launchers.subprocess_script": self._patch_launcher,
            "lightning_fabric.strategies.launchers.subprocess_script": self._patch_launcher,
        }
        patches.update({**Loops(self).patches, **GluonLoops(self).patches})
        patch_when_imported(patches)
        self._follow_processes()

    def _follow_processes(self) -> None:
        """Do the same in processes that the script spawns; those that it forks have it already."""
        process_type: Any = multiprocessing.process.BaseProcess
        original = process_type.__init__

        @functools.wraps(original)
        def initialise(process: Any, *args: Any, **kwargs: Any) -> None:
            original(process, *args, **kwargs)
            self.has_started_processes |= not _makes_batches(process)

        def reduce(process: Any, protocol: Any) -> Any:
            # Pickle a process that is spawned, together with this recording.
            reduced: Any = object.__reduce_ex__(process, protocol)
            make, given, *rest = reduced
            if _makes_batches(process):
                return (make, given, *rest)
            return (_followed, (self.log_dir, self.arguments, make, given), *rest)

        process_type.__init__ = initialise
        process_type.__reduce_ex__ = reduce

    def records(self, training: str) -> bool:
        """Say once, on rank 0, what is recorded; return whether this training is the one."""
        if self.recorded is None:
            self.recorded = training
            self.note("records %s in %s" % (training, self._shown_dir))
        return self.recorded == training

    def note(self, remark: str) -> None:
        """Say what is recorded, or why nothing is, on rank 0."""
        if _is_rank_0():
            _say(remark)

    def said_at_the_end(self) -> None:
        """Say why nothing was recorded, if that is so."""
        explained = self.has_failed or self.has_started_processes
        if self.recorded is not None or explained or os.getpid() != self._pid:
            return
        known = ", ".join(sorted(self.imported))
        reason = (
            "it has imported %s, and no fit, Trainer or optimizer of it has made a step" % known
            if known
            else "it has imported no framework that can be recorded without an edit"
        )
        self.note("found no training in this script: %s" % reason)

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

    def _patch_launcher(self, module: ModuleType) -> None:
        """Record the other ranks, too, for which Lightning runs the script again."""
        for name in ("_basic_subprocess_cmd", "_hydra_subprocess_cmd"):
            setattr(module, name, self._with_recording(getattr(module, name)))

    def _with_recording(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def command(*args: Any, **kwargs: Any) -> Any:
            returned = original(*args, **kwargs)
            # Hydra's command comes with a folder.
            words = returned[0] if isinstance(returned, tuple) else returned
            words[1:1] = ["-m", "stallscope.record", *self._options()]
            return returned

        return command

    def _options(self) -> List[str]:
        """Return the options that ask for the same recording."""
        given = {
            "--to": self.log_dir,
            "--name": self.arguments.get("run_name"),
            "--probe-input": self.arguments.get("probe_input"),
        }
        options = [
            "%s=%s" % (option, value) for option, value in given.items() if value is not None
        ]
        return [*options, *(["--synthetic"] if self.arguments.get("synthetic") else [])]

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


def _makes_batches(process: Any) -> bool:
    """Whether a process is a worker of PyTorch's loaders, which trains nothing."""
    module = getattr(getattr(process, "_target", None), "__module__", None)
    return str(module).startswith("torch.utils.data")


def _followed(
    log_dir: str, arguments: Dict[str, Any], make: Callable[..., Any], given: Tuple[Any, ...]
) -> Any:
    """Record a spawned process as well, and return its process object."""
    try:
        Unedited(log_dir, **arguments).install()
    except Exception as error:  # no error may reach the script
        _not_recorded("a spawned process", error)
    return make(*given)


def _not_recorded(what: str, error: Exception) -> None:
    logger.warning("stallscope: %s is not recorded: %r", what, error)


def _is_rank_0() -> bool:
    # Lightning's ranks have a local rank before they have a process group.
    return world_of_training().rank == 0 and os.environ.get("LOCAL_RANK", "0") == "0"


def _say(sentence: str) -> None:
    """Print a line to standard error, which no script's output is parsed from."""
    print("stallscope: %s" % sentence, file=sys.stderr, flush=True)


# -- the command ----------------------------------------------------------------------------------


def main(program: str) -> None:
    """Run the script or the module of the command line, and record its training.

    Args:
        program: the file that calls this.
    """
    words = sys.argv[1:]
    at = _options_end(words)
    given, rest = _parser().parse_args(words[:at]), words[at:]
    is_module = rest[:1] == ["-m"]
    if is_module or rest[:1] == ["--"]:
        del rest[0]
    if not rest:
        _parser().error("a SCRIPT is missing, or -m MODULE")
    script = Unedited(
        given.to,
        run_name=given.name,
        synthetic=given.synthetic,
        probe_input=given.probe_input,
    )
    sys.argv = rest
    _print_tracebacks_without(program)
    source = None if is_module else _source_of(rest[0])
    script.install()
    atexit.register(script.said_at_the_end)
    try:
        if source is None:
            _new_main()
            runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
        else:
            _run(rest[0], source)
    except BaseException as ended:
        script.has_failed = not isinstance(ended, SystemExit) or bool(ended.code)
        raise


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
    return parser


def _options_end(words: List[str]) -> int:
    """Return the number of words before the script or ``-m``: argparse would change the script's."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "--"):
        at += 2 if words[at] in ("--to", "--name", "--probe-input") else 1
    return min(at, len(words))


def _batches(number: str) -> Optional[int]:
    try:
        return check_probe_input(int(number))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _source_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        sentence = "stallscope: cannot open %s: %s" % (path, error.strerror)
        if shutil.which(path) is not None and os.sep not in path:
            sentence += "; launchers come first: %s ... -m stallscope.record SCRIPT" % path
        print(sentence, file=sys.stderr)
        # Python's own status.
        sys.exit(2)


def _run(path: str, source: bytes) -> None:
    """Run a file as ``python FILE`` does: processes that it starts find its ``__main__``."""
    # Since Python 3.9 a program has its absolute path.
    path = str(Path(path).absolute()) if sys.version_info >= (3, 9) else path
    if not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(Path(path).resolve().parent)
    module = _new_main()
    module.__file__, module.__cached__ = path, None  # type: ignore[attr-defined]
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    exec(compile(source, path, "exec"), vars(module))


def _new_main() -> ModuleType:
    """Put a new module in the place of the one that runs this command."""
    module = ModuleType("__main__")
    module.__builtins__ = __builtins__  # type: ignore[attr-defined]
    # Classes that spawned processes send back are looked up by the other name.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    return module


def _print_tracebacks_without(program: str) -> None:
    """Print tracebacks as they are without these files."""
    original = sys.excepthook

    def print_traceback(
        kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]
    ) -> None:
        files = (__file__, program)
        # The frames up to these files; those of a module that runs as a program follow them.
        frame, begins = trace, trace
        while frame is not None:
            if frame.tb_frame.f_code.co_filename in files:
                begins = frame.tb_next
            frame = frame.tb_next
        original(kind, error.with_traceback(begins), begins)

    sys.excepthook = print_traceback
