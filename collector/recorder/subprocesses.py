"""What other processes do for a training: uploads to MLflow, points of other tools, limited programs.

The recorder imports the standard library only and waits for no server. So it starts another process,
``stallscope.collector.mlflow.process``, and sends it the logs' paths over a pipe. That process continues
when training is killed; when training ends normally, it gets some time to finish.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

logger = logging.getLogger("stallscope")
#: Messages to the process: a log is being written; a log is complete; training is over.
WATCH = "watch"
ENDED = "ended"
OVER = "over"
# A container that ends with the process would lose what was not sent: wait a moment.
_LAST_UPLOAD_SECONDS = 30.0
# Time between the process's last message and its exit.
_EXIT_SECONDS = 1.0
_uploaders: Dict[str, "_Uploader"] = {}
# By folder: the MLflow run of its logs, and files that came before any log.
_runs: Dict[Path, str] = {}
_companion_files: Dict[Path, List[Path]] = {}
_lock = threading.Lock()
FORMATS = ("tensorboard", "wandb", "mlflow")
#: How long the end of the program is delayed at most, for the last points.
PATIENCE_SECONDS = 10.0
#: The app needs a newer Python than the recorder.
PYTHON_OF_THE_APP = (3, 11)
# By run and place: the process, and its errors.
_followers: Dict[Tuple[str, str], Tuple["subprocess.Popen[bytes]", Any]] = {}
# The process that has started them: a forked one inherits all this.
_pid = None
# It gets training's import path, however that was set up.
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv.pop())
from %s import main
sys.exit(main())
"""

# The time between two checks of its memory.
_LOOK_SECONDS = 0.1


def mlflow_run_of(given: Optional[str]) -> Optional[str]:
    """Return the MLflow run for the logs: the given one, or MLFLOW_RUN_ID's."""
    return given or os.environ.get("MLFLOW_RUN_ID") or None


def start_scalars(
    log_dir: Path, run_id: str, scalars: Optional[Tuple[str, str]], rank: int
) -> None:
    """Start the process that shows step times while training runs, if rank 0 wants one."""
    if scalars is not None and rank == 0:
        from . import subprocesses

        subprocesses.begin(log_dir, run_id, scalars)


def watch(log: Path, run_id: str) -> None:
    """Upload a log while it grows, and its companion files. Never raises."""
    _send_watch(log, run_id)
    _runs[log.parent] = run_id
    for file in _companion_files.pop(log.parent, []):
        upload_companion_file(file)


def _send_watch(file: Path, run_id: str) -> None:
    try:
        with _lock:
            uploader = _uploaders.get(run_id)
            # A forked process inherits its parent's uploader and must not write to it.
            if uploader is None or uploader.pid != os.getpid():
                uploader = _uploaders[run_id] = _Uploader(run_id)
            uploader.send(WATCH, file)
    except Exception as error:
        logger.warning(
            "stallscope: logs are not uploaded to MLflow's run %s: %s; training goes on",
            run_id,
            error,
        )


def finish(log: Path, run_id: str) -> None:
    """Note that a log is complete. Never raises and does not wait."""
    uploader = _uploaders.get(run_id)
    if uploader is not None and uploader.pid == os.getpid():
        uploader.send(ENDED, log)


def upload_companion_file(file: Path) -> None:
    """Upload a file that does not grow with the logs of its folder, now or once there are any."""
    run_id = _runs.get(file.parent)
    if run_id is None:
        _companion_files.setdefault(file.parent, []).append(file)
    else:
        _send_watch(file, run_id)
        finish(file, run_id)


