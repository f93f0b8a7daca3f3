"""Reports on one run or a thousand: in two passes, in parallel, with memory that does not grow.

units      what RUN arguments stand for: places with one run each
sketch     a run without its tables: what it is, and what baselines are matched on
plan       first pass: which runs there are, and which of them are held against which
worker     second pass, in a process of its own: a run read, taken apart and reported
workers    the processes, and what becomes of a run that ends one
alone      one batch at a time in a folder of reports
state      what a folder of reports holds already, so that a batch goes on where it was stopped
"""
