"""Read what was written for Weights & Biases with its own library."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

#: Prints the name, host, configuration and rows in a file of an offline run.
READING = """
import json, sys
from pathlib import Path
from wandb.proto.wandb_internal_pb2 import Record

def records(data):
    at, whole = 7, b""
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield Record.FromString(whole)
            whole = b""

(path,) = Path(sys.argv[1]).glob("*.wandb")
content = {"rows": []}
for record in records(path.read_bytes()):
    kind = record.WhichOneof("record_type")
    if kind == "run":
        content["name"], content["host"] = record.run.display_name, record.run.host
        updates = record.run.config.update
        content["config"] = {update.key: json.loads(update.value_json) for update in updates}
    if kind == "history":
        items = {"".join(item.nested_key) or item.key: item for item in record.history.item}
        content["rows"].append({key: json.loads(item.value_json) for key, item in items.items()})
print(json.dumps(content))
"""


def python(folder: Path, *words: str) -> str:
    """Run a Python program without warnings that would be errors, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("WANDB")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
