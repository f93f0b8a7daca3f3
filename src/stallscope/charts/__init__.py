"""Charts of an analysis, and two ways to draw them.

``charts`` and the files next to it turn an Analysis into descriptions of charts. ``layouts`` lays a
chart out once: axes, ticks, labels, order, tooltips and the legend; ``palette`` holds the colours.
``svg`` draws a layout for reports, which need no scripts, ``plotly_figures`` for the dashboard and
notebooks.
"""
