"""Train small GPTs with Megatron-Core on four CPU ranks, one per case, each with its own log folder.

    RANKS=4 python two_ranks.py megatron_cases.py OUT [CASE …]

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``. Megatron-Core asks for CUDA
everywhere: these ranks give it the CPU in place of each CUDA device.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ["GLOO_SOCKET_IFNAME"] = "lo"

import torch
from case_runner import Cases, run_cases
from fsdp_cases import STEPS, left_in, loader, rank
from megatron.core import parallel_state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
from megatron.core.transformer.transformer_config import TransformerConfig
from process_group import end_process_group
from sharded_cases import MICRO_BATCHES, MUCH_LONGER, SLOW_RANK, USUAL_SECONDS, many, seconds
from torch import nn
from torch.overrides import TorchFunctionMode
from torch_loops import Case, Loop, add_loops, sleep_in_backward

from stallscope.torch import StepLogger

TOKENS, LENGTH, WIDTH, MICRO_BATCH = 32, 8, 16, 4
#: How long the slow rank's data takes for each micro-batch.
FETCH_SECONDS = 0.01

CASES = Cases()
case_of = CASES.add


class CpuForCuda(TorchFunctionMode):
    """Lets torch's functions use the CPU where they are asked for a CUDA device."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.type and len(args) == 1 and not kwargs:
            return function(*args).replace("torch.", "torch.cuda.")
        if kwargs and "cuda" in str(kwargs.get("device")):
            kwargs = {**kwargs, "device": "cpu"}
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def cpu_for_cuda() -> Iterator[None]:
    """Give Megatron-Core the CPU in place of each CUDA device."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *_: None
    # Nothing here is random on a device.
    CudaRNGStatesTracker.fork = lambda *_: contextlib.nullcontext()
    with CpuForCuda():
        yield


class Layout:
    """How the four ranks share a model; the last one that was asked for stays."""

    current: Layout | None = None

    def __init__(self, tensor: int, chunks: int | None = None) -> None:
        self.tensor, self.chunks = tensor, chunks

    def use(self) -> None:
        """Make Megatron-Core's groups, unless they are there."""
        if Layout.current is not self:
            parallel_state.destroy_model_parallel()
            parallel_state.initialize_model_parallel(self.tensor, 2, self.chunks)
            Layout.current = self


#: Two stages, whose ranks share each layer, are replicas, or have two chunks of layers each.
TENSORS, REPLICAS, INTERLEAVED = Layout(2), Layout(1), Layout(1, 2)


class Gpt(Loop):
    """A GPT in stages, wrapped and optimized by Megatron-Core."""

    def __init__(
        self,
        layout: Layout,
        passes: int = 1,
        slow_input: float = 0.0,
        slow_backward: float = 0.0,
        slow_forward: float = 0.0,
    ) -> None:
        layout.use()
        torch.manual_seed(11)
        self.delays = slow_forward / MICRO_BATCHES, slow_backward / MICRO_BATCHES
        self.config = TransformerConfig(
            num_layers=2 * (layout.chunks or 1),
            hidden_size=WIDTH,
            num_attention_heads=2,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            bias_dropout_fusion=False,
            gradient_accumulation_fusion=False,
            use_cpu_initialization=True,
            pipeline_dtype=torch.float32,
            tensor_model_parallel_size=layout.tensor,
            pipeline_model_parallel_size=2,
            virtual_pipeline_model_parallel_size=layout.chunks,
            finalize_model_grads_func=finalize_model_grads,
        )
        chunks = [None] if layout.chunks is None else range(layout.chunks)
        model = [self.part(chunk) for chunk in chunks]
        settings = OptimizerConfig(optimizer="adam", lr=0.01, clip_grad=1.0)
        optimizer = get_megatron_optimizer(settings, model)
        replica = parallel_state.get_data_parallel_rank()
        super().__init__(nn.ModuleList(model), model, optimizer, loader(slow_input, replica))

    def part(self, chunk: int | None) -> nn.Module:
        """Return this rank's part of the model, or one of its parts."""
        place = {"ignore_virtual": chunk is None, "vp_stage": chunk}
        part = GPTModel(
            self.config,
            get_gpt_layer_local_spec(),
            TOKENS,
            LENGTH,
            pre_process=parallel_state.is_pipeline_first_stage(**place),
            post_process=parallel_state.is_pipeline_last_stage(**place),
            vp_stage=chunk,
        )
        part.decoder.register_forward_hook(self.delay)
        return DistributedDataParallel(self.config, DistributedDataParallelConfig(), part)

    def delay(self, _: nn.Module, inputs: Any, output: Any) -> Any:
        forward, backward = self.delays
        if forward:
            time.sleep(forward)
        return sleep_in_backward(output, backward)

    def step(self, batch: Any, updates: bool) -> None:
        self.update(iter(batch[0].chunk(MICRO_BATCHES)))

    def update(self, *batches: Any) -> None:
        """Train on micro-batches of each chunk."""
        for part in self.model:
            part.zero_grad_buffer()
        self.optimizer.zero_grad()
        get_forward_backward_func()(
            forward_step_func=forward,
            data_iterator=[*batches],
            model=self.model,
            num_microbatches=MICRO_BATCHES,
            seq_length=LENGTH,
            micro_batch_size=MICRO_BATCH,
            forward_only=False,
        )
        self.optimizer.step()

    def weights(self) -> str:
        """Return a digest of all ranks' parts."""
        parts = [""] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(parts, super().weights())
        return " ".join(parts)

    def ours(self) -> list[str]:
        left = left_in(self.net, self.optimizer.optimizer)
        hooks = [hook for part in self.model for hook in part._forward_pre_hooks.values()]
        left += ["forward hook" for hook in hooks if type(hook).__name__ == "ForwardHook"]
        return left + ["forward_step"] * hasattr(schedules.forward_step, "__wrapped__")


