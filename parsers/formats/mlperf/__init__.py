"""Read logs of MLPerf's loggers: epochs, evaluations, steps and settings with times since 1970.

    :::MLLOG {"namespace": "", "time_ms": 1593140782282, …, "key": "epoch_start", …}
    :::MLL 1560881700.926 epoch_start: {"value": null, "metadata": {"epoch_num": 1, …}}
    :::MLPv0.5.0 resnet 1541688590.123 (resnet.py:123) train_epoch: 1

- ``mlperf_lines`` reads the events in lines of all versions.
- ``mlperf_marks`` collects the events of one rank: epochs, evaluations, blocks, numbers of steps.
- ``mlperf_parser`` makes a log of each rank.
"""
