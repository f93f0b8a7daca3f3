"""Charts as Plotly figures, for the dashboard and for notebooks."""

from .drawn import CONFIG, draw, figure

__all__ = ["CONFIG", "draw", "figure"]
