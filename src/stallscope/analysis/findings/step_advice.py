"""Advise on causes inside steps: pauses, saves, unequal work, and padding."""

from __future__ import annotations

from stallscope.run import Run
from stallscope.words import StepCauseCode

from ..gains.what_if import Advice

#: Advice on each cause; on padding see ``padding_advice``.
ADVICE: dict[StepCauseCode, tuple[Advice, ...]] = {
    "saving": (
        Advice(
            "Save in the background, or less often",
            "torch.distributed.checkpoint.async_save(state, checkpoint_id=path)",
        ),
    ),
    "background_saving": (
        Advice(
            "Save less often, or in another process",
            "async_save(state, checkpoint_id=path, "
            "async_checkpointer_type=AsyncCheckpointerType.PROCESS)",
            unless="If the disk or the link is the limit, write to a local disk first, and upload at a "
            "limited rate.",
        ),
    ),
    "interpreter": (
        Advice(
            "Move the work of that thread to another process",
            detail=", such as a worker of the loader, or to code that releases Python's lock",
        ),
        Advice(
            "Or let threads have the lock for a shorter time at once",
            "sys.setswitchinterval(0.0005)",
        ),
    ),
    "background_evaluation": (
        Advice(
            "Evaluate less often, or in a process with a device and cores of its own",
            detail=": a job that evaluates each new checkpoint takes nothing from training",
        ),
    ),
    "garbage_collection": (
        Advice(
            "Keep Python's collector from looking at the objects that stay, once the model is built",
            "gc.collect(); gc.freeze()",
        ),
        Advice(
            "Or collect on all ranks in the same step, so that they do not wait for each other",
            "gc.disable()  # and gc.collect(1) in every 100th step",
        ),
    ),
    "compilation": (
        Advice(
            "Compile once for all shapes",
            "torch.compile(model, dynamic=True)",
        ),
    ),
    "uneven_routing": (
        Advice(
            "Let the router send as many tokens to each expert",
            detail=": raise the weight of its load-balancing loss, or correct a bias of each expert "
            "by its load",
            unless="Not without comparing the loss.",
        ),
        Advice(
            "Or give each rank popular and unpopular experts",
            detail=", by the tokens that each expert gets",
        ),
    ),
    "unequal_work": (
        Advice(
            "Give all ranks as much work in each step",
            detail=": sort samples by length within a window and deal them out in turn, or fill batches "
            "by tokens instead of samples",
        ),
    ),
}


def padding_advice(run: Run) -> tuple[Advice, ...]:
    """Return how to batch samples of similar lengths in the user's framework."""
    if run.fact("framework") == "jax":
        return (_BUCKETS,)
    versions = run.fact("versions")
    transformers = versions.get("transformers") if isinstance(versions, dict) else None
    if not transformers or run.fact("groups_by_length") is None:
        return (_BATCH_SAMPLER,)
    if run.fact("groups_by_length"):
        return (_DYNAMIC,)
    is_new = str(transformers).partition(".")[0].isdigit() and int(transformers.split(".")[0]) >= 5
    return (_BY_LENGTH_5 if is_new else _BY_LENGTH_4, _DYNAMIC)


_SIMILAR = "Batch samples of similar length"
_BY_LENGTH_5 = Advice(_SIMILAR, 'TrainingArguments(…, train_sampling_strategy="group_by_length")')
_BY_LENGTH_4 = Advice(_SIMILAR, "TrainingArguments(…, group_by_length=True)")
_BUCKETS = Advice(
    _SIMILAR,
    detail=": sort samples into a few buckets by length, and pad each batch to the longest of its "
    "bucket; JAX compiles the step once for each",
)
_DYNAMIC = Advice(
    "Pad each batch to its own longest sample only",
    "DataCollatorWithPadding(tokenizer)  # and no padding in the data set",
)
_BATCH_SAMPLER = Advice(
    _SIMILAR,
    "DataLoader(dataset, batch_sampler=batches_by_length, collate_fn=pad_to_longest)",
    detail=": shuffle, sort by length within windows of 50 batches, and shuffle the batches",
)

#: Advice where a model is compiled again, by frameworks other than torch.
COMPILE_ONCE: dict[str, tuple[Advice, ...]] = {
    "tensorflow": (
        Advice(
            "Trace the step once for all shapes",
            "@tf.function(reduce_retracing=True)",
            detail=", and pass numbers that change as tensors: each new Python number is traced",
        ),
    ),
    "jax": (Advice("Pad batches to a few lengths", detail=": each new shape is compiled"),),
}
