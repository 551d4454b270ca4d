#!/usr/bin/env bash
# One command on a Cloud TPU slice that is queued for, of spot capacity, and queued for again when it
# is preempted. Runs on your machine (in tmux, say), one process per host of the slice:
#
#     NAME=assay ZONE=us-east5-b TYPE=v6e-16 launch/cluster/tpu_pod.sh \
#       sweep --checkpoint=gs://bucket/ckpt --run=gs://bucket/run
#
# Checkpoints and runs are on a bucket or a file system that all hosts mount.
#
#   DRY_RUN=1               print the commands instead of running them
#   RUNTIME=v2-alpha-tpuv6e image of the hosts; it belongs to TYPE
#   SOURCE=git+https://…    what pip installs on the hosts (required)
#   RESTARTS=100            how often the slice is queued for again
#   KEEP=1                  leave the slice when the command is done
set -euo pipefail
: "${NAME:?}" "${ZONE:?}" "${TYPE:?}" "${SOURCE:?}"

run() {
  if [[ ${DRY_RUN:-} ]]; then echo "${*@Q}"; else "$@"; fi
}

resources() { run gcloud compute tpus queued-resources "$@" "--zone=$ZONE"; }

state() { resources describe "$NAME" "--format=value(state.state)"; }

delete() { resources delete "$NAME" --force --quiet || true; }

on_hosts() { run gcloud compute tpus tpu-vm ssh "$NAME" "--zone=$ZONE" --worker=all "--command=$1"; }

# Queues for the slice, unless that was done before, and waits for it.
create() {
  if [[ ${DRY_RUN:-} || ! $(state 2>/dev/null) ]]; then
    resources create "$NAME" "--node-id=$NAME" "--accelerator-type=$TYPE" \
      "--runtime-version=${RUNTIME:-v2-alpha-tpuv6e}" --spot || exit
  fi
  if [[ ${DRY_RUN:-} ]]; then state; return; fi
  local now
  while now=$(state); [[ $now != ACTIVE ]]; do
    if [[ $now == FAILED || $now == SUSPENDED ]]; then return 255; fi
    sleep "${POLL:-30}"
  done
}

# --wait: where the run has a lock, for the command before this one to end.
# The hosts' own Python may be older than 3.11.
install="python3 -m pip install --quiet --user uv"
install+=" && python3 -m uv venv --quiet --allow-existing --python 3.13 ~/assay"
install+=" && python3 -m uv pip install --quiet --python ~/assay/bin/python 'assay-rewards[tpu,stores] @ $SOURCE'"
command="\$HOME/assay/bin/assay ${*@Q} --multihost --wait"
for (( attempt = 0; attempt <= ${RESTARTS:-100}; attempt++ )); do
  status=0
  { create && on_hosts "$install" && on_hosts "$command"; } || status=$?
  # 0: done. 1: some models failed. 2: bad input. Anything else: preempted, or a host was lost.
  if (( status <= 2 )); then break; fi
  if [[ $(state) != ACTIVE ]]; then delete; fi
done
if [[ ! ${KEEP:-} ]]; then delete; fi
exit "$status"
