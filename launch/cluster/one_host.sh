#!/usr/bin/env bash
# One command on a host with several GPUs.
#
#     launch/cluster/one_host.sh sweep --checkpoint=… --run=…               one process, all GPUs
#     SHARDS=8 launch/cluster/one_host.sh sweep --checkpoint=a,b,… --run=…  one shard on each GPU
#     PROCESSES=8 launch/cluster/one_host.sh sweep …                        one process per GPU
#
# SHARDS runs small models side by side, and ends with one table of all models.
#
#   DRY_RUN=1   print the commands instead of running them
#   PORT=7007   where the processes meet
#   LOGS=…      folder of the shards' progress and errors, which exists; by default a new one
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
  [[ " $* " != *" 3 "* ]] || return 3
}

# One table of those that end the shards' logs, and the last line of each log without one.
table() {
  awk -v form='%-40s %7s %10s %8s  %s\n' '
    { sub(/.*\r/, "") }
    /[^ ]/ { last[FILENAME] = $0 }
    /^[^ ]+ +[0-9]+\/[0-9]+ +[0-9,]+ +[0-9.]+  (complete$|failed: )/ {
      if (!n++) printf form, "model", "prompts", "new rows", "seconds", "status"
      match($0, /(complete|failed: .*)$/)
      printf form, $1, $2, $3, $4, substr($0, RSTART)
      told[FILENAME] = 1
    }
    END { for (i = 1; i < ARGC; i++) if (!told[ARGV[i]]) print ARGV[i] ": " last[ARGV[i]] }' "$@"
}

command=("${ASSAY:-assay}" "$@")
count=${SHARDS:-${PROCESSES:-1}}
if (( count == 1 )); then run "${command[@]}"; exit; fi

start() { run env "CUDA_VISIBLE_DEVICES=$i" "${command[@]}" "${own[@]}"; }

logs=$([[ ${DRY_RUN:-} || ! ${SHARDS:-} ]] || echo "${LOGS:-$(mktemp -d)}")
if [[ $logs ]]; then echo "progress and errors: $logs/shard-*-of-$count" >&2; fi
jobs=() files=()
for (( i = 0; i < count; i++ )); do
  own=("--coordinator=127.0.0.1:${PORT:-7007}" "--processes=$count" "--process=$i")
  if [[ ${SHARDS:-} ]]; then own=("--shard=$((i + 1))/$count"); fi
  if [[ $logs ]]; then files+=("$logs/shard-$((i + 1))-of-$count"); fi
  if [[ ${DRY_RUN:-} ]]; then start; continue; fi
  if [[ $logs ]]; then start 2>"${files[i]}" & else start & fi
  jobs+=("$!")
done
trap 'kill -TERM "${jobs[@]}" 2>/dev/null || true' TERM INT USR1 HUP

statuses=()
for job in "${jobs[@]}"; do
  status=0
  wait "$job" || status=$?
  # A signal ends `wait` early; the process is still ending.
  while kill -0 "$job" 2>/dev/null; do status=0; wait "$job" || status=$?; done
  statuses+=("$status")
done
if [[ $logs ]]; then table "${files[@]}" >&2; fi
worst "${statuses[@]}"
