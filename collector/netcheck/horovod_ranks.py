"""Ranks that Horovod connects, with the first framework that it was built for."""

from __future__ import annotations

import importlib
import itertools
import os
from abc import abstractmethod
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

from stallscope.errors import UsageError

from ..recorder.job.job_facts import horovod_transports, module_version
from .ranks import Exchange, Ranks, Run, agreed_device, numbers_in, own_device, partner_in


class HorovodRanks(Ranks):
    """The ranks of Horovod, with any framework.

    Args:
        horovod: the framework's module of Horovod, such as ``horovod.torch``.
    """

    reduced_by = "horovod"

    def __init__(self, horovod: Any) -> None:
        self._horovod = horovod
        horovod.init()
        self.rank, self.size = horovod.rank(), horovod.size()
        self._local_rank: int = horovod.local_rank()
        self._names = itertools.count()
        self._prepare()
        transports = horovod_transports() or []
        # Horovod reduces on the CPU without it, even if it was built with it.
        self.reduces_with = [name for name in transports if name != "nccl" or self.device == "cuda"]
        self.versions = {
            self.framework: module_version(self.framework),
            "horovod": module_version("horovod"),
        }

    @abstractmethod
    def _prepare(self) -> None:
        """Choose the device."""

    @abstractmethod
    def _zeros(self, numbers: int) -> Any:
        """Return an array of floats on the device."""

    def _tensors(
        self, name: str, sizes: Sequence[int], apart: bool
    ) -> List[Tuple[Any, str, float]]:
        """Return tensors of these bytes, their names, and what Horovod multiplies them by.

        Horovod fuses only tensors with the same factor. All numbers are zero, so factors change nothing.
        """
        return [
            (
                self._zeros(numbers_in(size)),
                "netcheck.%s.%d" % (name, number),
                1.0 + number if apart else 1.0,
            )
            for number, size in enumerate(sizes)
        ]

    @abstractmethod
    def _exchange(self, name: str, numbers: int, splits: List[int]) -> Run:
        """Return a function that sends ``numbers`` floats in total, split over the ranks."""

    def exchange(self, exchanges: Sequence[Exchange]) -> Run:
        # Only the pairs send.
        splits = [0] * self.size
        exchange = partner_in(exchanges, self.rank)
        if exchange is not None:
            splits[exchange[0]] = numbers_in(exchange[1])
        return self._exchange(self._new_name("exchange"), sum(splits), splits)

    def broadcast(self, value: Any) -> Any:
        return self._horovod.broadcast_object(value, root_rank=0, name=self._new_name("broadcast"))

    def collect(self, value: Any) -> List[Any]:
        return list(self._horovod.allgather_object(value, name=self._new_name("collect")))

    def close(self) -> None:
        self._horovod.shutdown()

    def _new_name(self, what: str) -> str:
        """Return a name that is the same on all ranks.

        No name comes twice: with MXNet, the first rank does not wait until it has sent its value.
        """
        return "netcheck.%s.%d" % (what, next(self._names))


class _WithTorch(HorovodRanks):
    framework = "torch"

    def _prepare(self) -> None:
        self._torch = importlib.import_module("torch")
        cuda = self._torch.cuda
        count = cuda.device_count() if cuda.is_available() else 0
        device = agreed_device(self, own_device(count, self._local_rank))
        if device is not None:
            cuda.set_device(device)
            self.device = "cuda"

    def allreduce(self, name: str, sizes: Sequence[int], apart: bool = False) -> Run:
        tensors = self._tensors(name, sizes, apart)

        def run() -> None:
            handles = [
                self._horovod.allreduce_async_(tensor, name=each, prescale_factor=factor)
                for tensor, each, factor in tensors
            ]
            for handle in handles:
                self._horovod.synchronize(handle)
            self._wait_for_device()

        return run

    def _exchange(self, name: str, numbers: int, splits: List[int]) -> Run:
        tensor = self._zeros(numbers)
        # Horovod reads the splits on the host.
        parts = self._torch.tensor(splits, dtype=self._torch.int32)

        def run() -> None:
            self._horovod.alltoall(tensor, splits=parts, name=name)
            self._wait_for_device()

        return run

    def _zeros(self, numbers: int) -> Any:
        return self._torch.zeros(numbers, dtype=self._torch.float32, device=self.device)

    def _wait_for_device(self) -> None:
        if self.device == "cuda":
            self._torch.cuda.synchronize()


