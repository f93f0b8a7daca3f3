"""Name the page of a run that shows what a finding is about."""

from __future__ import annotations

#: A key of ``run_tabs.TABS`` per finding code. Findings about settings have no page.
PAGE_OF: dict[str, str] = {
    "causality_broken": "Log health",
    "checkpoint_on_all_ranks": "Timeline",
    "clock_jumped": "Log health",
    "clocks_unsteady": "Log health",
    "epochs_of_different_lengths": "Log health",
    "host_stamps_only": "Log health",
    "missing_ranks": "Log health",
    "no_baseline": "Baseline",
    "not_ended": "Log health",
    "one_rank_only": "Log health",
    "rank_0_alone": "Timeline",
    "rank_0_extra_work": "Stragglers",
    "ranks_apart": "Timeline",
    "slow_every_nth_step": "Timeline",
    "slow_first_steps": "Timeline",
    "step_time_changed": "Timeline",
    "unequal_steps": "Log health",
    "uneven_batches": "Stragglers",
    "uneven_shards": "Stragglers",
    "validation_on_all_ranks": "Timeline",
}
