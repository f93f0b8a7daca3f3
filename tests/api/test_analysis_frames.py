"""An analysis as DataFrames: the figures of the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from simulator import Fault, simulate
from simulator import Job as Simulated
from simulator.faults import EveryNth
from simulator.logs import write_logs
from support.step_logs import Job, write_job

import stallscope as ss

from .conftest import KINDS

Opened = Callable[[str], ss.Run]
Analysed = Callable[[str], ss.Analysis]
ENTRIES = ["input", "compute", "other", "imbalance", "allreduce"]
OF_RUNS = ("steps", "epochs", "windows", "events", "machines")
OF_ANALYSES = (
    *("ledger", "by_cause", "steps", "epochs", "series", "ranks", "stragglers", "causes"),
    *("gains", "findings"),
)


def frames(run: ss.Run, analysis: ss.Analysis) -> dict[str, pd.DataFrame]:
    return {
        **{f"run.{name}": getattr(run, name) for name in OF_RUNS},
        **{f"analysis.{name}": getattr(analysis, name) for name in OF_ANALYSES},
    }


def kind_of(dtype: object) -> str:
    """Name a type of values; categories that come from logs differ from run to run."""
    return "category" if isinstance(dtype, pd.CategoricalDtype) else str(dtype)


@pytest.mark.broad
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_has_the_same_columns_and_types(
    opened: Opened, analysed: Analysed, kind: str
) -> None:
    usual = frames(opened("steps"), analysed("steps"))
    for name, frame in frames(opened(kind), analysed(kind)).items():
        assert frame.index.names == usual[name].index.names, name
        types, others = (
            {column: kind_of(dtype) for column, dtype in table.reset_index().dtypes.items()}
            for table in (frame, usual[name])
        )
        if frame.index.names == [None]:
            del types["index"], others["index"]
        assert types == others, name


def test_causes_inside_steps_are_rows_and_columns(tmp_path: Path) -> None:
    job = Simulated(
        ranks=4,
        steps=200,
        faults=(
            Fault("compute", 100.0, ranks=[1], when=EveryNth(20), cause="garbage_collection"),
            Fault("compute", 10.0, cv=1.0, cause="work"),
        ),
        facts={"interruptions": ["garbage_collection"]},
    )
    write_logs(simulate(job), tmp_path)
    run = ss.open_run(tmp_path)
    causes = ss.analyse(run).causes
    assert {*causes.index} == {"garbage_collection", "unequal_work"}
    pauses = causes.loc["garbage_collection"]
    assert pauses["ranks"] == (1,)
    assert pauses["saved_ci_low_ms"] < pauses["saved_ms"] < pauses["saved_ci_high_ms"]
    steps = run.steps.loc[1]
    assert [*steps.index[steps["garbage_collection_ms"] > 0]] == [*range(0, 200, 20)]
    assert (run.steps.loc[0, "garbage_collection_ms"] == 0).all()
    assert run.steps["compilation_ms"].isna().all()
    assert run.steps["elements"].nunique() > 100


def test_the_ledgers_add_up_to_the_step(analysed: Analysed) -> None:
    analysis = analysed("steps")
    assert [*analysis.ledger.index] == ENTRIES
    assert analysis.ledger["ms"].sum() == pytest.approx(analysis.step_ms)
    assert analysis.by_cause["ms"].sum() == pytest.approx(analysis.step_ms)
    assert analysis.ledger.loc["imbalance", "ms"] == pytest.approx(9.0, rel=0.1)
    assert analysis.by_cause.loc["input", "waiting_ms"] == pytest.approx(9.0, rel=0.1)


def test_frames_have_the_figures_of_the_json(analysed: Analysed) -> None:
    analysis = analysed("steps")
    content = analysis.to_dict()
    assert analysis.ledger["ms"].tolist() == [entry["ms"] for entry in content["ledger"]]
    assert analysis.ranks["wait_ms"].tolist() == [rank["wait_ms"] for rank in content["ranks"]]
    saved = {gain["fix"]: gain["saved_ms"] for gain in content["what_if"]}
    assert analysis.gains["saved_ms"].to_dict().items() <= saved.items()
    assert analysis.findings["code"].tolist() == [
        finding["code"] for finding in content["findings"]
    ]
    assert analysis.verdict == content["bottleneck"]["kind"]


def test_every_step_adds_up(analysed: Analysed) -> None:
    steps = analysed("steps").steps
    assert np.allclose(steps[[f"{name}_ms" for name in ENTRIES]].sum(axis=1), steps["step_ms"])
    slowest = [f"slowest_{name}_ms" for name in ("input", "compute", "other")]
    assert np.allclose(steps[[*slowest, "allreduce_ms"]].sum(axis=1), steps["step_ms"])
    steady = steps[~steps["warm_up"]]
    assert (steady["slowest_rank"] == 2).mean() > 0.9
    assert (steady["cause"] == "input").mean() > 0.9
    assert steps["reduced_at"].is_monotonic_increasing


def test_the_mean_of_steady_steps_is_the_ledger(analysed: Analysed) -> None:
    analysis = analysed("steps")
    steps = analysis.steps
    means = steps.loc[~steps["warm_up"], [f"{name}_ms" for name in ENTRIES]].mean()
    assert means.to_numpy() == pytest.approx(analysis.ledger["ms"].to_numpy())
    epochs = analysis.epochs
    weighted = np.average(epochs["step_ms"], weights=epochs["steps"])
    assert weighted == pytest.approx(analysis.step_ms)
    assert epochs.loc[1, "validation_s"] == pytest.approx(0.05, rel=0.2)


def test_the_series_has_windows_of_steps(tmp_path: Path, analysed: Analysed) -> None:
    analysis = analysed("steps")
    assert len(analysis.series) == 240
    write_job(tmp_path, Job(ranks=1, steps=4500))
    long = ss.analyse(tmp_path).series
    assert [*long.index[:3]] == [0, 5, 10]
    parts = [f"slowest_{name}_ms" for name in ("input", "compute", "other")]
    assert np.allclose(long[[*parts, "allreduce_ms"]].sum(axis=1), long["step_ms"])
    assert long["ended_at"].is_monotonic_increasing


def test_lines_about_steps_are_a_series_without_stages(analysed: Analysed) -> None:
    series = analysed("printed lines").series
    assert series["step_ms"].notna().all()
    assert series["slowest_compute_ms"].isna().all()


def test_stragglers_and_gains_name_what_is_slow(analysed: Analysed) -> None:
    analysis = analysed("steps")
    (slow,) = analysis.stragglers.to_dict("records")
    assert (slow["ranks"], slow["stage"]) == ((2,), "input")
    best = analysis.gains.iloc[0]
    assert best["title"] == "With host beta as fast as the others"
    assert best["speedup_ci_low"] < best["speedup"] < best["speedup_ci_high"]


def test_one_log_of_many_does_not_tell_who_is_slow(analysed: Analysed) -> None:
    analysis = analysed("one log of many")
    assert analysis.verdict == "insufficient_data"
    assert np.isnan(analysis.ledger.loc["imbalance", "ms"])
    steps = analysis.steps
    assert steps[["imbalance_ms", "slowest_rank", "cause"]].isna().all(axis=None)
    assert steps["allreduce_ms"].notna().all()


def test_steps_of_all_generations_are_there(analysed: Analysed) -> None:
    steps = analysed("generations").steps
    assert set(steps["generation"]) == {0, 1, 2}
    assert steps.loc[55, "generation"].tolist() == [0, 1]


def test_figures_are_plotly_figures_by_name(tmp_path: Path, analysed: Analysed) -> None:
    write_job(tmp_path, Job(ranks=3, steps=240, facts={"synthetic": True}))
    analysis = ss.analyse(analysed("steps").run, baseline=tmp_path)
    assert analysis.baseline is not None
    assert analysis.by_cause.loc["input", "excess_ms"] == pytest.approx(9.0, rel=0.1)
    light, dark = analysis.figures(), analysis.figures(dark=True)
    assert [*light] == ["by_cause", "gains", "baseline", "ranks", "steps", "job"]
    assert all(isinstance(figure, go.Figure) for figure in light.values())
    assert light["ranks"].layout.paper_bgcolor != dark["ranks"].layout.paper_bgcolor


def test_show_takes_an_analysis_as_it_is(analysed: Analysed) -> None:
    analysis = analysed("steps")
    shown = ss.show(analysis)
    assert repr(shown) == f"slow: {analysis.headline}"
    assert repr(analysis) == f"Analysis('slow': {analysis.headline})"
