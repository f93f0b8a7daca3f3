"""Find the logs among a run's artifacts: uploaded step logs, or else all possible logs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from ..sources.base import SourceFile
from ..sources.chunk_names import FOLDER, LOGS
from ..sources.chunks import join_chunks

# Weights and images may be large, and are not logs.
_NO_LOGS = re.compile(
    r"\.(bin|ckpt|gif|h5|jpe?g|keras|npy|npz|onnx|pb|pickle|pkl|png|pth?|safetensors|svg|tar|whl|zip)",
    re.IGNORECASE,
)
# Files of autologging: the model's summary, TensorBoard events, and metadata of checkpoints.
_AUTOLOGGED = re.compile(
    r"model_summary\.txt|events\.out\.tfevents\..+|latest_checkpoint.*|checkpoint_metrics\.json"
)
# The description of a logged model, in the model's folder.
_MODEL = "MLmodel"


def logs_among(artifacts: Sequence[SourceFile]) -> list[SourceFile]:
    """Return the logs among a run's artifacts; names are relative to the artifact root."""
    prefix = f"{LOGS}/"
    ours = [
        replace(one, name=one.name[len(prefix) :])
        for one in artifacts
        if one.name.startswith(prefix)
    ]
    return join_chunks(ours) if ours else _possible_logs(artifacts)


def _possible_logs(artifacts: Sequence[SourceFile]) -> list[SourceFile]:
    paths = [PurePosixPath(one.name) for one in artifacts]
    # Folders of logged models, and Stallscope's folder.
    others = {path.parent for path in paths if path.name == _MODEL} | {PurePosixPath(FOLDER)}
    return [
        one
        for one, path in zip(artifacts, paths, strict=True)
        if not _NO_LOGS.fullmatch(path.suffix)
        and not _AUTOLOGGED.fullmatch(path.name)
        and not others.intersection(path.parents)
    ]
