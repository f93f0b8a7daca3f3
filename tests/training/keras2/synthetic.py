"""Make synthetic data like real data, and train on it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import tensorflow as tf
from keras2.base import (
    BATCH,
    CLASSES,
    STEPS,
    Blocks,
    Case,
    classifier,
    ranked,
    seen,
)

from stallscope.keras import synthetic_like


def shapes(structure: Any) -> Any:
    """Return structure, dtypes and shapes as JSON."""

    def leaf(value: Any) -> str:
        if isinstance(value, tf.RaggedTensor):
            return f"ragged {value.dtype.name} {value.row_lengths().numpy().tolist()}"
        array = np.asarray(value)
        kind = "text" if array.dtype.kind in "OSU" else array.dtype.name
        return f"{type(value).__name__} {kind} {array.shape}"

    return json.loads(json.dumps(tf.nest.map_structure(leaf, structure)))


@ranked
def synthetic(case: Case) -> Any:
    inputs, labels = case.arrays()
    words = np.array(["some", "words"] * (STEPS * BATCH // 2))
    rows = tf.RaggedTensor.from_row_lengths(
        np.arange(2 * STEPS * BATCH), np.tile([1, 3], STEPS * BATCH // 2)
    )
    structure = {"numbers": inputs, "words": words, "flags": labels > 1, "rows": rows}
    dataset = tf.data.Dataset.from_tensor_slices((structure, labels)).batch(BATCH)
    stream = case.stream(3)
    blocks = Blocks((inputs, labels))
    first = {
        "dataset": [next(iter(dataset)), next(iter(synthetic_like(dataset)))],
        "stream": [next(iter(stream)), next(iter(synthetic_like(stream)))],
        "sequence": [blocks[0], synthetic_like(blocks)[0]],
        "generator": [
            (inputs[:3], labels[:3]),
            next(synthetic_like(pair for pair in [(inputs[:3], labels[:3])])),
        ],
        "arrays": [(inputs, labels), synthetic_like((inputs, labels))],
    }
    synthetic_batch = first["dataset"][1]
    try:
        synthetic_like(iter([]))
        refused = ""
    except ValueError as error:
        refused = str(error)
    model = classifier()
    case.fit(model, synthetic_like(case.data()), log=case.logger(synthetic=True), epochs=2)
    return seen(
        model,
        shapes={name: [shapes(real), shapes(like)] for name, (real, like) in first.items()},
        lengths={
            "dataset": int(synthetic_like(dataset).cardinality()),
            "stream": int(synthetic_like(stream).cardinality()),
            "sequence": len(synthetic_like(blocks)),
        },
        same_numbers=bool(
            np.array_equal(synthetic_batch[0]["numbers"], first["dataset"][0][0]["numbers"])
        ),
        labels_in_range=bool(np.all((synthetic_batch[1] >= 0) & (synthetic_batch[1] < CLASSES))),
        words=sorted({word.decode() for word in synthetic_batch[0]["words"].numpy()}),
        refused=refused,
    )
