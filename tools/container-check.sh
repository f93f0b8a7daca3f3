#!/usr/bin/env bash
# Build the image of deploy/Containerfile, and run its commands as a cluster would: as another user than root, on a
# root file system that is read-only.
#
#     tools/container-check.sh [BASE]
#
# BASE is the image to build on; without it, a small Debian is made from its packages, so that no registry of images is
# needed. Needs root and Debian's buildah, mmdebstrap and bubblewrap, and installs them where they are missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cache=${STALLSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/stallscope}
token=a-token-of-the-check

fail() { echo "container-check: $*" >&2; exit 1; }

"$here/system-packages.sh" buildah mmdebstrap bubblewrap
for program in buildah mmdebstrap bwrap; do
    command -v "$program" >/dev/null || fail "there is no $program: apt-get install buildah mmdebstrap bubblewrap"
done

work=$(mktemp -d)
pids=()
container=
finish() {
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait
    [ -z "$container" ] || images rm "$container" >/dev/null
    rm -rf "$work"
}
trap finish EXIT

# Its own store, and no namespaces: this also works inside a container.
images() { buildah --root "$cache/images" --runroot "$work/run" --storage-driver vfs "$@"; }

base=${1:-}
if [ -z "$base" ]; then
    base=localhost/stallscope-base
    if ! images inspect --type image "$base" >/dev/null 2>&1; then
        echo "container-check: making a base image from Debian's packages"
        mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$work/base.tar"
        container=$(images from scratch)
        images add --quiet "$container" "$work/base.tar" / >/dev/null
        images commit --quiet --rm "$container" "$base" >/dev/null
        container=
    fi
fi

# pip in the build finds packages as pip does here.
settings=()
for path in /etc/pip.conf /etc/xdg/pip /etc/ssl/certs; do
    [ ! -e "$path" ] || settings+=(--volume "$path:$path:ro")
done
echo "container-check: building the image"
images build --isolation chroot --format docker --quiet "${settings[@]}" --build-arg "BASE=$base" \
    --file "$root/deploy/Containerfile" --ignorefile "$root/.dockerignore" --tag localhost/stallscope "$root" >"$work/build.log" 2>&1 ||
    { tail -40 "$work/build.log" >&2; fail "building failed; the last lines are above"; }

container=$(images from localhost/stallscope)
files=$(images mount "$container")
image() { images inspect --type image --format "{{.$1}}" localhost/stallscope; }
[ "$(image OCIv1.Config.User)" = 10001:10001 ] || fail "the image's user is $(image OCIv1.Config.User)"

mkdir "$work/runs"
cp -r "$root/sample_logs/clean" "$root/sample_logs/slow-input-one-rank" "$work/runs"
chmod -R go+rX "$work"

# Run a command of the image as its user does; the command is process 1, as in a container. It cannot write to the
# image or to the logs.
inside() {
    bwrap --ro-bind "$files" / --ro-bind "$work/runs" /mnt --proc /proc --dev /dev --tmpfs /tmp --chdir /tmp \
        --unshare-user --uid 10001 --gid 10001 --unshare-pid --as-pid-1 --die-with-parent \
        --clearenv --setenv HOME /tmp --setenv PATH /opt/stallscope/bin:/usr/bin:/bin --setenv STALLSCOPE_TOKEN "$token" \
        "$@"
}

# Print how a command is doing in the words of the image's health check.
answers() { # PORT
    for _ in $(seq 600); do
        [ "$(fetch "http://127.0.0.1:$1/health" 2>/dev/null)" = ok ] && return
        sleep 0.5
    done
    fail "nothing answers at port $1"
}
fetch() { # URL [HEADER]
    inside python - "$@" <<'END'
import sys
from urllib.request import Request, urlopen
headers = dict(header.split(": ", 1) for header in sys.argv[2:])
print(urlopen(Request(sys.argv[1], headers=headers), timeout=60).read().decode(), end="")
END
}

inside sh -c '! touch /x /mnt/x /opt/stallscope/x 2>/dev/null' || fail "it can write to the image or the logs"
inside stallscope report /mnt/slow-input-one-rank >"$work/report"
grep -q "rank 1" "$work/report" || fail "the report does not name the slow rank"

inside sh -c 'stallscope collect /mnt --to /tmp/runs && stallscope runs /tmp/runs' >"$work/collected"
grep -q slow-input-one-rank "$work/collected" || fail "the collector did not collect the runs"

inside stallscope dashboard /mnt --host 0.0.0.0 --port 18050 --token >"$work/dashboard" 2>&1 &
pids+=($!)
inside stallscope watch /mnt/clean /mnt/slow-input-one-rank --stay --metrics-host 0.0.0.0 --metrics-port 19464 >"$work/watch" 2>&1 &
pids+=($!)
answers 18050
answers 19464
fetch http://127.0.0.1:18050/ "Authorization: Bearer $token" | grep -q Stallscope || fail "the dashboard shows no page"
! fetch http://127.0.0.1:18050/ >/dev/null 2>&1 || fail "the dashboard shows pages without the token"
! fetch http://127.0.0.1:19464/metrics >/dev/null 2>&1 || fail "watch shows figures without the token"
fetch http://127.0.0.1:19464/metrics "Authorization: Bearer $token" >"$work/metrics"
grep -q 'stallscope_slow_ranks{.*} 1.0' "$work/metrics" || fail "watch does not serve the slow rank"

# The health check looks at process 1 of its container: it succeeds beside a dashboard, and fails where none answers.
inside sh -c 'exec python -c "
import subprocess, sys
sys.exit(subprocess.call([\"python\", \"/opt/stallscope/healthy.py\"]))
" dashboard --port 18050' || fail "the health check fails on a dashboard that answers"
! inside sh -c 'exec python -c "
import subprocess, sys
sys.exit(subprocess.call([\"python\", \"/opt/stallscope/healthy.py\"]))
" watch --metrics-port=18999' >/dev/null || fail "the health check accepts a watch that does not answer"

echo "container-check: the image has $(du -sm "$files" | cut -f1) MB; report, collect, dashboard and watch work in it, as user 10001 and on a read-only file system"
