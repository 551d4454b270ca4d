#!/usr/bin/env bash
# One command on a host with several GPUs.
#
#     launch/cluster/one_host.sh sweep --checkpoint=… --run=…               one process, all GPUs
#     SHARDS=8 launch/cluster/one_host.sh sweep --checkpoint=a,b,… --run=…  one shard on each GPU
#     PROCESSES=8 launch/cluster/one_host.sh sweep …                        one process per GPU
#
# One process over all GPUs is the simplest and the default. SHARDS runs small models side by side.
#
#   DRY_RUN=1   print the commands instead of running them
#   PORT=7007   where the processes meet; PORT + 10000 must be free too
set -euo pipefail

run() {
  if [[ ${DRY_RUN:-} ]]; then echo "${*@Q}"; else exec "$@"; fi
}

# The exit status of the command is the first of these that a process ends with: 2, bad input;
# 143, stopped; 1, some models failed; any other; 3, another process failed; 0.
worst() {
  local status
  for status in 2 143 1; do
    if [[ " $* " == *" $status "* ]]; then return "$status"; fi
  done
  for status in "$@"; do
    if (( status != 0 && status != 3 )); then return "$status"; fi
  done
  if [[ " $* " == *" 3 "* ]]; then return 3; fi
}

command=("${ASSAY:-assay}" "$@")
count=${SHARDS:-${PROCESSES:-1}}
if (( count == 1 )); then run "${command[@]}"; exit; fi

jobs=()
for (( i = 0; i < count; i++ )); do
  if [[ ${SHARDS:-} ]]; then
    own=("--shard=$((i + 1))/$count")
  else
    own=("--coordinator=127.0.0.1:${PORT:-7007}" "--processes=$count" "--process=$i")
  fi
  if [[ ${DRY_RUN:-} ]]; then
    run env "CUDA_VISIBLE_DEVICES=$i" "${command[@]}" "${own[@]}"
  else
    run env "CUDA_VISIBLE_DEVICES=$i" "${command[@]}" "${own[@]}" &
    jobs+=("$!")
  fi
done
trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true' TERM INT USR1

statuses=()
for job in "${jobs[@]}"; do
  status=0
  wait "$job" || status=$?
  # A signal ends `wait` early; the process is still ending.
  while kill -0 "$job" 2>/dev/null; do status=0; wait "$job" || status=$?; done
  statuses+=("$status")
done
worst "${statuses[@]}"