class _Uploader:
    """The process that uploads to one run."""

    def __init__(self, run_id: str) -> None:
        self.pid = os.getpid()
        self._process = subprocess.Popen(
            program("stallscope.collector.mlflow.process", run_id),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Signals to the ranks and keys in the terminal must not end it.
            start_new_session=True,
        )
        self._run_id = run_id
        self._folders: Set[str] = set()
        self._listener = threading.Thread(
            target=self._listen, name="stallscope-upload", daemon=True
        )
        self._listener.start()
        # Registered before the sessions of its logs: those close first.
        atexit.register(self._finish)

    def send(self, message: str, log: Optional[Path] = None) -> None:
        if log is not None:
            self._folders.add(shlex.quote(str(log.parent)))
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([message, str(log)]).encode() + b"\n")
        except (OSError, ValueError):
            # It has ended and reported why.
            pass

    def _listen(self) -> None:
        """Log its messages until it ends, or until waiting for it is useless."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            logger.warning("stallscope: %s", line.decode(errors="replace").rstrip())
        try:
            status = self._process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return
        if status:
            logger.warning(
                "stallscope: the upload to MLflow's run %s has ended with status %d; training goes on",
                self._run_id,
                status,
            )

    def _finish(self) -> None:
        """Wait for the last upload after training, for a limited time."""
        if os.getpid() != self.pid:
            return
        # The end of the pipe is not enough: a forked worker may keep it open.
        self.send(OVER)
        self._listener.join(timeout=_LAST_UPLOAD_SECONDS)
        if self._listener.is_alive():
            logger.warning(
                "stallscope: process %d still uploads logs; if it is ended before it is done, "
                "stallscope collect %s --to mlflow:%s uploads the rest",
                self._process.pid,
                " ".join(sorted(self._folders)),
                self._run_id,
            )


# -- Start a process on rank 0 that appends the step time to TensorBoard, W&B or MLflow -----------


def check_scalars(scalars: Any) -> Tuple[str, str]:
    """Return the format and the place of an option such as ``tensorboard:runs/run-42``.

    Raises:
        TypeError, ValueError: if it is invalid.
    """
    if not isinstance(scalars, str):
        raise TypeError("scalars is text such as 'tensorboard:runs/run-42', not %r" % (scalars,))
    name, _, place = scalars.partition(":")
    if name not in FORMATS or not place:
        raise ValueError(
            "scalars is tensorboard:FOLDER, wandb:FOLDER or mlflow:RUN_ID, not %r" % scalars
        )
    # A folder may be relative to the current one, which may change.
    return name, scalars if name == "mlflow" else str(Path(place).absolute())


def begin(log_dir: Path, run_id: str, scalars: Tuple[str, str]) -> None:
    """Follow a run, unless this process does already. Never raises."""
    global _pid
    source = "%s#%s" % (log_dir, run_id)
    try:
        if _pid != os.getpid():
            _pid = os.getpid()
            _followers.clear()
            atexit.register(_end_all)
        key = (source, scalars[1])
        running = _followers.get(key)
        if running is not None and running[0].poll() is None:
            return
        if sys.version_info < PYTHON_OF_THE_APP:
            raise OSError("this needs Python 3.11 or later")
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # read at the end
        process = subprocess.Popen(
            program("stallscope.cli.beside_training", "follow", *scalars, source, str(_pid)),
            # Its end tells the process that training has ended.
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            # Signals to the ranks and keys in the terminal must not end it.
            start_new_session=True,
        )
        _followers[key] = process, errors
    except Exception as error:  # no error may reach training
        _warn(str(error))


def _end_all() -> None:
    """Ask all processes for their last points, and end those that take too long."""
    if os.getpid() != _pid:
        return
    try:
        running = [process for process, _ in _followers.values() if process.poll() is None]
        for process in running:
            if process.stdin is not None:
                process.stdin.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                _warn("the last points were not written within %g s" % PATIENCE_SECONDS)
        for process, errors in _followers.values():
            if process.poll():
                _warn(_reason(errors) or "its process ended with status %d" % process.returncode)
    except (Exception, KeyboardInterrupt):  # scalars must not change the program's result
        pass


def _reason(errors: Any) -> str:
    """Return the last line of the errors."""
    errors.seek(0)
    lines: List[str] = errors.read().decode("utf-8", "replace").splitlines()
    return lines[-1].replace("stallscope: ", "") if lines else ""


def _warn(reason: str) -> None:
    logger.warning("stallscope: scalars: %s; training and its log are not affected", reason)


# -- Start a part of Stallscope as another process, with training's interpreter and import path ---


def program(module: str, *arguments: str) -> List[str]:
    """Return the command that runs the function ``main`` of a module.

    Args:
        module: its name, such as ``stallscope.cli.main``.
        arguments: what follows the program's name in ``sys.argv``.
    """
    paths = [path for path in sys.path if isinstance(path, str)]
    return [sys.executable, "-c", _PROGRAM % module, *arguments, json.dumps(paths)]


# -- Run another process with limits on time and memory -------------------------------------------


class Limits(NamedTuple):
    """How long a process may take, and how much memory it may have."""

    seconds: float
    memory_bytes: int


class Result(NamedTuple):
    """The output of a process; ``reached`` names the limit that ended it, or is empty."""

    output: str
    errors: str
    status: int
    reached: str


def run_limited(command: List[str], limits: Limits) -> Result:
    """Run a command, and end it at a limit. Memory is limited on Linux only.

    Raises:
        OSError: if it does not start.
    """
    deadline = time.monotonic() + limits.seconds
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    try:
        while True:
            try:
                output, errors = process.communicate(timeout=_LOOK_SECONDS)
                return Result(output, errors, process.returncode, "")
            except subprocess.TimeoutExpired:
                reached = _reached(process.pid, deadline, limits)
                if reached:
                    return Result("", "", -1, reached)
    finally:
        # Do not wait for it: a process that waits for a network drive does not end at once.
        if process.poll() is None:
            process.kill()


def _reached(pid: int, deadline: float, limits: Limits) -> str:
    """Return which limit a process has reached; empty if none."""
    if time.monotonic() > deadline:
        return "%g s" % limits.seconds
    if _memory(pid) > limits.memory_bytes:
        return "%g GB of memory" % (limits.memory_bytes / 1e9)
    return ""


def _memory(pid: int) -> int:
    """Return the bytes of memory that are not files; 0 if unknown."""
    try:
        lines = Path("/proc/%d/status" % pid).read_text().splitlines()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in lines if line.startswith("RssAnon:")]
    return int(sizes[0]) * 1024 if sizes else 0
