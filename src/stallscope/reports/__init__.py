"""Reports: one file per format, all saying the same from one Analysis.

``contents`` and ``tables`` decide the content; the formats decide how it looks.
"""
