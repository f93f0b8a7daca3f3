#!/usr/bin/env bash
# Make the environment of the servers for tests of collecting.
#
#     tools/services-env.sh VENV [spark]
#
# MLflow's server pins versions that the app does not, so it has a separate environment. Azurite comes from
# npm and is in there, too; sshd, Open MPI, Slurm, Prometheus and the tools of the lab's hosts are the distribution's.
# Spark is only added on request: it is large and needs Java.
set -euo pipefail

venv=${1:?usage: tools/services-env.sh VENV [spark]}
spark=${2:-}
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/services-requirements.txt
# The version that horovod.spark 0.28.1 works with and notebook runtimes have.
pyspark="pyspark==3.5.*"
# 3.37 depends on a package that npm's registry does not have.
azurite="azurite@3.35.0"

fail() { echo "services-env: $*" >&2; exit 1; }

. "$here/installing.sh"

# With systemd, the package would start the machine's sshd; its owner must decide that.
install_sshd() {
    PATH="$PATH:/usr/sbin:/sbin" command -v sshd >/dev/null && return
    if [ -d /run/systemd/system ]; then
        echo "services-env: no sshd for the tests of ssh://; installing openssh-server also starts it, so please do that yourself: apt-get install openssh-server" >&2
        return
    fi
    # Without systemd, no service is started in runlevel 1.
    RUNLEVEL=1 "$here/system-packages.sh" openssh-server
}

# Open MPI and Slurm for jobs on the lab's hosts. Slurm's packages bring munge, which systemd would start.
install_launchers() {
    "$here/system-packages.sh" openmpi-bin
    PATH="$PATH:/usr/sbin:/sbin" command -v slurmctld >/dev/null && return
    if [ -d /run/systemd/system ]; then
        echo "services-env: no Slurm for the tests of its jobs; installing it also starts munge, so please do that yourself: apt-get install slurmctld slurmd slurm-client" >&2
        return
    fi
    RUNLEVEL=1 "$here/system-packages.sh" slurmctld slurmd slurm-client
}

# Prometheus for the tests of dashboards and alert rules; with systemd, the package would start it.
install_prometheus() {
    command -v prometheus >/dev/null && return
    if [ -d /run/systemd/system ]; then
        echo "services-env: no Prometheus for the tests of monitoring; installing it also starts it, so please do that yourself: apt-get install prometheus" >&2
        return
    fi
    RUNLEVEL=1 "$here/system-packages.sh" prometheus
}

# Optional: without it, the tests that need it are skipped and say so.
install_azurite() {
    [ ! -f "$venv/node_modules/azurite/package.json" ] || return 0
    "$venv/bin/npm" install --prefix "$venv" --no-save --no-package-lock --ignore-scripts --no-audit \
        --no-fund --loglevel=error "$azurite" >/dev/null ||
        echo "services-env: npm could not install $azurite for the tests of az://" >&2
}

install_sshd
"$here/system-packages.sh" iproute2 faketime
install_launchers
install_prometheus
stamp=$(sha256sum <"$requirements" | cut -c1-16)
if [ ! -f "$venv/.ready" ] || [ "$(cat "$venv/.ready")" != "$stamp" ]; then
    python=$(find_python 3.11 3.99 "${PYTHON:-}" python3.11 python3 python) ||
        fail "MLflow's server needs Python 3.11 or later here, and none was found; name one: PYTHON=/path/to/python3.11"
    echo "services-env: making $venv with $python"
    make_environment "$venv" "$python"
    install "$venv" --requirement "$requirements"
    echo "$stamp" >"$venv/.ready"
    echo "services-env: $venv is ready"
fi
install_azurite
if [ "$spark" = spark ] && [ ! -f "$venv/.ready-spark" ]; then
    command -v java >/dev/null || "$here/system-packages.sh" default-jre-headless
    command -v java >/dev/null || fail "Spark needs Java: apt-get install default-jre-headless"
    install "$venv" "$pyspark"
    touch "$venv/.ready-spark"
    echo "services-env: Spark is in $venv"
fi
