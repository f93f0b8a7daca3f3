"""What the recorder adds to a step of Keras, as a share of what the Horovod Timeline adds to it.

One process, and one model whose gradients are reduced. Two graphs that do the same differ by more than
the stamps take, by where their memory lies. So the stamps are put into the graph twenty times: what they
add is twenty times as much, and what graphs differ by is not. The two graphs take turns step by step;
blocks of steps with the Timeline and without it take turns as well. All is made anew several times.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

from figures import Figure, share_of
from keras_step_cost import NETWORK
from paired import over_rounds
from peers import TRAINING, ran
from torch_overhead import host_part_us

#: How many times the stamps are in the graph.
STAMPED = 20

PROGRAM = (
    f"LAYERS, WIDTH = 80, 32\n{NETWORK}"
    """
STEPS, SKIPPED, BLOCK = 120, 20, 24
networks, rounds, stamped, out = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
# A single rank reduces nothing, unless it takes itself for one of two; Horovod's threads know better.
hvd.global_process_set.size = lambda: 2

def recorded(model, batches, logger):
    # Theirs are small, as what they hold is not looked at.
    more = [Instrumentation(StampRing(64), False, False) for _ in range(stamped - 1)]
    for one in more:
        one.install(model)
    logger.on_train_begin()
    logger.on_epoch_begin(0)
    model.train_function(batches)
    for one in more:
        one.remove()
        assert one.placed == ["data", "ready", "reduced"], one.placed
    return model.train_function

def step(function, batches):
    begun = time.perf_counter_ns()
    function(batches)["loss"].numpy()
    return (time.perf_counter_ns() - begun) / 1e3

def by_recorder(functions, batches):
    laps = {arm: [] for arm in functions}
    for _ in range(STEPS):
        for arm in order.sample(sorted(laps), len(laps)):
            laps[arm].append(step(functions[arm], batches))
    pairs = list(zip(laps["recorder"], laps["none"]))[SKIPPED:]
    return statistics.median(own - none for own, none in pairs)

def block(function, batches, timeline=None):
    if timeline:
        hvd.start_timeline(timeline)
    laps = [step(function, batches) for _ in range(BLOCK)]
    # The Timeline's events are written by a thread of their own, which comes behind.
    time.sleep(0.05)
    if timeline:
        hvd.stop_timeline()
        time.sleep(0.02)
    return statistics.median(laps[2:])

def by_timeline(function, batches, number):
    added = []
    for turn in range(rounds):
        with_it = os.path.join(out, "%d-%d.json" % (number, turn))
        found = {name: block(function, batches, name) for name in order.sample([None, with_it], 2)}
        added.append(found[with_it] - found[None])
    return statistics.median(added)

def network(number):
    model, batches, logger = compiled(), iter(data), StepLogger(os.path.join(out, "logs"))
    logger.set_model(model)
    functions = {}
    for arm in order.sample(["none", "recorder"], 2):
        own = [logger] if arm == "recorder" else []
        functions[arm] = (recorded if own else traced)(model, batches, *own)
    recorder = by_recorder(functions, batches)
    logger.on_train_end()
    return {"recorder": recorder, "timeline": by_timeline(functions["none"], batches, number)}

print(json.dumps([network(number) for number in range(networks)]))
"""
)


def figures(quick: bool) -> list[Figure]:
    with TemporaryDirectory() as folder:
        sizes = ("1", "2") if quick else ("8", "4")
        words = ["python", "-c", PROGRAM, *sizes, str(STAMPED), folder]
        variables = {"HOROVOD_TIMELINE": "DYNAMIC", "TF_CPP_MIN_LOG_LEVEL": "3"}
        printed = ran(words, TRAINING, variables)
        host_us = statistics.median(host_part_us(Path(folder) / "logs"))
    networks = json.loads(printed.splitlines()[-1])
    many, other = (over_rounds([one[arm] for one in networks]) for arm in ("recorder", "timeline"))
    # The recorder's own part is in it once.
    own, low, high = (host_us + (us - host_us) / STAMPED for us in (many.value, *many.interval))
    return [
        share_of(
            "Keras, 162 gradients, one process: added per step, against the Timeline",
            own,
            "µs",
            "Horovod Timeline",
            other.value,
            most=0.02,
            interval=(low, high),
            other_interval=other.interval,
        )
    ]
