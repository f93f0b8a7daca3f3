"""Charts of an analysis, and two ways to draw them.

``charts`` and its neighbours turn an Analysis into descriptions of charts. ``layouts`` lays a chart out
once: axes, ticks, labels, order and tooltips; ``palette`` and ``legend`` hold its colours. ``svg`` draws
a layout for reports, which need no scripts, ``plotly_figures`` for the dashboard and notebooks.
"""
