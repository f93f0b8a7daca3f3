"""Start the servers for manual work, and stop them.

PYTHONPATH=tools python -m services start [NAME…]
PYTHONPATH=tools python -m services stop

Their files are in .stallscope/services, or in the folder that STALLSCOPE_SERVICES names.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import processes

from . import azure, spark
from .azure import azure_server
from .gcs import gcs_server
from .mlflow import mlflow_server
from .s3 import s3_server
from .server import ENVIRONMENT, ServerError
from .spark import spark_cluster
from .ssh import ssh_server

_USUAL = Path(__file__).parents[2] / ".stallscope" / "services"
STATE = Path(os.environ.get("STALLSCOPE_SERVICES", _USUAL)).absolute()
#: The process that keeps the servers.
KEEPER = STATE / "pid"
# Names of hosts in the ssh configuration, all of which reach the one sshd.
_HOSTS = ("alpha", "beta")
_MAKE = f"tools/services-env.sh {ENVIRONMENT}"


def main(words: list[str]) -> int:
    if words[:1] == ["start"] and set(words[1:]) <= set(_STARTERS):
        return start(words[1:] or [name for name in _STARTERS if name not in _missing()])
    if words == ["stop"]:
        return stop()
    names = " ".join(f"[{name}]" for name in _STARTERS)
    print(f"usage: python -m services start {names} | stop", file=sys.stderr)
    return 2


def start(names: list[str]) -> int:
    """Start servers, print how to reach them, and keep them until a signal comes."""
    if processes.runs(_noted(KEEPER)):
        print(f"the servers are running already ({KEEPER}): make services-stop", file=sys.stderr)
        return 1
    stop()
    shutil.rmtree(STATE, ignore_errors=True)
    STATE.mkdir(parents=True)
    KEEPER.write_text(processes.identity(os.getpid()) or "")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    try:
        with ExitStack() as stack:
            for name in names:
                print(_STARTERS[name](stack), flush=True)
            for hint in _missing().values():
                print(hint)
            print(
                f"Logs are in {STATE}. Ctrl-C or make services-stop ends all servers.", flush=True
            )
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except ServerError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        KEEPER.unlink(missing_ok=True)


def _leave(*_: object) -> None:
    """Interrupt the main program once; further signals are ignored while servers end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def stop() -> int:
    """End the process that keeps the servers, and servers that it left when it was killed."""
    for noted in [KEEPER, *STATE.glob("*/pid")]:
        if processes.runs(_noted(noted)):
            processes.end(int(_noted(noted).partition(" ")[0]))
        noted.unlink(missing_ok=True)
    return 0


def _missing() -> dict[str, str]:
    """Return the servers that cannot be started here, with advice for each."""
    hints = {
        "azure": (azure.READY, f"Azurite is not installed (it comes from npm's registry): {_MAKE}"),
        "spark": (spark.READY, f"Spark is not installed (it needs Java): {_MAKE} spark"),
    }
    return {name: hint for name, (ready, hint) in hints.items() if not ready.exists()}


def _mlflow(stack: ExitStack) -> str:
    uri = stack.enter_context(mlflow_server(STATE / "mlflow"))
    return _reached("MLflow", uri, {"MLFLOW_TRACKING_URI": uri})


def _s3(stack: ExitStack) -> str:
    s3 = stack.enter_context(s3_server(STATE / "s3"))
    return _reached("S3", f"{s3.endpoint}, with the bucket s3://{s3.bucket}", s3.settings())


def _gcs(stack: ExitStack) -> str:
    gcs = stack.enter_context(gcs_server(STATE / "gcs"))
    where = f"{gcs.endpoint}, with the bucket gs://{gcs.bucket}"
    return _reached("Google Cloud Storage", where, gcs.settings())


def _azure(stack: ExitStack) -> str:
    account = stack.enter_context(azure_server(STATE / "azure"))
    where = f"{account.endpoint}, with the container az://{account.container}"
    return _reached("Azure", where, account.settings())


def _ssh(stack: ExitStack) -> str:
    ssh = stack.enter_context(ssh_server(STATE / "ssh"))
    config = STATE / "ssh" / "config"
    config.write_text(
        ssh.config(_HOSTS, f"IdentityFile {ssh.key}", f"UserKnownHostsFile {ssh.known_hosts}")
    )
    return (
        f"ssh: {' and '.join(f'ssh://{host}' for host in _HOSTS)} are 127.0.0.1:{ssh.port}, "
        f"with this line at the top of ~/.ssh/config\n    Include {config}\n"
    )


def _spark(stack: ExitStack) -> str:
    cluster = stack.enter_context(spark_cluster(STATE))
    return _reached("Spark", f"executors' logs are in {cluster.work}", {"MASTER": cluster.master})


def _reached(name: str, where: str, settings: dict[str, str]) -> str:
    exports = [f"    export {key}={shlex.quote(value)}\n" for key, value in settings.items()]
    return f"{name}: {where}\n{''.join(exports)}"


def _noted(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


_STARTERS: dict[str, Callable[[ExitStack], str]] = {
    "mlflow": _mlflow,
    "s3": _s3,
    "gcs": _gcs,
    "azure": _azure,
    "ssh": _ssh,
    "spark": _spark,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
