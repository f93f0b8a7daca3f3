"""Pictures of an analysis: what is drawn (``charts``), in which colours, and the two ways of drawing.

``charts`` turns an Analysis into plain descriptions of charts. ``svg`` draws them for reports, which
need no scripts, ``plotly_figures`` for the dashboard and notebooks. A picture is the same in both.
"""
