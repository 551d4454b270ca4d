#!/usr/bin/env bash
# Runs bench.device on a Linux machine without a network, from wheels that lie beside it.
#
#     bench/device/setup.sh collect wheels                   on a machine with a network
#     bench/device/setup.sh run wheels --minutes=5           on the other: flags of bench.device
#
# `collect` downloads requirements.txt and JAX for CUDA 12 for Linux on x86-64. Packages named behind
# the folder are downloaded instead: a Python that has JAX, its plugin and the rest already needs
# only what it lacks. `run` installs all wheels of the folder beside the packages of that Python,
# into `SITE`, and starts the benchmark there; no network is asked, no package is removed.
#
#   PYTHON=python3.12       the Python that runs; of one minor version on both machines
#   SITE=out/device-site    where the wheels are installed
#   JAX='jax[cuda12]'       JAX with its plugin: jax[cuda13], jax[tpu]
#   MODULE=bench.device     what is started: tests.support.device for the parity tests
set -euo pipefail

python=${PYTHON:-python3}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
site=$(realpath -m "${SITE:-$root/out/device-site}")

usage() {
  echo "usage: bench/device/setup.sh collect|run <folder> [packages, or flags of the benchmark]" >&2
  exit 2
}

(( $# >= 2 )) || usage
verb=$1 wheels=$(realpath -m "$2")
shift 2
cd "$root"

case $verb in
  collect)
    # pip compares the tags of platforms by name: one for each that wheels of the list have.
    platforms=()
    for tag in 2_34 2_28 2_27 2_26 2_25 2_24 2_17 2_12 2_5; do
      platforms+=(--platform "manylinux_${tag}_x86_64")
    done
    for tag in 2014 2010 1; do platforms+=(--platform "manylinux${tag}_x86_64"); done
    if (( ! $# )); then set -- -r requirements.txt "${JAX:-jax[cuda12]}"; fi
    "$python" -m pip download --only-binary=:all: "${platforms[@]}" --dest "$wheels" "$@"
    du -sh "$wheels"
    ;;
  run)
    found=("$wheels"/*.whl)
    if [[ ! -e ${found[0]} ]]; then
      echo "setup.sh: no wheels in $wheels" >&2
      exit 2
    fi
    rm -rf "$site"
    "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" "${found[@]}"
    export PYTHONPATH="$site:$root${PYTHONPATH:+:$PYTHONPATH}"
    exec "$python" -m "${MODULE:-bench.device}" "$@"
    ;;
  *) usage ;;
esac
