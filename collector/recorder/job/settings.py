"""Read the environment settings that affect speed, without credentials."""

from __future__ import annotations

import functools
import re
from typing import Any, Dict, FrozenSet, Mapping

MASK = "***"

# Only Horovod, NCCL (RCCL reads the same names) and PyTorch's process groups use these prefixes, and
# their releases add names. Several programs share the others: TF_VAR_… are Terraform's, often passwords.
_PREFIXES = ("HOROVOD_", "_HOROVOD_", "NCCL_", "TORCH_NCCL_")
# The names that each framework documents or reads.
_FAMILIES = {
    "CUDA": "CUDA_LAUNCH_BLOCKING",
    "GLOO": """
        GLOO_DEVICE_TRANSPORT GLOO_DISABLE_CONNECTION_RETRIES GLOO_ENABLE_RANK_AS_SEQUENCE_NUMBER
        GLOO_ENABLE_STORE_V2_API GLOO_LOG_LEVEL GLOO_SOCKET_IFNAME
        """,
    # JAX reads each of its configuration's options from the variable of that name.
    "JAX": """
        JAX_ALLOW_F16_REDUCTIONS JAX_CHECK_TRACER_LEAKS JAX_COMPILATION_CACHE_DIR
        JAX_COMPILATION_CACHE_EXPECT_PGLE JAX_COMPILATION_CACHE_INCLUDE_METADATA_IN_KEY
        JAX_COMPILATION_CACHE_MAX_SIZE JAX_COMPILER_ENABLE_REMAT_PASS JAX_COORDINATOR_ADDRESS
        JAX_COORDINATOR_BIND_ADDRESS JAX_COORDINATOR_PORT JAX_CPU_COLLECTIVES_IMPLEMENTATION
        JAX_DEBUG_INFS JAX_DEBUG_KEY_REUSE JAX_DEBUG_LOG_MODULES JAX_DEBUG_NANS JAX_DEFAULT_DEVICE
        JAX_DEFAULT_MATMUL_PRECISION JAX_DEFAULT_PRNG_IMPL JAX_DISABLE_JIT
        JAX_DISABLE_MOST_OPTIMIZATIONS JAX_DISTRIBUTED_DEBUG JAX_DUMP_IR_TO JAX_ENABLE_CHECKS
        JAX_ENABLE_COMPILATION_CACHE JAX_ENABLE_CUSTOM_PRNG JAX_ENABLE_PGLE JAX_ENABLE_X64
        JAX_EXEC_TIME_OPTIMIZATION_EFFORT JAX_EXPLAIN_CACHE_MISSES JAX_LOCAL_DEVICE_IDS
        JAX_LOGGING_LEVEL JAX_LOG_COMPILES JAX_MEMORY_FITTING_EFFORT JAX_MEMORY_FITTING_LEVEL
        JAX_NUMPY_DTYPE_PROMOTION JAX_NUMPY_RANK_PROMOTION JAX_OPTIMIZATION_LEVEL
        JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS
        JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES JAX_PGLE_AGGREGATION_PERCENTILE
        JAX_PGLE_PROFILING_RUNS JAX_PLATFORMS JAX_PLATFORM_NAME JAX_SHARE_BINARY_BETWEEN_HOSTS
        JAX_SHARE_BINARY_BETWEEN_HOSTS_TIMEOUT_MS JAX_THREEFRY_PARTITIONABLE JAX_TRANSFER_GUARD
        JAX_TRANSFER_GUARD_DEVICE_TO_DEVICE JAX_TRANSFER_GUARD_DEVICE_TO_HOST
        JAX_TRANSFER_GUARD_HOST_TO_DEVICE JAX_USE_SHARDY_PARTITIONER JAX_XLA_PROFILE_VERSION
        """,
    "Keras": """
        KERAS_BACKEND KERAS_DISTRIBUTION_JOB_ADDRESSES KERAS_DISTRIBUTION_NUM_PROCESSES
        KERAS_DISTRIBUTION_PROCESS_ID KERAS_HOME KERAS_MAX_EPOCHS KERAS_MAX_STEPS_PER_EPOCH
        KERAS_NNX_ENABLED KERAS_TORCH_DEVICE
        """,
    "MKL": """
        MKL_CBWR MKL_DEBUG_CPU_TYPE MKL_DISABLE_FAST_MM MKL_DOMAIN_NUM_THREADS MKL_DYNAMIC
        MKL_ENABLE_INSTRUCTIONS MKL_FAST_MEMORY_LIMIT MKL_INTERFACE_LAYER MKL_MPI_PPN MKL_NUM_STRIPES
        MKL_NUM_THREADS MKL_SERVICE_FORCE_INTEL MKL_THREADING_LAYER MKL_VERBOSE MKL_VERBOSE_OUTPUT_FILE
        """,
    "OpenMP": """
        OMP_AFFINITY_FORMAT OMP_ALLOCATOR OMP_CANCELLATION OMP_DEBUG OMP_DEFAULT_DEVICE
        OMP_DISPLAY_AFFINITY OMP_DISPLAY_ENV OMP_DYNAMIC OMP_MAX_ACTIVE_LEVELS OMP_MAX_TASK_PRIORITY
        OMP_NESTED OMP_NUM_TEAMS OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_SCHEDULE OMP_STACKSIZE
        OMP_TARGET_OFFLOAD OMP_TEAMS_THREAD_LIMIT OMP_THREAD_LIMIT OMP_TOOL OMP_TOOL_LIBRARIES
        OMP_TOOL_VERBOSE_INIT OMP_WAIT_POLICY
        """,
    "PyTorch": """
        TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_BLAS_PREFER_CUBLASLT TORCH_BLAS_PREFER_HIPBLASLT
        TORCH_COMPILE_BACKEND TORCH_COMPILE_DEBUG TORCH_COMPILE_DISABLE
        TORCH_COMPILE_FORCE_DISABLE_CACHES TORCH_CPP_LOG_LEVEL TORCH_CUDA_ARCH_LIST
        TORCH_CUDA_SANITIZER TORCH_CUDNN_USE_HEURISTIC_MODE_B TORCH_CUDNN_V8_API_DEBUG
        TORCH_CUDNN_V8_API_DISABLED TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT TORCH_DEVICE_BACKEND_AUTOLOAD
        TORCH_DISTRIBUTED_DEBUG TORCH_DIST_INIT_BARRIER TORCH_FR_BUFFER_SIZE TORCH_FR_CPP_STACK
        TORCH_FR_DUMP_DYNAMIC_FILE_NAME TORCH_FR_DUMP_TEMP_FILE TORCH_GLOO_LAZY_INIT TORCH_HOME
        TORCH_LINALG_PREFER_CUSOLVER TORCH_LINALG_PREFER_HIPSOLVER TORCH_LOGS TORCH_LOGS_FORMAT
        TORCH_LOGS_OUT TORCH_MKLDNN_MATMUL_MIN_DIM TORCH_MKLDNN_MATMUL_MIN_SIZE
        TORCH_PROFILER_ENABLE_COLLECTIVE_PROFILING TORCH_SHOW_CPP_STACKTRACES
        TORCH_SHOW_DISPATCH_TRACE TORCH_SYMBOLIZE_MODE TORCH_TRACE TORCH_USE_RTLD_GLOBAL
        """,
    "TensorFlow": """
        TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_IGNORE_PERFORMANCE
        TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LEVEL TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LOG_PATH
        TF_CONFIG TF_CONV2D_USE_FP16_ACCUMULATE TF_CPP_LOG_THREAD_ID TF_CPP_MAX_VLOG_LEVEL
        TF_CPP_MIN_LOG_LEVEL TF_CPP_MIN_VLOG_LEVEL TF_CPP_VLOG_FILENAME TF_CPP_VMODULE
        TF_CPU_ALLOCATOR_USE_BFC TF_CPU_BFC_MEM_LIMIT_IN_MB TF_CUDNN_DETERMINISTIC
        TF_CUDNN_DISABLE_CONV_1X1_OPTIMIZATION TF_CUDNN_RNN_USE_AUTOTUNE TF_CUDNN_USE_AUTOTUNE
        TF_CUDNN_USE_FRONTEND TF_CUDNN_WORKSPACE_LIMIT_IN_MB TF_DATA_EXPERIMENT_OPT_IN
        TF_DATA_EXPERIMENT_OPT_OUT TF_DETERMINISTIC_OPS TF_DISABLE_CUBLAS_TENSOR_OP_MATH
        TF_DISABLE_CUDNN_RNN_TENSOR_OP_MATH TF_DISABLE_CUDNN_TENSOR_OP_MATH
        TF_DISABLE_JIT_KERNELS TF_DISABLE_MKL TF_DISABLE_NVTX_RANGES TF_DISABLE_PROFILING
        TF_DISABLE_SEGMENT_REDUCTION_OP_DETERMINISM_EXCEPTIONS TF_DUMP_GRAPH_PREFIX
        TF_EAGER_ENABLE_SMALL_TENSOR_CPU_PINNING TF_ENABLE_AUTO_MIXED_PRECISION
        TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32
        TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32 TF_ENABLE_GPU_GARBAGE_COLLECTION
        TF_ENABLE_MAXPOOL_NANPROP TF_ENABLE_MKL_NATIVE_FORMAT TF_ENABLE_NVTX_RANGES
        TF_ENABLE_ONEDNN_OPTS TF_ENABLE_WINOGRAD_NONFUSED TF_ENABLE_ZENDNN_OPTS
        TF_FORCE_GPU_ALLOW_GROWTH TF_FORCE_UNIFIED_MEMORY TF_FP16_CONV_USE_FP32_COMPUTE
        TF_FP16_MATMUL_USE_FP32_COMPUTE TF_FUNCTION_JIT_COMPILE_DEFAULT TF_GPU_ALLOCATOR
        TF_GPU_HOST_MEM_LIMIT_IN_MB TF_GPU_THREAD_COUNT TF_GPU_THREAD_MODE TF_GRAPH_CACHING
        TF_GRPC_DEFAULT_OPTIONS TF_GRPC_REUSE_PORT TF_GRPC_WORKER_CACHE_QUEUES
        TF_GRPC_WORKER_CACHE_THREADS TF_JIT_COMPILE_REWRITE TF_JOB_NAME TF_LOG_XLA_ACTIVITY
        TF_MATMUL_AUTOTUNE_ENABLE TF_MKL_ALLOC_MAX_BYTES TF_MKL_OPTIMIZE_PRIMITIVE_MEMUSE
        TF_NUM_BATCH_THREADS TF_NUM_INTEROP_THREADS TF_NUM_INTRAOP_THREADS
        TF_ONEDNN_ASSUME_FROZEN_WEIGHTS TF_ONEDNN_THREADPOOL_USE_CALLER_THREAD
        TF_ONEDNN_USE_SYSTEM_ALLOCATOR TF_OVERRIDE_GLOBAL_THREADPOOL
        TF_PER_DEVICE_MEMORY_LIMIT_MB TF_SET_ONEDNN_FPMATH_MODE TF_SYNC_ON_FINISH
        TF_USE_CUBLASLT TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT
        TF_USE_DEEP_CONV2D TF_USE_EIGEN_PARALLEL_FOR_IN_WORK_SHARDER TF_USE_LEGACY_KERAS
        TF_XLA_BRIDGE TF_XLA_FLAGS
        """,
    "XLA": """
        XLA_DISABLE_FUNCTIONALIZATION XLA_DOWNCAST_BF16 XLA_DUMP_FATAL_STACK XLA_EXPERIMENTAL XLA_FLAGS
        XLA_GET_TENSORS_OPBYOP XLA_HLO_DEBUG XLA_IR_DEBUG XLA_NO_SPECIAL_SCALARS
        XLA_PERSISTENT_CACHE_PATH XLA_PYTHON_CLIENT_ALLOCATOR XLA_PYTHON_CLIENT_MEM_FRACTION
        XLA_PYTHON_CLIENT_PREALLOCATE XLA_SAVE_TENSORS_FILE XLA_SAVE_TENSORS_FMT
        XLA_SYNC_TENSORS_OPBYOP XLA_USE_32BIT_LONG XLA_USE_BF16 XLA_USE_SPMD
        """,
}
_NAMES: FrozenSet[str] = frozenset(name for names in _FAMILIES.values() for name in names.split())

