"""Run lines of advice as if they were pasted into a training program: FRAMEWORK LINES.json.

Each line has new objects for the names that it uses. A line that fails is printed with its error, and
the exit status is 1. With the framework ``flags`` the lines are horovodrun commands; their environments
are printed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> int:
    framework, path = sys.argv[1:]
    lines = json.loads(Path(path).read_text())
    if framework == "flags":
        return _flags(lines)
    names = {"keras": _keras, "torch": _torch}[framework]()
    failed = 0
    for line in lines:
        try:
            exec(compile(line, line, "exec"), next(names))
        except Exception as error:
            failed = 1
            print(f"{line}\n  {type(error).__name__}: {error}")
    print(f"{len(lines)} lines ran")
    return failed


def _keras() -> Any:
    import horovod.tensorflow.keras as hvd
    import tensorflow as tf

    hvd.init()
    while True:
        inputs = tf.keras.layers.Input((4, 4, 1))
        outputs = tf.keras.layers.Dense(1)(tf.keras.layers.Flatten()(inputs))
        yield {
            "tf": tf,
            "hvd": hvd,
            "dataset": tf.data.Dataset.from_tensor_slices((tf.zeros((64, 3)), tf.zeros(64))),
            "files": tf.data.Dataset.from_tensor_slices(["a", "b"]),
            "decode": lambda x, y: (x, y),
            "model": tf.keras.Model(inputs, outputs),
            "optimizer": tf.keras.optimizers.SGD(0.01),
            "loss": "mse",
            "callbacks": [],
        }


def _torch() -> Any:
    import horovod.torch as hvd
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader
    from torch.utils.data.distributed import DistributedSampler

    hvd.init()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        torch.distributed.init_process_group("gloo", f"file://{folder}/pg", rank=0, world_size=1)
        data = torch.utils.data.TensorDataset(torch.zeros(64, 3))
        while True:
            model = torch.nn.Linear(3, 1)
            parallel = DistributedDataParallel(model)
            yield {
                "torch": torch,
                "hvd": hvd,
                "data": data,
                "DataLoader": DataLoader,
                "DistributedSampler": DistributedSampler,
                "DistributedDataParallel": lambda _model, **more: DistributedDataParallel(
                    torch.nn.Linear(3, 1), **more
                ),
                "fully_shard": fully_shard,
                "MixedPrecisionPolicy": MixedPrecisionPolicy,
                "module": torch.nn.Linear(3, 1),
                "model": parallel,
                "optimizer": torch.optim.SGD(model.parameters(), 0.01),
                "loss": parallel(torch.zeros(2, 3)).sum(),
                "sampler": DistributedSampler(data, num_replicas=1, rank=0),
                "epoch": 1,
            }


def _flags(lines: list[str]) -> int:
    from horovod.runner.common.util.config_parser import set_env_from_args
    from horovod.runner.launch import parse_args

    for line in lines:
        sys.argv = line.replace("\\\n", " ").split()
        print(json.dumps(set_env_from_args({}, parse_args())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
