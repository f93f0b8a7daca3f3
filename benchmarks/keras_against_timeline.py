"""What the recorder adds to a step of Keras, as a share of what the Horovod Timeline adds to it.

One process, and one model whose gradients are reduced. Two graphs that do the same differ by more than
the stamps take, by where their memory lies. So the stamps are put into the graph sixty times: what they
add is sixty times as much, and what graphs differ by is not. All is made anew several times; blocks of a
few steps with nothing, with the recorder and its many stamps, and with the Timeline take turns.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from figures import Figure, share_of
from keras_step_cost import NETWORK
from paired import difference
from peers import TRAINING, ran
from torch_overhead import host_part_us

#: How many times the stamps are in the graph.
STAMPED = 60

PROGRAM = (
    f"LAYERS, WIDTH = 80, 128\n{NETWORK}"
    """
STEPS, SKIPPED = 12, 2
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

def block(function, batches, timeline):
    if timeline:
        hvd.start_timeline(timeline)
    laps = []
    for _ in range(STEPS):
        begun = time.perf_counter_ns()
        function(batches)["loss"].numpy()
        laps.append(time.perf_counter_ns() - begun)
    # The Timeline's events are written by a thread of their own, which comes behind.
    time.sleep(0.05)
    if timeline:
        hvd.stop_timeline()
        time.sleep(0.02)
    return statistics.median(laps[SKIPPED:]) / 1e3

def network(number):
    model, batches, logger = compiled(), iter(data), StepLogger(os.path.join(out, "logs"))
    logger.set_model(model)
    functions = {}
    for arm in order.sample(["none", "recorder"], 2):
        own = [logger] if arm == "recorder" else []
        functions[arm] = (recorded if own else traced)(model, batches, *own)
    functions["timeline"] = functions["none"]
    found = {arm: [] for arm in functions}
    for turn in range(rounds):
        for arm in order.sample(sorted(found), len(found)):
            timeline = os.path.join(out, "%d-%d.json" % (number, turn)) if arm == "timeline" else None
            found[arm].append(block(functions[arm], batches, timeline))
    logger.on_train_end()
    return {arm: statistics.median(blocks) for arm, blocks in found.items()}

print(json.dumps([network(number) for number in range(networks)]))
"""
)


def figures(quick: bool) -> list[Figure]:
    with TemporaryDirectory() as folder:
        sizes = ("1", "2") if quick else ("5", "6")
        words = ["python", "-c", PROGRAM, *sizes, str(STAMPED), folder]
        variables = {"HOROVOD_TIMELINE": "DYNAMIC", "TF_CPP_MIN_LOG_LEVEL": "3"}
        printed = ran(words, TRAINING, variables)
        host_us = median(host_part_us(Path(folder) / "logs"))
    networks = json.loads(printed.splitlines()[-1])
    step_us = {arm: [one[arm] for one in networks] for arm in networks[0]}
    many, other = (difference(step_us[arm], step_us["none"]) for arm in ("recorder", "timeline"))
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
