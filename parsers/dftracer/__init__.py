"""Traces of DFTracer, as DLIO and programs with its decorators write them: steps and the wait for data.

    [
    {"id":4,"name":"fetch.iter","cat":"dataloader","pid":8,"tid":8,"ts":1795663378121828,"dur":6699,"ph":"X",…
    {"id":5,"name":"fetch.block","cat":"dataloader","pid":8,"tid":8,"ts":1795663378128531,"dur":4608,"ph":"X",…

A loop over batches has a span ``NAME.iter`` for the wait for each batch, and ``NAME.block`` or
``NAME.yield`` for what follows. Where there is no such loop, spans of a thread make steps if they
alternate between one that is named like fetching and one that is named like computing.

- ``spans`` reads the spans that may make steps, and how much there is of all.
- ``steps`` pairs them.
- ``parser`` makes a log of each process that has steps.
"""
