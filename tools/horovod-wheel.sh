# Compile Horovod (Gloo, CPU) for the frameworks of an environment; source it after installing.sh.
#
#     build_horovod VENV VERSION WHEELS FRAMEWORK…
#
# The wheel stays in the folder WHEELS. FRAMEWORKs are TENSORFLOW, PYTORCH and MXNET, as Horovod's settings call them.

build_horovod() {
    local venv=$1 version=$2 wheels=$3 framework build source pip with
    shift 3
    pip=("$venv/bin/python" -m pip --disable-pip-version-check)
    with=(HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1)
    for framework in "$@"; do
        with=("${with[@]/HOROVOD_WITHOUT_$framework/HOROVOD_WITH_$framework}")
    done
    build=$(mktemp -d)
    trap "rm -rf '$build'" EXIT
    source=$build/horovod-$version
    install "$venv" pip
    "${pip[@]}" download --quiet --no-deps --no-build-isolation --no-binary :all: --dest "$build" "horovod==$version"
    tar -xzf "$source.tar.gz" -C "$build"
    # What a debugger needs and the last optimisations are a third of the compiler's time, and change no result.
    sed -i 's/REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS/REPLACE "-O2 -g" "-O1" CMAKE_CXX_FLAGS/' "$source/CMakeLists.txt"
    # torch's headers need C++17 since 2.1; Horovod 0.28.1 sets 14 in these two places.
    if [[ " $* " == *" PYTORCH "* ]]; then
        sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' \
            "$source/CMakeLists.txt" "$source/horovod/torch/CMakeLists.txt"
    fi
    mkdir -p "$wheels.part"
    env PATH="$(cd "$venv/bin" && pwd):$PATH" "${with[@]}" HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 MAKEFLAGS=-j"$(nproc)" \
        "${pip[@]}" wheel --no-build-isolation --no-deps --wheel-dir "$wheels.part" "$source" >"$build/log" 2>&1 ||
        { tail -40 "$build/log" >&2; fail "building Horovod failed; the last lines are above"; }
    rm -rf "$wheels"
    mv "$wheels.part" "$wheels"
}
