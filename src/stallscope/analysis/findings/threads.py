"""Find hosts with more compute threads than CPU cores."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.formatting.lists import counted, ranks_in_words

from ..advice.advise import for_crowded_cores
from ..settings.cores import cpu_loads
from .finding import Finding
from .records import Records

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
        f"On host {worst.host}, {ranks_in_words(worst.ranks)} compute with "
        f"{counted(worst.threads, 'intra-op thread')} together on "
        f"{counted(worst.cores, 'CPU core')}, and compete for them.{also}",
        str(for_crowded_cores(records.setup, worst)),
    )
