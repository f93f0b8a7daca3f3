#!/usr/bin/env bash
# Build Horovod's wheel with NCCL and PyTorch only, for the Python, PyTorch and NCCL of one environment.
#
#     CUDA_HOME=/usr/local/cuda benchmarks/gpu/build_horovod.sh PYTHON FOLDER
#
# FOLDER gets the wheel. The environment needs PyTorch for CUDA, its NCCL wheel, setuptools below 81, wheel,
# packaging, cloudpickle, psutil and PyYAML. The machine needs cmake and g++, and no GPU. To finish early on
# many cores, set MAKEFLAGS=-j16.
set -euo pipefail

python=$(realpath -s "${1:?usage: build_horovod.sh PYTHON FOLDER}")
folder=$(realpath -m "${2:?usage: build_horovod.sh PYTHON FOLDER}")
version=0.28.1
cuda=${CUDA_HOME:-/usr/local/cuda}
capability=${CUDA_CAPABILITY:-90}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

nccl=$("$python" -c 'import nvidia.nccl as nccl; print(nccl.__path__[0])')
# The linker wants a name without a version.
mkdir "$build/nccl"
ln -s "$nccl/lib/libnccl.so.2" "$build/nccl/libnccl.so"

if [ -f "$folder/horovod-$version.tar.gz" ]; then
    cp "$folder/horovod-$version.tar.gz" "$build"
else
    "$python" -m pip download --quiet --no-deps --no-build-isolation --no-binary :all: \
        --dest "$build" "horovod==$version"
fi
tar -xzf "$build/horovod-$version.tar.gz" -C "$build"
source=$build/horovod-$version

# PyTorch's headers need C++17, CUDA 13 has no C++11, and machines without headers have no libcuda.so.
sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' \
    "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
sed -i 's/set(CMAKE_CUDA_STANDARD 11)/set(CMAKE_CUDA_STANDARD 17)/' \
    "$source/horovod/common/ops/cuda/CMakeLists.txt"
sed -i 's/"libcuda.so"/"libcuda.so.1"/' "$source/horovod/torch/cuda_util.cc"

# CMake 4 refuses the minimum versions that its parts name.
PATH="$(dirname "$python"):$cuda/bin:$PATH" CUDA_HOME=$cuda HOROVOD_CUDA_HOME=$cuda \
    HOROVOD_BUILD_CUDA_CC_LIST=$capability CUDAARCHS=$capability \
    HOROVOD_GPU_OPERATIONS=NCCL HOROVOD_NCCL_LINK=SHARED \
    HOROVOD_NCCL_INCLUDE=$nccl/include HOROVOD_NCCL_LIB=$build/nccl \
    HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
    HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_NVTX=1 CMAKE_POLICY_VERSION_MINIMUM=3.5 \
    "$python" -m pip wheel --no-build-isolation --no-deps --wheel-dir "$folder" "$source"