# For names that a prefix selects.
_SECRET_NAME = re.compile(
    r"KEY|TOKEN|SECRET|PASS(?:W|PHRASE|_|$)|PWD|CREDENTIAL|AUTH|COOKIE|SIGNATURE", re.IGNORECASE
)
# The lengths are bounded, so that no text takes long to search.
_CREDENTIAL = re.compile(
    r"""
    # A URL with user information, also with a slash in the password; but not host:port.
      ://[^\s/?\#@"']{1,400}@
    | ://[^\s/?\#:@"']{0,100}:(?!\d{1,5}(?:[/?\#,;\s"']|$))[^\s@"']{1,400}@
    | (?:^|[\s,;="'])[\w.+-]{1,100}:[^\s:/,;@"']{1,400}@[A-Za-z]
    # password=…, "secret": …, ?sig=…; compilers have a pass, too: --xla_…_pass=.
    | (?i:
        (?: passw(?:or)?d | passphrase | secret | credentials? | signature
          | (?: api | access | account | private | shared | secret | sas | auth | signing | encryption )
            [_.-]?(?:access[_.-]?)?(?: key | token )
          | (?<![A-Za-z0-9])(?: pwd | token | sig | cookie | authorization )
        )(?:[_.-]?(?: key | value ))?["']?\s?[=:]\s?["']?[^\s"'&,;:]
      | (?:^|[?&;,\s"'])-{0,2}(?:[a-z]{1,20}_)?pass=[^\s&;,]
      | \b(?: bearer | basic )\ [A-Za-z0-9+/=._~-]{8}
      )
    # Keys and tokens that begin alike: AWS, Google, GitHub, GitLab, Hugging Face, npm, PyPI, Databricks,
    # Docker, OpenAI and others, Stripe, Slack, SendGrid; JSON Web Tokens; PEM.
    | \b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b
    | \bAIza[\w-]{30} | \bya29\.[\w-]{10} | \bGOCSPX-[\w-]{10}
    | \bgh[opsur]_[A-Za-z0-9]{20} | \bgithub_pat_\w{20} | \bglpat-[\w-]{16}
    | \bhf_[A-Za-z0-9]{30} | \bnpm_[A-Za-z0-9]{30} | \bpypi-[\w-]{30} | \bdapi[0-9a-f]{32}
    | \bdckr_pat_[\w-]{20} | \bsk-(?:[a-z0-9]{1,8}-){0,2}\w{20} | \b[rs]k_live_\w{16}
    | \bxox[a-z]-[\w-]{8} | \bhooks\.slack\.com/services/\w | \bSG\.[\w-]{16,80}\.
    | \beyJ[\w-]{8,4000}\.[\w-]{4}
    | -----BEGIN\ [A-Z]
    """,
    re.VERBOSE,
)
_LONG_WORD = re.compile(r"[A-Za-z0-9]{20,}")
# Keys in base64 have few of the characters that separate words in paths and names.
_BASE64_WORD = re.compile(r"(?<![\w+/=.-])[\w+/-]{40,}={0,2}(?![\w+/=.-])")
_ABSOLUTE_PATH = re.compile(r"(?<![A-Za-z0-9+/:])(?:~|\.{1,2})?/[^\s,;]*")


