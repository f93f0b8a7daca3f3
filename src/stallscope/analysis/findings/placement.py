"""Check the cores, the accelerators and the platform on which ranks run."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.formatting.lists import counted, listed, ranks_in_words

from ..advice.advise import for_crowded_cores
from ..advice.piece import Advice
from ..settings.cores import cpu_loads
from ..settings.setup import machines
from .finding import Finding
from .records import Records

_DATABRICKS = "databricks:"
# Slightly more threads than cores fill gaps in which others wait.
_TOO_MANY = 1.5


def threads_oversubscribed(records: Records) -> Iterator[Finding]:
    """Find the host with the most compute threads per core."""
    over = [load for load in cpu_loads(records.last_log.values()) if load.over > _TOO_MANY]
    if not over:
        return
    worst = max(over, key=lambda load: load.over)
    also = f" This applies to {len(over)} hosts." if len(over) > 1 else ""
    yield Finding(
        "threads_oversubscribed",
        "warning",
        "More threads than CPU cores",
        f"On {listed('host', [worst.host])}, {ranks_in_words(worst.ranks)} compute with "
        f"{counted(worst.threads, 'intra-op thread')} together on "
        f"{counted(worst.cores, 'CPU core')}, and compete for them.{also}",
        str(for_crowded_cores(records.setup, worst)),
    )


def accelerators_not_pinned(records: Records) -> Iterator[Finding]:
    """Find ranks that share accelerators; only TensorFlow lists each accelerator of a rank."""
    if records.setup.framework != "keras":
        return
    for logs in machines(records.last_log.values()).values():
        several = [log.rank for log in logs if _accelerators(log.facts.get("devices")) > 1]
        if len(logs) < 2 or len(several) < 2:
            continue
        count = _accelerators(records.last_log[several[0]].facts.get("devices"))
        devices = 'tf.config.list_physical_devices("GPU")'
        line = f'tf.config.set_visible_devices({devices}[hvd.local_rank()], "GPU")'
        yield Finding(
            "accelerators_not_pinned",
            "warning",
            "Ranks share accelerators",
            f"On {listed('host', [logs[0].host])}, {ranks_in_words(sorted(several))} each see {count} "
            "accelerators: every rank allocates memory on all of them, and all ranks compute on the "
            "first.",
            f"Give every rank its own accelerator, before anything computes: `{line}`.",
        )
        return


def horovod_leaves_databricks(records: Records) -> Iterator[Finding]:
    """Find Horovod jobs on Databricks: its later runtimes have no Horovod."""
    setup = records.setup
    if not records.run.source.startswith(_DATABRICKS) or setup.library != "horovod":
        return
    if setup.framework == "torch":
        advice = Advice(
            "Before you upgrade, let TorchDistributor start the ranks, with DistributedDataParallel in "
            "place of hvd.DistributedOptimizer",
            "from pyspark.ml.torch.distributor import TorchDistributor; TorchDistributor("
            f"num_processes={setup.ranks}, local_mode=False, use_gpu={bool(setup.gpu)}).run(train)",
        )
    else:
        advice = Advice(
            "Before you upgrade, plan for tf.distribute, which Databricks names for TensorFlow, or "
            "install Horovod in the job's own environment"
        )
    yield Finding(
        "horovod_leaves_databricks",
        "info",
        "Databricks' later runtimes come without Horovod",
        "This job trained with Horovod, and its logs are on Databricks. HorovodRunner and Horovod are "
        "deprecated there; runtimes after 15.4 LTS ML have neither.",
        str(advice),
    )


def _accelerators(devices: object) -> int:
    return devices.count("GPU") if isinstance(devices, list) else 0
