"""Read steps and waits for data from traces of DFTracer, as DLIO and decorated programs write them.

    [
    {"id":4,"name":"fetch.iter","cat":"dataloader","pid":8,"tid":8,"ts":1795663378121828,"dur":6699,"ph":"X",…
    {"id":5,"name":"fetch.block","cat":"dataloader","pid":8,"tid":8,"ts":1795663378128531,"dur":4608,"ph":"X",…

A loop over batches has a span ``NAME.iter`` for each wait for a batch, and ``NAME.block`` or
``NAME.yield`` for the work on it. Without such a loop, alternating spans of a thread make steps if one
has a name for fetching and the other a name for computing.

- ``spans`` reads the spans that may make steps, and the totals of all.
- ``steps`` pairs them.
- ``parser`` makes a log of each process with steps.
"""
