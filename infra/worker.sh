#!/usr/bin/env bash
# A GPU worker that may be taken away at any moment.
#
#   worker.sh setup      install the engine of this repository
#   worker.sh run        go on with the sweep where the last machine was; ends when it has ended
#   worker.sh notebook   JupyterLab on loopback instead of a sweep, until the machine is idle
#
# Values come from infra/machines.env. A tunnel leads to the tracker; the guard ends this machine
# when it is idle or when the budget is spent.
#
# Exit codes: those of the sweep (0, 1, 2); 143 where it was interrupted and is to go on elsewhere;
# 0 where the guard has ended it, so that nothing starts it again.
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
ended_with=
sweep=
children=()

setup() {
  need SWEEP_BUCKET
  local packages
  packages=$(store_packages "$SWEEP_BUCKET")
  # shellcheck disable=SC2086  # lists of packages
  make_environment "$environment" "${WORKER_ENGINE:-.[torch,s3,examples]}" $packages ${WORKER_PACKAGES:-}
  say "installed $(notebook_hpo.py --version)"
}

watch_over_this_machine() { # $1: a command that ends this script
  local code guard='' limits=()
  trap '[ -z "$guard" ] || { kill "$guard" 2>/dev/null && wait "$guard"; }; exit 0' TERM
  [ -z "${BUDGET_HOURS:-}" ] || limits+=(--budget-hours "$BUDGET_HOURS")
  [ -z "${BUDGET:-}" ] || limits+=(--budget "$BUDGET")
  [ -z "${PRICE_PER_HOUR:-}" ] || limits+=(--price-per-hour "$PRICE_PER_HOUR")
  while true; do
    code=0
    "$python" "$here/machine_guard.py" watch --out "$(dirname "$SWEEP_OUTPUT")" --idle "${IDLE:-30m}" \
      --ledger "$SWEEP_BUCKET/ledgers/$SWEEP_NAME.json" --keep "$state/keep" "${limits[@]}" \
      --every "${GUARD_EVERY:-20s}" --count-from "${GUARD_COUNT_FROM:-boot}" --shutdown "$1" \
      --shutdown "${LAST_RESORT:-sudo shutdown -h now}" &
    guard=$!
    wait "$guard" || code=$?
    [ "$code" != 2 ] || { kill -USR2 "$$" && return; } # it has refused its options or its ledger
    say "the guard has ended (exit code $code); it is started again"
    sleep 5
  done
}

tunnel_to_tracker() { # again and again: the tracker may come later, or come back elsewhere
  local address key=$state/tracker_key name ssh=
  name=$(hostname)-$(cut -c1-8 /proc/sys/kernel/random/boot_id)
  trap '[ -z "$ssh" ] || kill "$ssh" 2>/dev/null
    "$python" "$here/tunnel_keys.py" withdraw "$SWEEP_BUCKET/tracker" "$name" 2>/dev/null || true
    exit 0' TERM
  [ -f "$key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$key"
  while true; do
    if address=$("$python" "$here/tunnel_keys.py" offer "$SWEEP_BUCKET/tracker" "$name" "$key.pub" \
      "$state/known_hosts"); then
      sleep 8 # the tracker looks for new keys every few seconds
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

end_sweep() { # $1: the exit code; 0 where the guard asks
  ended_with=$1
  [ -n "$sweep" ] || exit "$1"
  kill -TERM "$sweep" 2>/dev/null || true
}

end_children() {
  local child
  for child in "${children[@]}"; do kill -TERM "$child" 2>/dev/null || true; done
  for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
}

prepare() {
  need SWEEP_BUCKET SWEEP_NAME SWEEP_OUTPUT
  [ -x "$environment/bin/notebook_hpo.py" ] || fail 2 "nothing is installed; run worker.sh setup first"
  mkdir -p "$state" "$(dirname "$SWEEP_OUTPUT")"
  trap end_children EXIT
  trap 'end_sweep 143' TERM INT
  trap 'end_sweep 0' USR1
  trap 'fail 2 "the guard has refused to start; see above"' USR2
  watch_over_this_machine "kill -USR1 $$" &
  children+=("$!")
  tunnel_to_tracker &
  children+=("$!")
}

# Run a command so that signals reach it. Its exit code is in `code`.
attempt() {
  code=0
  "$@" &
  sweep=$!
  while kill -0 "$sweep" 2>/dev/null; do wait "$sweep" || true; done
  wait "$sweep" || code=$?
  sweep=
}

# Run a command, and leave with the exit code that fits.
go() {
  attempt "$@"
  for _ in 1 2; do
    # 2: it did not start. The machine before this one may hold the study for another minute.
    if [ "$code" != 2 ] || [ -n "$ended_with" ]; then break; fi
    say "it did not start (exit code 2); it is tried again in a minute"
    sleep 60
    attempt "$@"
  done
  if [ "$ended_with" = 0 ]; then
    say "ended by the guard; where the budget is spent, raise it in infra/machines.env to go on"
    exit 0
  fi
  exit "$code"
}

run() {
  need SWEEP_NOTEBOOK SWEEP_PARAMETERS
  [ -f "$SWEEP_PARAMETERS" ] || fail 2 "SWEEP_PARAMETERS=$SWEEP_PARAMETERS: there is no such file"
  grep -q '^sync:' "$SWEEP_PARAMETERS" || fail 2 "$SWEEP_PARAMETERS has no 'sync:': the trials of a machine that is taken away would be lost; add the line  sync: $SWEEP_BUCKET/studies"
  prepare
  wait_for_mlflow "$port" "${TRACKER_WAIT_SECONDS:-600}" "$python" \
    || fail 1 "no tracker answers through the tunnel; start it with 'machines.py up', and this worker then"
  # shellcheck disable=SC2086  # further options of the sweep
  go notebook_hpo.py -i "$SWEEP_NOTEBOOK" -o "$SWEEP_OUTPUT" -p "$SWEEP_PARAMETERS" \
    -j "${SWEEP_JOBS:-auto}" --tracking-uri "http://127.0.0.1:$port" ${SWEEP_OPTIONS:-}
}

notebook() {
  [ -x "$environment/bin/jupyter-lab" ] || make_environment "$environment" jupyterlab
  prepare
  go jupyter lab --no-browser --ip 127.0.0.1 --port 8888 # the log has its address, with a token
}

case "${1:-}" in
  setup) setup ;;
  run) run ;;
  notebook) notebook ;;
  *) fail 2 "usage: worker.sh setup|run|notebook" ;;
esac
