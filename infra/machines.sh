#!/usr/bin/env bash
# Start and end the tracker (a machine with MLflow) and the worker (a GPU machine) with SkyPilot.
#
#   infra/machines.sh up       # start the tracker, and the worker with the sweep of machines.env
#   infra/machines.sh tunnel   # open MLflow on this computer, until Ctrl-C
#   infra/machines.sh down     # save MLflow's data, and end the tracker and the worker
#
# The environment variable ENV_FILE names another file than machines.env.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/common.sh
source "$here/common.sh"
cd "$here/.." # the workdir of both tasks
env_file=${ENV_FILE:-$here/machines.env}

while IFS='=' read -r name value; do
  case "$name" in '' | '#'*) continue ;; esac
  printf -v "$name" '%s' "$value"
done <"$env_file"
need INFRA SWEEP_BUCKET SWEEP_NAME SWEEP_NOTEBOOK SWEEP_PARAMETERS SWEEP_OUTPUT BUDGET_HOURS
[[ $SWEEP_NAME =~ ^[a-z][a-z0-9-]{0,30}$ ]] \
  || fail 2 "$env_file: SWEEP_NAME=$SWEEP_NAME: write small letters, digits and '-'"
[[ $BUDGET_HOURS =~ ^[0-9]+([.][0-9]+)?$ ]] \
  || fail 2 "$env_file: BUDGET_HOURS=$BUDGET_HOURS: write a number of hours, such as 24"
case "$INFRA:$SWEEP_BUCKET" in
  gcp*:gs://* | aws*:s3://*) ;;
  *) fail 2 "$env_file: INFRA=$INFRA with SWEEP_BUCKET=$SWEEP_BUCKET: write gcp with gs://NAME, or aws with s3://NAME" ;;
esac
command -v sky >/dev/null || fail 2 "there is no 'sky' command: pip install 'skypilot[gcp,aws]'"
common=(--config "$here/sky.config.yaml" --infra "$INFRA" --env-file "$env_file" -y -d)

has_tracker() { sky status | grep -q '^sweep-tracker '; }

case "${1:-}" in
  up)
    has_tracker || sky launch -c sweep-tracker "${common[@]}" infra/tracker.yaml
    sky jobs launch -n "sweep-$SWEEP_NAME" "${common[@]}" infra/worker.yaml
    say "MLflow: infra/machines.sh tunnel; the sweep: sky jobs logs -n sweep-$SWEEP_NAME; the end: infra/machines.sh down"
    ;;
  tunnel)
    say "MLflow: http://127.0.0.1:5000"
    exec ssh -N -o ExitOnForwardFailure=yes -L 127.0.0.1:5000:127.0.0.1:5000 sweep-tracker
    ;;
  down)
    sky jobs cancel -y -n "sweep-$SWEEP_NAME" || say "there is no worker to cancel"
    if has_tracker; then
      ssh -o BatchMode=yes sweep-tracker \
        "cd sky_workdir && SWEEP_BUCKET=$(printf %q "$SWEEP_BUCKET") infra/tracker.sh save" \
        || fail 1 "the tracker's last minute is not saved, and it still runs; 'sky down sweep-tracker' ends it nevertheless"
      sky down -y sweep-tracker
    fi
    say "ended; results and the tracker's data are in $SWEEP_BUCKET. The jobs controller ends 10 minutes after its last job"
    ;;
  *) fail 2 "usage: machines.sh up|tunnel|down" ;;
esac