def forward(batches: Iterator[Any], model: nn.Module) -> Any:
    """Return the model's output for the next micro-batch, and the function of its loss."""
    numbers = next(batches)
    numbers = numbers[:, 0] if numbers.dim() == 3 else numbers
    tokens = (numbers[:, :LENGTH] * TOKENS).long()
    positions = torch.arange(LENGTH).expand_as(tokens)
    return model(tokens, positions, None, labels=tokens), loss


def loss(output: Any) -> Any:
    return output.mean(), {}


add_loops("gpt", partial(Gpt, TENSORS), CASES)
# Each call of the schedule is a step: loops accumulate nothing.
del CASES["gpt_accumulates"]


def add_named(name: str, layout: Layout) -> None:
    """Add a case in which one rank is slow, one in which a stage is, and one in which none is."""

    def slow(case: Case) -> Any:
        return many(Gpt(layout, slow_forward=seconds(slow=True)), case)

    def uneven(case: Case) -> Any:
        factor = MUCH_LONGER if rank() >= 2 else 1
        return many(Gpt(layout, slow_forward=factor * USUAL_SECONDS), case)

    def clean(case: Case) -> Any:
        return many(Gpt(layout, slow_forward=USUAL_SECONDS), case)

    for function in (slow, uneven, clean):
        function.__name__ = f"{name}_{function.__name__}"
        CASES.add(function)


add_named("tensors", TENSORS)
add_named("replicas", REPLICAS)


def micro_batches() -> Iterator[Any]:
    """Yield micro-batches without end, slowly on one rank."""
    batches = itertools.cycle(loader(data_of=0))
    for inputs, _ in batches:
        for part in inputs.chunk(MICRO_BATCHES):
            if rank() == SLOW_RANK:
                time.sleep(FETCH_SECONDS)
            yield part


def fetching(training: Gpt, case: Case) -> Any:
    """Let the schedule fetch its micro-batches, as Megatron-Core's own loops do."""
    batches = [micro_batches() for _ in training.model]
    log = StepLogger(
        case.folder / "logs",
        optimizer=training.optimizer,
        model=training.model,
        batch_size=MICRO_BATCH * MICRO_BATCHES,
    )
    with log:
        for _ in log.watch(range(STEPS)):
            training.update(*batches)
    return training.seen()


@case_of
def gpt_fetches(case: Case) -> Any:
    return fetching(Gpt(TENSORS), case)


@case_of
def interleaved(case: Case) -> Any:
    return fetching(Gpt(INTERLEAVED), case)


def main() -> None:
    out, *names = sys.argv[1:]
    torch.distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    with cpu_for_cuda():
        run_cases(CASES, Path(out), names, rank(), Case)
    end_process_group()


if __name__ == "__main__":
    main()
