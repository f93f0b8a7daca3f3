"""Record a training script that is not edited: ``python -m stallscope.record train.py ARGUMENTS``.

    torchrun --nproc-per-node 2 -m stallscope.record train.py --epochs 3
    horovodrun -np 2 python -m stallscope.record -m package.train

The options before the script are Stallscope's, which the environment may have instead, and all after it
the script's. The script runs as it does without this: with its arguments, exit status, output and
signals.
"""

from stallscope.collector.recorder.unedited import main

if __name__ == "__main__":
    main(__file__)
