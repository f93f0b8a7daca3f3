"""Make collected runs of any size; ranks are copies if simulating all would take too long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from simulator import Clocks, Fault, Job, Noise, simulate

from stallscope.collector.recorder.step_log.line_format import COLUMNS, file_name, header
from stallscope.collector.store.layout import MANIFEST, checksum
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.collector.store.step_files import write_logs
from stallscope.run import STEPS_SCHEMA, Run

_MOST_SIMULATED = 5_000_000
RANKS_PER_HOST = 8


def collected(ranks: int, steps: int, store: Path) -> Path:
    """Return the folder of a collected run with one slow rank, on hosts of 8 ranks with own clocks."""
    some = max(1, _MOST_SIMULATED // steps // RANKS_PER_HOST) * RANKS_PER_HOST
    simulated = min(ranks, some)
    job = Job(
        ranks=simulated,
        steps=steps,
        noise=Noise(cv=0.05),
        clocks=Clocks(offset_s=1000, drift_ppm=20),
        faults=(Fault("compute", 30, ranks=(min(3, simulated - 1),)),),
    )
    folder = save_run(simulate(job).run, store)
    if simulated < ranks:
        _copy_ranks(folder, simulated, ranks)
    return folder


def raw_logs(run: Run, folder: Path) -> list[Path]:
    """Write the logs that such a run was collected from; return their paths by rank."""
    folder.mkdir()
    steps, paths = run.steps.num_rows // len(run.logs), []
    for index, log in enumerate(run.logs):
        path = folder / file_name(log.rank, log.generation, log.part)
        with path.open("wb") as file:
            file.write(header(dict(log.facts)).encode())
            options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
            rows = run.steps.slice(index * steps, steps)
            pa.csv.write_csv(_as_recorded(rows, log.anchor), file, options)
        paths.append(path)
    return paths


def _as_recorded(rows: pa.Table, anchor: int) -> pa.Table:
    """Convert rows of steps to the recorder's columns: microseconds from the step's start."""
    begin = rows["begin"]
    since = {
        f"{name}_us": pc.divide(pc.subtract(rows[name], begin), 1000)
        for name in ("data", "ready", "reduced", "end")
    }
    table = pa.table(
        {
            "kind": ["step"] * len(rows),
            "begin_us": pc.divide(pc.subtract(begin, anchor), 1000),
            "clock_us": np.zeros(len(rows), np.int64),
            **{name: rows[name] for name in ("step", "epoch", "micro", "samples", "elements")},
            **since,
        }
    )
    return table.select(COLUMNS)


def _copy_ranks(folder: Path, simulated: int, ranks: int) -> None:
    run = load_run(folder)
    (file,) = (folder / "steps").iterdir()
    whole = file.with_suffix(".whole")
    write_logs(_copied(run, simulated, ranks), STEPS_SCHEMA, whole)
    file.unlink()
    whole.rename(file)
    manifest = json.loads((folder / MANIFEST).read_text())
    logs = [manifest["logs"][rank % simulated] for rank in range(ranks)]
    manifest["logs"] = [
        {**log, "rank": rank, "facts": {**log["facts"], **_place(rank, ranks)}}
        for rank, log in enumerate(logs)
    ]
    manifest["rows"] = run.steps.num_rows // simulated * ranks
    path = str(file.relative_to(folder))
    manifest["files"][path] = {"size": file.stat().st_size, "sha256": checksum(file)}
    (folder / MANIFEST).write_text(json.dumps(manifest))


def _copied(run: Run, simulated: int, ranks: int) -> Iterator[pa.Table]:
    steps = run.steps.num_rows // simulated
    for rank in range(ranks):
        rows = run.steps.slice(rank % simulated * steps, steps)
        number = pa.array(np.full(steps, rank, np.int32))
        for name in ("log", "rank"):
            rows = rows.set_column(rows.schema.get_field_index(name), name, number)
        yield rows


def _place(rank: int, ranks: int) -> dict[str, object]:
    host = f"host-{rank // RANKS_PER_HOST}"
    return {"rank": rank, "size": ranks, "host": host, "clock_domain": f"clock of {host}"}
