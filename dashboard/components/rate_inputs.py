"""The cost of a rank-hour: the user types it, the address keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, no_update

from stallscope.formatting.numbers import Interval, plus_minus
from stallscope.formatting.plain import plain

from ..addresses import ADDRESS, query_of

_RATE, _CURRENCY = "rate", "currency"
_LONGEST_CURRENCY = 8
_HIGHEST_RATE = 1e9


@dataclass(frozen=True)
class Rate:
    """Money per rank-hour; the currency may be empty."""

    per_hour: float
    currency: str

    def amount(self, value: float, ci95: Interval | None = None) -> str:
        """Write 12.30 ± 0.04 EUR; a symbol comes first: $12.30 ± 0.04."""
        number = plus_minus(value, ci95)
        if len(self.currency) == 1 and not self.currency.isalpha():
            return f"{self.currency}{number}"
        return f"{number} {self.currency}".rstrip()


def read_rate(query: Mapping[str, str]) -> Rate | None:
    """Read the rate from an address; None without a valid one."""
    number = _number(query.get(_RATE))
    return None if number is None else Rate(number, _currency(query.get(_CURRENCY)))


def rate_inputs(query: Mapping[str, str]) -> Any:
    """Make inputs for the rate and its currency, as the address has them."""
    rate = read_rate(query)
    wrong = rate is None and bool(query.get(_RATE))
    return dmc.Group(
        [
            dmc.NumberInput(
                id=_RATE,
                label="Price of a rank-hour",
                description="adds what waiting costs in money",
                value="" if rate is None else rate.per_hour,
                min=0,
                max=_HIGHEST_RATE,
                allowNegative=False,
                hideControls=True,
                debounce=True,
                error="Enter a number above 0." if wrong else None,
                # Mantine's red text is too pale, and the message describes the error.
                withErrorStyles=False,
                w=220,
            ),
            dmc.TextInput(
                id=_CURRENCY,
                label="Currency",
                description="if you like",
                value=_currency(query.get(_CURRENCY)),
                placeholder="EUR, $ …",
                debounce=True,
                w=120,
            ),
        ],
        gap="md",
        align="flex-start",
        mb="sm",
    )


def add_rate_callbacks(app: Dash) -> None:
    """Let the inputs change the address, and with it the page."""

    @app.callback(
        Output(ADDRESS, "search", allow_duplicate=True),
        Input(_RATE, "value"),
        Input(_CURRENCY, "value"),
        State(ADDRESS, "search"),
        prevent_initial_call=True,
    )
    def choose_rate(rate: object, currency: object, search: str | None) -> Any:
        return search_with_rate(rate, currency, search or "")


def search_with_rate(rate: object, currency: object, search: str) -> Any:
    """Make the address' new query; no update if it is the same already.

    Dash calls this when the inputs appear, too, not only when a user types.
    """
    query = query_of(search)
    number, name = _number(rate), _currency(currency)
    if (number, name) == (_number(query.get(_RATE)), _currency(query.get(_CURRENCY))):
        return no_update
    for key, value in ((_RATE, "" if number is None else f"{number:.15g}"), (_CURRENCY, name)):
        query.pop(key, None)
        if value:
            query[key] = value
    return f"?{urlencode(query)}" if query else ""


def _number(value: object) -> float | None:
    """Read a valid rate; None for anything else."""
    try:
        number = float(str(value))
    except ValueError:
        return None
    return number if math.isfinite(number) and 0 < number <= _HIGHEST_RATE else None


def _currency(value: object) -> str:
    return plain(str(value or ""))[:_LONGEST_CURRENCY].strip()
