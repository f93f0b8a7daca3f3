"""Reports: each family turns its result into a document, and each format draws any document.

run, comparison, scaling, tuning, index    the families: document, JSON and records of a kind of result
document                                   sections of texts, lists, key figures, tables, charts and code
formats                                    terminal, HTML, Markdown, CSV, JSON and OpenMetrics
registry, write                            the formats by name; reports as files
"""
