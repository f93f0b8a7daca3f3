"""Measure loaders alone, each case with its own log folder.

    python input_cases.py keras OUT                   tf.data, Sequence, generators; then a fit
    python input_cases.py torch OUT                   DataLoaders
    horovodrun -np 2 python input_cases.py torch OUT  every rank at once, and then training

``OUT/CASE.json`` holds the result of a case, ``OUT/CASE`` its logs.
"""

from __future__ import annotations

import json
import logging
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

#: The delay of a loader's slow stage.
SLOW_SECONDS = 0.02
BATCH = 4
INPUTS = 8


class Warnings(logging.Handler):
    """Collects Stallscope's warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        logging.getLogger("stallscope").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def seen(measured: Any) -> dict[str, Any]:
    return {
        "text": str(measured),
        "batches": len(measured.batch_ms),
        "rate": measured.batches_per_second,
        "samples": measured.samples_per_batch,
        "stages": [(stage.kind, stage.name, stage.mean.ms) for stage in measured.stages],
        "no_stages": measured.no_stages,
        "ended": measured.ended,
        "error": measured.error,
        "path": None if measured.path is None else str(measured.path),
    }


def of_keras(out: Path) -> dict[str, Any]:
    import tensorflow as tf

    from stallscope.keras import StepLogger, measure_input

    warnings = Warnings()

    def wait(inputs: Any) -> Any:
        time.sleep(SLOW_SECONDS)
        return inputs

    def slow_augment(inputs: Any, label: Any) -> Any:
        return tf.ensure_shape(tf.py_function(wait, [inputs], tf.float32), [INPUTS]), label

    def decode(line: Any) -> Any:
        numbers = tf.io.decode_csv(line, [[0.0]] * INPUTS + [[0]])
        return tf.stack(numbers[:-1]), numbers[-1]

    def checked(inputs: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(inputs, np.int64(9))]):
            return tf.identity(inputs)

    def batches() -> Any:
        for _ in range(6):
            yield np.zeros([BATCH, INPUTS], np.float32)

    class Numbers(tf.keras.utils.Sequence):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            return np.full([BATCH, INPUTS], index), np.zeros(BATCH)

    lines = out / "lines.csv"
    lines.write_text("\n".join(",".join(["0.5"] * INPUTS + ["1"]) for _ in range(4000)))
    whole = (
        tf.data.Dataset.list_files(str(lines))
        .interleave(tf.data.TextLineDataset)
        .shard(2, 0)
        .map(decode)
        .map(slow_augment, num_parallel_calls=2)
        .shuffle(16)
        .batch(BATCH)
        .repeat()
        .prefetch(2)
    )
    cached = tf.data.Dataset.range(400).batch(BATCH).cache(str(out / "cached"))
    logs = str(out / "keras_run")
    results = {
        "pipeline": seen(measure_input(whole, steps=20)),
        "tiny": seen(measure_input(tf.data.Dataset.range(3).batch(1), log_dir=out / "other")),
        "one": seen(measure_input(tf.data.Dataset.range(1).batch(1), log_dir=out / "other")),
        "generator": seen(measure_input(batches(), log_dir=out / "other")),
        "from_generator": seen(
            measure_input(
                tf.data.Dataset.from_generator(
                    batches, output_signature=tf.TensorSpec([BATCH, INPUTS])
                ),
                log_dir=out / "other",
            )
        ),
        "sequence": seen(measure_input(Numbers(), log_dir=out / "other")),
        "filtered": seen(
            measure_input(
                tf.data.Dataset.range(4000).filter(lambda i: i % 2 == 0).batch(BATCH),
                log_dir=out / "other",
            )
        ),
        "cached": seen(measure_input(cached, steps=8, log_dir=out / "other")),
    }
    results["cached"]["after"] = sum(1 for _ in cached)
    assert warnings.messages == []
    raises = tf.data.Dataset.range(400).map(checked).batch(BATCH)
    results["raises"] = seen(measure_input(raises, log_dir=out / "other"))
    results["raises"]["warnings"] = warnings.messages[:]
    results["refused"] = []
    for arguments in (
        (np.zeros([3, 3]),),
        (whole, 1),
        (whole, "many"),
        (whole, 20, 3),
    ):
        try:
            measure_input(*arguments)
        except (TypeError, ValueError) as error:
            results["refused"].append(str(error))
    model = tf.keras.Sequential([tf.keras.Input([INPUTS]), tf.keras.layers.Dense(4)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(whole, steps_per_epoch=60, epochs=2, verbose=0, callbacks=[StepLogger(logs)])
    results["after"] = seen(measure_input(whole, steps=20))
    results["warnings"] = warnings.messages
    return results


def of_torch(out: Path) -> dict[str, Any]:
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

    from stallscope.torch import StepLogger, measure_input

    ranked = "HOROVOD_RANK" in os.environ
    warnings = Warnings()

    class Compose:
        def __init__(self, transforms: list[Any]) -> None:
            self.transforms = transforms

        def __call__(self, image: Any) -> Any:
            for transform in self.transforms:
                image = transform(image)
            return image

    class RandomFlip(torch.nn.Module):
        def forward(self, image: Any) -> Any:
            time.sleep(SLOW_SECONDS)
            return image.flip(0) if random.random() < 0.5 else image

    def to_tensor(image: Any) -> Any:
        time.sleep(SLOW_SECONDS / 8)
        return torch.from_numpy(image).float()

    class Images(Dataset):
        def __init__(self, count: int = 160, transform: Any = None) -> None:
            self.count = count
            self.transform = transform

        def __len__(self) -> int:
            return self.count

        def __getitem__(self, index: int) -> Any:
            image = np.random.rand(INPUTS)
            return self.transform(image) if self.transform else torch.from_numpy(image).float()

    class Own(Images):
        def __getitem__(self, index: int) -> Any:
            return self.turned(super().__getitem__(index))

        def turned(self, image: Any) -> Any:
            time.sleep(SLOW_SECONDS)
            return image

    class Damaged(Images):
        def __getitem__(self, index: int) -> Any:
            if index == 21:
                raise OSError("image 21 is damaged\nsecond line")
            return super().__getitem__(index)

    class Stream(IterableDataset):
        def __iter__(self) -> Any:
            for _ in range(80):
                yield self.parsed()

        def parsed(self) -> Any:
            time.sleep(SLOW_SECONDS)
            return torch.zeros(INPUTS)

    images = Images(transform=Compose([to_tensor, RandomFlip()]))
    loader = DataLoader(images, batch_size=BATCH, shuffle=True)
    if ranked:
        import horovod.torch as hvd
        from asleep import wait_asleep

        hvd.init()
        wait_asleep()
        model = torch.nn.Linear(INPUTS, 4)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), 0.01), named_parameters=model.named_parameters()
        )
        logs = out / "ranks_run"
        # A busy machine may start one rank much later than the other.
        hvd.allreduce(torch.zeros(1))
        results = {"loader": seen(measure_input(loader, log_dir=logs))}
        with StepLogger(logs, optimizer=optimizer) as log:
            for batch in log.watch(loader):
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
        results["warnings"] = warnings.messages
        return results
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    results = {
        "transforms": seen(measure_input(loader, log_dir=out / "other")),
        "subset": seen(measure_input(DataLoader(Subset(images, range(40)), batch_size=BATCH))),
        "workers": seen(measure_input(DataLoader(Images(), batch_size=BATCH, num_workers=2))),
        "own": seen(measure_input(DataLoader(Own(), batch_size=BATCH))),
        "stream": seen(measure_input(DataLoader(Stream(), batch_size=BATCH))),
        "unbatched": seen(measure_input(DataLoader(Images(), batch_size=None))),
        "tiny": seen(measure_input(DataLoader(Images(3), batch_size=2))),
        **of_petastorm(out / "rows"),
        "empty": seen(measure_input([])),
        "generator": seen(measure_input(torch.zeros(BATCH) for _ in range(6))),
    }
    assert warnings.messages == []
    results["raises"] = seen(measure_input(DataLoader(Damaged(), batch_size=BATCH)))
    results["raises"]["warnings"] = warnings.messages
    results["same_numbers"] = (
        bool((torch.get_rng_state() == states[0]).all())
        and random.getstate() == states[1]
        and np.random.get_state()[1].tolist() == states[2]
    )
    results["profile"] = sys.getprofile() is None
    results["refused"] = []
    try:
        measure_input(3)
    except TypeError as error:
        results["refused"].append(str(error))
    return results


def of_petastorm(folder: Path) -> dict[str, Any]:
    """Measure a pool slower than the work after it, a faster one, and one without a queue."""
    from petastorm.pytorch import DataLoader, decimal_friendly_collate
    from row_groups import reader, written

    from stallscope.torch import measure_input

    def slowly(rows: Any) -> Any:
        time.sleep(SLOW_SECONDS)
        return decimal_friendly_collate(rows)

    rows = 40 * BATCH
    url = written(folder, np.zeros((rows, INPUTS), np.float32), np.arange(rows), rows=BATCH)
    results = {}
    for name, options, collate in (
        ("slow_pool", {"pause": SLOW_SECONDS}, decimal_friendly_collate),
        ("fast_pool", {}, slowly),
        ("no_queue", {"reader_pool_type": "dummy"}, decimal_friendly_collate),
    ):
        with reader(url, num_epochs=4, **options) as source:
            loader = DataLoader(source, batch_size=BATCH, collate_fn=collate)
            results[name] = seen(measure_input(loader))
    return results


if __name__ == "__main__":
    kind, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    rank = os.environ.get("HOROVOD_RANK", "0")
    result = of_keras(folder) if kind == "keras" else of_torch(folder)
    (folder / f"{kind}-{rank}.json").write_text(json.dumps(result))
