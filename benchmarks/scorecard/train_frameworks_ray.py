"""Train cells of the frameworks chapter in workers of Ray Train; frameworks.py starts it.

python benchmarks/scorecard/train_frameworks_ray.py CELLS OUT
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import ray
import ray.train.torch
from cells import read_cells
from injection import Injection, Launch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer


def train(injection: Injection, log_dir: Path, steps: int) -> None:
    from train_frameworks_torch import Network, loader, sgd

    from stallscope.torch import StepLogger

    cell = injection.cell
    model = ray.train.torch.prepare_model(Network(injection))
    data = ray.train.torch.prepare_data_loader(loader(injection, steps, readers=cell.ranks))
    optimizer = sgd(model)
    with StepLogger(
        log_dir, optimizer=optimizer, model=model, run_name=cell.name, synthetic=cell.synthetic
    ) as log:
        for batch in log.watch(data):
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()


def work(config: dict[str, str]) -> None:
    """Train all cells, in each worker."""
    import torch
    from train_frameworks_torch import agree

    torch.set_num_threads(1)
    rank = ray.train.get_context().get_world_rank()
    Launch(Path(config["out"]), *read_cells(Path(config["plan"])), rank).train(train, agree)


def main() -> None:
    plan, out = sys.argv[1:]
    ranks = read_cells(Path(plan))[0][0].ranks
    os.environ |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        # It would be another process for each group of workers.
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    }
    # Ray's sockets need a folder with a short path.
    with tempfile.TemporaryDirectory(prefix="ray-") as sessions:
        ray.init(num_cpus=ranks, include_dashboard=False, _temp_dir=sessions)
        TorchTrainer(
            work,
            train_loop_config={"plan": plan, "out": out},
            scaling_config=ScalingConfig(num_workers=ranks),
            run_config=RunConfig(name="scorecard", storage_path=f"{sessions}/storage"),
        ).fit()
        ray.shutdown()


if __name__ == "__main__":
    main()
