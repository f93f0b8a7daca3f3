"""The messages on failures and ends that programs print in a line, as data.

A row has a text that each of its lines contains, with a letter that is rare in lines about steps, the
form of the message, the kind of the event, and its words. Groups of the form are fields of the event:
``rank`` or ``ranks``, ``host``, ``pid``, ``n`` (an exit status), ``time``, and ``ms`` (how long it had
lasted, ``seconds`` in words).
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Message(NamedTuple):
    """A message of one line."""

    needle: bytes
    form: re.Pattern[bytes]
    kind: str
    what: str
    #: Whether it is about the rank that prints it.
    by_printer: bool = False


def _row(needle: bytes, form: bytes, kind: str, what: str) -> Message:
    return Message(needle, re.compile(form), kind, what)


#: Texts in Horovod's warnings about stalls, and in torchrun's tables.
STALL_NEEDLES = (*(b"One or more tensors", b"Missing ranks:", b"Stalled ranks:", b"Stalled ops:"),)
TABLE_NEEDLES = (
    b"Root Cause (first",
    b"Failures:",
    *(b"  %-9s : " % name for name in (b"time", b"host", b"rank", b"exitcode", b"traceback")),
)
#: The start of events of which a line has nothing but a shell's word: other programs print it, too.
UNNAMED = "a process ended: "
_HOST = rb"(?P<host>[\w.:-]{1,255})"
_FAILED = rb"-?[1-9]\d{0,5}"
_ENDINGS = (b"Killed", b"Segmentation fault", b"Bus error", b"Aborted")
_TASKS = rb"srun: error: " + _HOST + rb": tasks? (?P<ranks>[\d,-]{1,200}): "
_CANCELLED = rb"\*\*\* (?:JOB|STEP) \S{1,40} ON " + _HOST + rb" CANCELLED AT (?P<time>\S{19})"

# Horovod, its elastic driver, and other launchers.
_LAUNCHERS = (
    _row(
        b" seconds. Will shutdown",
        rb"is stalled for longer than (?P<n>\d{1,9}) seconds\. Will shutdown",
        "stall_shutdown",
        "Horovod shuts the job down: ranks are stalled for longer than {n} s",
    ),
    _row(
        b"A response has been evicted",
        rb"A response has been evicted from cache",
        "cache_eviction",
        "a response was evicted from Horovod's cache",
    ),
    _row(
        b"Horovod has been shut down",
        rb"Horovod has been shut down\. This was caused by an exception on one of the ranks",
        "peer_failed",
        "Horovod was shut down by another rank's exception",
    ),
    _row(
        b" exit with status code ",
        rb"Process (?P<rank>\d{1,6}) exit with status code (?P<n>" + _FAILED + rb")\b",
        "rank_exited",
        "rank {rank} exited with status {n}",
    ),
    # torchrun, which then restarts or ends the other processes.
    _row(
        b" (exitcode: ",
        rb"failed \(exitcode: (?P<n>"
        + _FAILED
        + rb")\) local_rank: \d{1,6} \(pid: (?P<pid>\d{1,9})\)",
        "rank_exited",
        "process {pid} exited with status {n}",
    ),
    _row(
        b" with PID ",
        rb"noticed that process rank (?P<rank>\d{1,6}) with PID \d{1,9} on node "
        + _HOST
        + rb" exited on signal (?P<n>[1-9]\d{0,2})",
        "rank_exited",
        "rank {rank} exited on signal {n}",
    ),
    _row(
        b": Exited with exit code ",
        _TASKS + rb"Exited with exit code "
        rb"(?P<n>[1-9]\d{0,2})\b",
        "rank_exited",
        "tasks on {host} exited with status {n}",
    ),
    _row(
        b": Out Of Memory",
        _TASKS + rb"Out Of Memory",
        "out_of_memory",
        "Slurm ended tasks on {host} that used too much memory",
    ),
    *(
        _row(
            b" " + end,
            _TASKS + end,
            "rank_exited",
            f"tasks on {{host}} ended: {end.decode()}",
        )
        for end in _ENDINGS
    ),
    # The shell of a script.
    *(
        _row(
            b" " + end,
            rb": line \d{1,6}: +(?P<pid>\d{1,9}) " + end,
            "rank_exited",
            f"process {{pid}} ended: {end.decode()}",
        )
        for end in _ENDINGS
    ),
    # A shell without a script, and nohup.
    *(
        _row(
            end,
            rb"\A[\d:.,TZ +/-]{0,40}(?:std(?:out|err) F )?" + end + rb"\s*\Z",
            "rank_exited",
            f"{UNNAMED}{end.decode()}",
        )
        for end in (b"Killed", b"Terminated")
    ),
    _row(
        b" exits with return code = ",
        rb"exits with return code = (?P<n>" + _FAILED + rb")\b",
        "rank_exited",
        "a process of DeepSpeed's launcher exited with status {n}",
    ),
    _row(
        b"ProcessExitedException: process ",
        rb"ProcessExitedException: process \d{1,6} terminated with "
        rb"(?P<by>signal \w{3,12}|exit code \d{1,3})",
        "rank_exited",
        "a process that torch.multiprocessing started ended: {by}",
    ),
    _row(
        b"blacklist failing host: ",
        rb"blacklist failing host: " + _HOST,
        "host_blacklisted",
        "host {host} failed, and gets no more work",
    ),
    _row(
        b"reset workers: ",
        rb"\breset workers: (?P<workers>\d{1,6})\b",
        "workers_reset",
        "the job restarts with {workers}",
    ),
    _row(
        b"wait for available slots: ",
        rb"\bwait for available slots: (?P<slots>\d{1,6})\b",
        "waiting_for_slots",
        "the job waits for {slots}",
    ),
    _row(
        b" has exceeded limit ",
        rb"reset count (?P<resets>\d{1,6}) has exceeded limit \d+",
        "resets_exceeded",
        "the job ends: it was reset {resets}",
    ),
    _row(
        b"DataLoader worker (pid",
        rb"DataLoader worker \(pid(?:\(s\))? (?P<pid>\d{1,9})[^)]{0,200}\) "
        rb"(?:is killed by signal: (?!Terminated)(?P<by>[A-Z][a-z ]{2,30})|exited unexpectedly)",
        "loader_died",
        "a worker process of the loader died",
    ),
    _row(
        b"is killed by signal: Terminated",
        rb"DataLoader worker \(pid(?:\(s\))? (?P<pid>\d{1,9})[^)]{0,200}\) is killed by signal: Term",
        "terminated",
        "a worker process of the loader was asked to end (SIGTERM)",
    ),
    _row(
        b"Unexpected bus error",
        rb"Unexpected bus error encountered in worker",
        "loader_died",
        "a worker process of the loader died: shared memory ran out",
    ),
)

# Collectives that do not finish, and connections that break.
_COMMUNICATION = (
    _row(
        b"Watchdog caught collective",
        rb"(?:Rank (?P<rank>\d{1,6})\] )?Watchdog caught collective operation timeout: "
        rb"WorkNCCL\((?:SeqNum=(?P<seq>\d{1,12}), )?OpType=(?P<op>\w{1,40}).{0,200}?\) ran for "
        rb"(?P<ms>\d{1,12}) milliseconds",
        "collective_timeout",
        "{op} {seq} of NCCL timed out",
    ),
    _row(
        b" failed to pass monitoredBarrier",
        rb"Ranks? (?P<ranks>\d[\d, ]{0,2000}) failed to pass monitoredBarrier in (?P<ms>\d{1,12}) ms",
        "barrier_timeout",
        "ranks did not reach a barrier of gloo within {seconds} s",
    ),
    _row(
        b"Timed out waiting ",
        rb"Timed out waiting (?P<ms>\d{1,12})ms for (?P<op>send|recv) operation to complete",
        "collective_timeout",
        "a {op} of gloo timed out",
    ),
    _row(
        b"Connection closed by ",
        rb"Connection closed by (?:remote )?peer \[?(?P<host>[\w.:-]{2,64})[\]<]",
        "connection_lost",
        "{host} closed its connection",
    ),
    _row(
        b"NET/IB : Got completion",
        rb"NET/IB ?: Got completion from peer (?P<host>[\w.:]{2,45}?)<\d{1,6}> with (?:status=|error )"
        rb"(?P<code>\d{1,3})",
        "network_error",
        "InfiniBand reported an error with {host} to NCCL (status {code})",
    ),
    _row(
        b"ncclRemoteError: ",
        rb"ncclRemoteError: A (?:remote process exited|call failed)",
        "network_error",
        "NCCL lost another rank, or the network",
    ),
)

# Memory, numbers and devices.
_RESOURCES = (
    _row(
        b" out of memory. Tried to allocate",
        rb"(?:CUDA|HIP|XPU|MPS) out of memory\. Tried to allocate (?P<size>[\d.]{1,12} ?[KMGT]i?B)",
        "out_of_memory",
        "a GPU's memory ran out, allocating {size}",
    ),
    _row(
        b"CUDA error: ",
        rb"CUDA error: out of memory",
        "out_of_memory",
        "a GPU's memory ran out",
    ),
    _row(
        b"RESOURCE_EXHAUSTED: ",
        rb"RESOURCE_EXHAUSTED: (?:[A-Za-z ]{0,60}: ){0,2}Out of memory",
        "out_of_memory",
        "a device's memory ran out",
    ),
    _row(
        b"OOM when allocating tensor",
        rb"OOM when allocating tensor with shape",
        "out_of_memory",
        "a device's memory ran out",
    ),
    _row(
        b"Out of memory: Kill",
        rb"Out of memory: Kill(?:ed)? process (?P<pid>\d{1,9})",
        "out_of_memory",
        "the kernel killed process {pid}: the host's memory ran out",
    ),
    _row(
        b"oom-kill:constraint=CONSTRAINT",
        rb"oom-kill:constraint=",
        "out_of_memory",
        "the kernel killed a process: memory ran out",
    ),
    _row(
        b"OOMKilled",
        rb"\bOOMKilled\b",
        "out_of_memory",
        "Kubernetes killed a container: it used more memory than it may",
    ),
    _row(
        b"slurmstepd: error: Detected ",
        rb"Detected \d{1,6} oom[-_]kill event",
        "out_of_memory",
        "Slurm's step used more memory than it may: the kernel killed a process",
    ),
    _row(
        b"low on memory",
        rb"killed due to the node running low on memory",
        "out_of_memory",
        "Ray killed a worker: the host's memory ran low",
    ),
    _row(
        b"NVRM: Xid",
        rb"NVRM: Xid \(PCI:[\w:.]{4,20}\): (?P<code>\d{1,3})\b",
        "gpu_error",
        "the driver reported Xid {code} of a GPU",
    ),
    _row(
        b"CUDA error: ",
        rb"CUDA error: uncorrectable ECC error encountered",
        "gpu_error",
        "a GPU's memory has an uncorrectable ECC error",
    ),
    _row(
        b"CUDA error: ",
        rb"CUDA error: (?P<error>an illegal memory access|unspecified launch failure"
        rb"|device-side assert triggered|an illegal instruction|misaligned address)",
        "gpu_error",
        "CUDA failed: {error}",
    ),
    _row(
        b", stopping training",
        rb"(?i:loss is (?:nan|inf|-inf)), stopping training",
        "loss_not_finite",
        "the program stopped: the loss is not a finite number",
    ),
    _row(
        b"Invalid loss, terminating",
        rb"Batch \d{1,9}: Invalid loss, terminating training",
        "loss_not_finite",
        "Keras stopped: the loss is not a finite number",
    ),
    _row(
        b"found NaN in local forward",
        rb"found NaN in local forward loss",
        "loss_not_finite",
        "the program stopped: the loss is not a number",
    ),
)

_CRASHES = (
    _row(
        b"Process received signal ***",
        rb"\*\*\* Process received signal \*\*\*",
        "crashed",
        "a process crashed",
    ),
    _row(
        b"Fatal Python error: ",
        rb"Fatal Python error: (?P<error>Segmentation fault|Bus error|Aborted)",
        "crashed",
        "a process crashed: {error}",
    ),
)

# Schedulers, signals and lost workers.
_ENDS = (
    _row(
        b" CANCELLED AT ",
        _CANCELLED + rb" DUE TO TIME LIMIT",
        "time_limit",
        "Slurm ended the job at its time limit",
    ),
    _row(
        b" CANCELLED AT ",
        _CANCELLED + rb" DUE TO PREEMPTION",
        "preempted",
        "Slurm preempted the job",
    ),
    _row(
        b" CANCELLED AT ",
        _CANCELLED + rb" DUE TO JOB REQUEUE",
        "preempted",
        "Slurm stopped the job to queue it again",
    ),
    _row(
        b" CANCELLED AT ",
        _CANCELLED + rb" DUE TO NODE FAILURE",
        "node_failed",
        "Slurm ended the job because a node failed",
    ),
    _row(b" CANCELLED AT ", _CANCELLED, "cancelled", "Slurm cancelled the job"),
    _row(
        b"PBS: job killed: walltime ",
        rb"PBS: job killed: walltime \d{1,9} exceeded limit \d",
        "time_limit",
        "PBS ended the job at its time limit",
    ),
    _row(
        b"TERM_",
        rb"TERM_RUNLIMIT: job killed",
        "time_limit",
        "LSF ended the job at its time limit",
    ),
    _row(
        b"TERM_",
        rb"TERM_MEMLIMIT: job killed",
        "out_of_memory",
        "LSF ended the job at its memory limit",
    ),
    _row(
        b"The actor died ",
        rb"The actor died because its node has died",
        "node_failed",
        "Ray lost a worker: its node died",
    ),
    _row(
        b"The actor died ",
        rb"The actor died unexpectedly before finishing this task",
        "worker_died",
        "Ray lost a worker: it died unexpectedly",
    ),
    _row(
        b"The node with node id: ",
        rb"address: " + _HOST + rb" and node name: \S{1,255} has been marked dead because",
        "node_failed",
        "Ray lost the node {host}",
    ),
    _row(
        b" death signal, shutting down",
        rb"Received (?:SIGTERM|15|Signals\.SIGTERM) death signal, shutting down workers",
        "terminated",
        "torchrun was asked to end (SIGTERM)",
    ),
    _row(
        b"Received SIGTERM: 15",
        rb"(?:\[rank: (?P<rank>\d{1,6})\] )?Received SIGTERM: 15",
        "terminated",
        "ranks were asked to end (SIGTERM)",
    ),
    _row(
        b"SignalException: Process ",
        rb"SignalException: Process \d{1,9} got signal: 15\b",
        "terminated",
        "torchrun was asked to end (SIGTERM)",
    ),
    _row(
        b"Terminating process because the ",
        rb"Terminating process because the (?:JAX distributed service|coordinator) detected",
        "peer_failed",
        "JAX's distributed service lost another process",
    ),
    _row(
        b"KeyboardInterrupt",
        rb"(?:^|: )KeyboardInterrupt\s*$",
        "interrupted",
        "a user interrupted it",
    ),
)

_OF_PRINTER = tuple(
    row._replace(by_printer=True) for row in (*_COMMUNICATION, *_RESOURCES, *_CRASHES)
)
#: Of several rows that fit a line, the first one counts.
MESSAGES = (*_OF_PRINTER, *_ENDS, *_LAUNCHERS)