class _WithTensorFlow(HorovodRanks):
    framework = "tensorflow"

    def _prepare(self) -> None:
        self._tf = importlib.import_module("tensorflow")
        config = self._tf.config
        devices = config.list_physical_devices("GPU")
        number = own_device(len(devices), self._local_rank)
        if number is not None:
            # Before the first operation: otherwise every rank takes the memory of all devices.
            config.set_visible_devices(devices[number], "GPU")
            config.experimental.set_memory_growth(devices[number], True)
        if agreed_device(self, number) is not None:
            self.device = "cuda"

    def allreduce(self, name: str, sizes: Sequence[int], apart: bool = False) -> Run:
        tensors = self._tensors(name, sizes, apart)

        def reduce_all() -> Any:
            reduced = [
                self._horovod.allreduce(tensor, name=each, prescale_factor=factor)
                for tensor, each, factor in tensors
            ]
            return self._tf.add_n([tensor[0] for tensor in reduced])

        # Called one by one, each allreduce would wait for the one before it.
        reduce_in_graph = self._tf.function(reduce_all, autograph=False)

        def run() -> None:
            with self._on_device():
                reduce_in_graph().numpy()

        return run

    def _exchange(self, name: str, numbers: int, splits: List[int]) -> Run:
        tensor = self._zeros(numbers)
        parts = self._tf.constant(splits, dtype=self._tf.int32)

        def run() -> None:
            with self._on_device():
                received, _ = self._horovod.alltoall(tensor, splits=parts, name=name)
                received[:1].numpy()

        return run

    def _zeros(self, numbers: int) -> Any:
        with self._on_device():
            return self._tf.zeros([numbers], self._tf.float32)

    def _on_device(self) -> Any:
        return self._tf.device("/GPU:0" if self.device == "cuda" else "/CPU:0")


class _WithMxnet(HorovodRanks):
    framework = "mxnet"

    def _prepare(self) -> None:
        self._mx = importlib.import_module("mxnet")
        device = agreed_device(self, own_device(self._mx.context.num_gpus(), self._local_rank))
        self._context = self._mx.cpu() if device is None else self._mx.gpu(device)
        self.device = "cpu" if device is None else "cuda"

    def allreduce(self, name: str, sizes: Sequence[int], apart: bool = False) -> Run:
        tensors = self._tensors(name, sizes, apart)

        def run() -> None:
            for tensor, each, factor in tensors:
                self._horovod.allreduce_(tensor, name=each, prescale_factor=factor)
            for tensor, _, _ in tensors:
                tensor.wait_to_read()

        return run

    def _exchange(self, name: str, numbers: int, splits: List[int]) -> Run:
        # MXNet has no empty arrays: a rank without a partner sends to itself.
        if not numbers:
            splits = [int(rank == self.rank) for rank in range(self.size)]
        tensor = self._zeros(max(numbers, 1))
        parts = self._mx.nd.array(splits, dtype="int32")

        def run() -> None:
            self._horovod.alltoall(tensor, splits=parts, name=name)

        return run

    def close(self) -> None:
        # MXNet's engine may still hold what this rank has sent to the others.
        self._mx.nd.waitall()
        super().close()

    def _zeros(self, numbers: int) -> Any:
        return self._mx.nd.zeros((numbers,), ctx=self._context, dtype="float32")


# With these, Horovod would overwrite the training's own Timeline and autotune log.
_WRITTEN_BY_HOROVOD = ("HOROVOD_TIMELINE", "HOROVOD_AUTOTUNE", "HOROVOD_AUTOTUNE_LOG")

_KINDS: Dict[str, Type[HorovodRanks]] = {
    "torch": _WithTorch,
    "tensorflow": _WithTensorFlow,
    "mxnet": _WithMxnet,
}
#: The values of ``--framework``.
FRAMEWORKS = tuple(_KINDS)


def join_with_horovod(
    framework: Optional[str] = None,
    import_module: Callable[[str], Any] = importlib.import_module,
) -> HorovodRanks:
    """Start Horovod with a framework, by default the first one that it was built for.

    Raises:
        UsageError: if Horovod cannot be imported with any framework.
    """
    reasons = []
    for name in _WRITTEN_BY_HOROVOD:
        os.environ.pop(name, None)
    # TensorFlow's own messages would cover the results.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name in _KINDS if framework is None else [framework]:
        try:
            # Without its framework, Horovod prints how to build it.
            import_module(name)
            horovod = import_module("horovod.%s" % name)
        except Exception as error:  # broken installations raise anything
            reasons.append("%s: %s" % (name, _first_line(error)))
            continue
        return _KINDS[name](horovod)
    raise UsageError(
        "Horovod can be imported with no framework here (%s): run netcheck in the Python environment of "
        "the training, or pass --with torch under torchrun" % "; ".join(reasons)
    )


def _first_line(error: Exception) -> str:
    lines: List[Optional[str]] = [*str(error).strip().splitlines(), None]
    return lines[0] or type(error).__name__
