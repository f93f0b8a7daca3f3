"""The catalogue: which runs are in a store, found at once and by their facts.

Listing ten thousand runs must not take reading ten thousand manifests, so each run has a row in
STORE/catalogue.sqlite. The runs' folders are the truth: the catalogue follows them, and is made anew
from them where it is missing or damaged.
"""

from .entry import Entry
from .index import Catalogue
from .matching import Baselines, baseline_for, series_of, single_rank_for
from .where import Filter, parse_search, parse_where

__all__ = [
    "Baselines",
    "Catalogue",
    "Entry",
    "Filter",
    "baseline_for",
    "parse_search",
    "parse_where",
    "series_of",
    "single_rank_for",
]
