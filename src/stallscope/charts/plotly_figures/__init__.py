"""Charts as Plotly figures, for the dashboard and for notebooks."""

from .draw import CONFIG, figure

__all__ = ["CONFIG", "figure"]