def settings(env: Mapping[str, str]) -> Dict[str, str]:
    """Return the environment settings that affect speed; credentials are masked."""
    return masked({name: env[name] for name in sorted(env) if is_recorded(name)})


def is_recorded(name: str) -> bool:
    """Return whether a framework, and nothing else, has a setting of this name."""
    return name in _NAMES or name.startswith(_PREFIXES)


def masked(recorded: Mapping[str, Any]) -> Dict[str, Any]:
    """Mask values that are or may be credentials, and those of names that are not recorded any more."""
    return {
        name: MASK if _may_be_secret(name) or has_credential(str(value)) else value
        for name, value in recorded.items()
    }


def with_masked_settings(facts: Mapping[str, Any]) -> Dict[str, Any]:
    """Return a log's facts with ``masked`` settings: earlier recorders recorded some credentials."""
    recorded = facts.get("settings")
    return {**facts, "settings": masked(recorded)} if isinstance(recorded, dict) else dict(facts)


# The ranks of a job have the same values.
@functools.lru_cache(maxsize=256)
def has_credential(text: str) -> bool:
    """Return whether a text contains what looks like a password, a key or a token."""
    return (
        _CREDENTIAL.search(text) is not None
        or any(map(_is_random_base64, _BASE64_WORD.findall(text)))
        or any(map(_is_random, _LONG_WORD.findall(_ABSOLUTE_PATH.sub(" ", text))))
    )


def _may_be_secret(name: str) -> bool:
    if name in _NAMES:
        return False
    return not is_recorded(name) or _SECRET_NAME.search(name) is not None


def _is_random_base64(word: str) -> bool:
    separators = sum(map(word.count, "/_-"))
    mixed = any(map(str.isupper, word)) and any(map(str.isdigit, word))
    return mixed and separators <= len(word) / 10 and _is_random(word)


def _is_random(word: str) -> bool:
    """Return whether letters and digits alternate as often as in a random word.

    Neighbours are of different kinds in 62 % of a random word's places if it has lower case, upper case
    and digits, in 40 to 47 % with one case and digits, and rarely in names with numbers.
    """
    kinds = [
        "digit" if letter.isdigit() else "upper" if letter.isupper() else "lower" for letter in word
    ]
    changes = sum(before != after for before, after in zip(kinds, kinds[1:]))
    if len(set(kinds)) == 3:
        return changes >= 0.36 * len(word)
    return "digit" in kinds and len(word) >= 24 and changes >= 0.3 * len(word)
