#!/usr/bin/env bash
# A GPU worker: a machine that the cloud may take away at any moment.
#
#   worker.sh setup   install this repository's package
#   worker.sh run     run the sweep, or resume it where the last machine stopped
#
# Values come from machines.env. The worker reaches the tracker (the MLflow server) through an SSH
# tunnel. budget_guard.py ends the sweep when its hours are spent.
#
# Exit codes: those of the sweep (0, 1, 2); 143 if it was interrupted and another machine resumes it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/common.sh
source "$here/common.sh"
cd "$here/.."

environment=${WORKER_ENVIRONMENT:-$HOME/worker-env}
state=${WORKER_STATE:-$HOME/worker}
port=${TRACKER_PORT:-5000}
python=$environment/bin/python
PATH=$environment/bin:$PATH

setup() {
  need SWEEP_BUCKET
  local packages
  packages=$(store_packages "$SWEEP_BUCKET")
  # shellcheck disable=SC2086  # lists of packages
  make_environment "$environment" "${WORKER_ENGINE:-.[torch,s3,examples]}" $packages ${WORKER_PACKAGES:-}
  say "installed $(notebook_hpo.py --version)"
}

tunnel_to_tracker() { # try again for ever: the tracker may start later, or move to another address
  local address key=$state/tracker_key name ssh=
  name=$(hostname)-$(cut -c1-8 /proc/sys/kernel/random/boot_id)
  trap '[ -z "$ssh" ] || kill "$ssh" 2>/dev/null; exit 0' TERM
  [ -f "$key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$key"
  while true; do
    if address=$("$python" "$here/tunnel_keys.py" offer "$SWEEP_BUCKET/tracker" "$name" "$key.pub" \
      "$state/known_hosts"); then
      sleep 8 # the tracker accepts this key within 5 s + 2 s: tunnel_keys.py, open_door
      ssh -N -T -i "$key" -p "${TRACKER_SSH_PORT:-22}" -L "127.0.0.1:$port:127.0.0.1:$port" \
        -o LogLevel=FATAL -o BatchMode=yes -o IdentitiesOnly=yes -o ExitOnForwardFailure=yes -o ConnectTimeout=10 \
        -o ServerAliveInterval=15 -o ServerAliveCountMax=3 -o HostKeyAlias=tracker \
        -o StrictHostKeyChecking=yes -o UserKnownHostsFile="$state/known_hosts" "tunnel@$address" &
      ssh=$!
      wait "$ssh" || true
    fi
    sleep 5
  done
}

run() {
  need SWEEP_BUCKET SWEEP_NAME SWEEP_NOTEBOOK SWEEP_PARAMETERS SWEEP_OUTPUT BUDGET_HOURS
  [ -x "$environment/bin/notebook_hpo.py" ] || fail 2 "nothing is installed; run worker.sh setup first"
  [ -f "$SWEEP_PARAMETERS" ] || fail 2 "SWEEP_PARAMETERS=$SWEEP_PARAMETERS: there is no such file"
  grep -q '^sync:' "$SWEEP_PARAMETERS" || fail 2 "$SWEEP_PARAMETERS has no 'sync:': the trials of a machine that is taken away would be lost; add the line  sync: $SWEEP_BUCKET/studies"
  mkdir -p "$state"
  local sweep='' tunnel code=2 is_interrupted=''
  tunnel_to_tracker &
  tunnel=$!
  trap 'kill "$tunnel" 2>/dev/null; wait "$tunnel" 2>/dev/null || true' EXIT
  trap 'is_interrupted=yes; [ -n "$sweep" ] || exit 143; kill -TERM "$sweep" 2>/dev/null || true' TERM INT
  wait_for_mlflow "$port" "${TRACKER_WAIT_SECONDS:-600}" "$python" \
    || fail 1 "no tracker answers through the tunnel; start it with 'machines.sh up', and this worker then"
  # Try again after exit code 2: the study may be locked by the previous machine for another minute.
  for _ in 1 2 3; do
    # shellcheck disable=SC2086  # further options of the sweep
    "$python" "$here/budget_guard.py" --since boot --hours "$BUDGET_HOURS" --ledger "$SWEEP_BUCKET/ledgers/$SWEEP_NAME.json" -- \
      notebook_hpo.py -i "$SWEEP_NOTEBOOK" -o "$SWEEP_OUTPUT" -p "$SWEEP_PARAMETERS" \
      -j "${SWEEP_JOBS:-auto}" --tracking-uri "http://127.0.0.1:$port" ${SWEEP_OPTIONS:-} &
    sweep=$! code=0
    while kill -0 "$sweep" 2>/dev/null; do wait "$sweep" || true; done
    wait "$sweep" || code=$?
    if [ "$code" != 2 ] || [ -n "$is_interrupted" ]; then break; fi
    say "the sweep did not start (exit code 2); the next try is in a minute"
    sleep 60
  done
  exit "$code"
}

case "${1:-}" in
  setup) setup ;;
  run) run ;;
  *) fail 2 "usage: worker.sh setup|run" ;;
esac
