#!/usr/bin/env bash
# The tracker: an MLflow server on the loopback interface. Copies of its SQLite file are in the bucket.
#
#   tracker.sh setup    install packages, once for each machine
#   tracker.sh run      restore the SQLite file, serve it, save it every minute, until SIGTERM
#   tracker.sh save     end the server of this machine, and save the file a last time
#
# SWEEP_BUCKET   s3://… or gs://…; artifacts and copies of the SQLite file are below …/tracker
# TRACKER_IDLE_HOURS   end after this many hours in which nothing was written (default: 72)
# TRACKER_ADDRESS      address at which workers reach this machine (default: the cloud's metadata)
# TRACKER_TUNNEL=off   do not let workers on other machines connect through SSH
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/common.sh
source "$here/common.sh"

home=${TRACKER_HOME:-$HOME/tracker}
port=${TRACKER_PORT:-5000}
db=$home/mlflow.db
python=$home/env/bin/python

setup() {
  need SWEEP_BUCKET
  local packages
  packages=$(store_packages "$SWEEP_BUCKET")
  mkdir -p "$home"
  # shellcheck disable=SC2086  # a list of packages
  make_environment "$home/env" 'mlflow>=3.13,<4' 'fsspec>=2024.6' $packages
  say "installed $("$home/env/bin/mlflow" --version)"
}

# The address that the cloud gave this machine: GCP's metadata service, then AWS's.
public_address() {
  local token root=http://169.254.169.254
  if [ -n "${TRACKER_ADDRESS:-}" ]; then
    echo "$TRACKER_ADDRESS"
    return
  fi
  curl -sf -m 3 -H 'Metadata-Flavor: Google' \
    "$root/computeMetadata/v1/instance/network-interfaces/0/access-configs/0/external-ip" && return
  token=$(curl -sf -m 3 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' "$root/latest/api/token") \
    && curl -sf -m 3 -H "X-aws-ec2-metadata-token: $token" "$root/latest/meta-data/public-ipv4"
}

# Let workers connect through SSH, as a user `tunnel` who can only forward to the MLflow server's port.
open_door() {
  local address keys=/home/tunnel/.ssh/authorized_keys url=$SWEEP_BUCKET/tracker
  address=$(public_address) \
    || fail 2 "the cloud does not tell this machine's address; set TRACKER_ADDRESS, or TRACKER_TUNNEL=off"
  if ! id tunnel >/dev/null 2>&1; then
    as_root useradd --create-home --shell /usr/sbin/nologin tunnel
    as_root usermod --password '*' tunnel # login with a key only, because no password matches '*'
  fi
  as_root install -d -o root -m 755 /home/tunnel/.ssh
  as_root chmod 755 /home/tunnel
  "$python" "$here/tunnel_keys.py" announce "$url" "$address" /etc/ssh/ssh_host_ed25519_key.pub
  # The SSH daemon requires that the file with the keys belongs to root or to the user `tunnel`.
  install -m 644 /dev/null "$home/authorized_keys"
  "$python" "$here/tunnel_keys.py" authorise "$url" "$home/authorized_keys" "$port" &
  children+=("$!")
  while sleep 2; do
    if ! cmp -s "$home/authorized_keys" "$keys"; then
      as_root install -o root -m 644 "$home/authorized_keys" "$keys.new"
      as_root mv "$keys.new" "$keys"
    fi
  done &
  children+=("$!")
  say "workers reach this tracker at $address, through SSH"
}

serve() { # run the MLflow server in a process group of its own, and start it again whenever it ends
  local server=
  # Sweeps do not use MLflow's job runners, which need more memory than the server.
  export MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false
  trap '[ -z "$server" ] || kill -TERM -- "-$server" 2>/dev/null; exit 0' TERM
  while true; do
    setsid "$home/env/bin/mlflow" server --host 127.0.0.1 --port "$port" --workers 1 \
      --backend-store-uri "sqlite:///$db" --artifacts-destination "$SWEEP_BUCKET/tracker/artifacts" &
    server=$!
    wait "$server" || true
    say "the MLflow server has ended; it is started again"
    sleep 2
  done
}

end_children() {
  local child
  for child in "${children[@]}"; do kill -TERM "$child" 2>/dev/null || true; done
  for child in "${children[@]}"; do wait "$child" 2>/dev/null || true; done
  rm -f "$home/run.pid"
}

run() {
  need SWEEP_BUCKET
  [ -x "$python" ] || fail 2 "nothing is installed in $home; run tracker.sh setup first"
  if [ -f "$home/run.pid" ] && kill -0 "$(cat "$home/run.pid")" 2>/dev/null; then
    fail 2 "a tracker runs on this machine already (process $(cat "$home/run.pid"))"
  fi
  children=()
  local watching='' code=0
  "$python" "$here/tracker_state.py" restore "$db" "$SWEEP_BUCKET/tracker/state"
  echo "$$" >"$home/run.pid"
  trap end_children EXIT
  trap '[ -n "$watching" ] || exit 143; kill -TERM "$watching" 2>/dev/null' TERM INT
  [ "${TRACKER_TUNNEL:-on}" = off ] || open_door
  serve &
  children+=("$!")
  wait_for_mlflow "$port" 180 "$python" || fail 1 "the MLflow server does not answer on 127.0.0.1:$port"
  say "MLflow answers on http://127.0.0.1:$port, on this machine only"
  "$python" "$here/tracker_state.py" watch "$db" "$SWEEP_BUCKET/tracker/state" \
    --every "${TRACKER_SAVE_SECONDS:-60}" --idle-hours "${TRACKER_IDLE_HOURS:-72}" &
  watching=$!
  while kill -0 "$watching" 2>/dev/null; do wait "$watching" || true; done
  wait "$watching" || code=$?
  end_children # before the last save, so that it contains all that the server has written
  trap - EXIT
  "$python" "$here/tracker_state.py" save "$db" "$SWEEP_BUCKET/tracker/state" || code=$?
  exit "$code"
}

save() {
  need SWEEP_BUCKET
  local pid left
  if [ -f "$home/run.pid" ] && pid=$(cat "$home/run.pid") && kill -TERM "$pid" 2>/dev/null; then
    for ((left = 120; left > 0; left--)); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 1
    done
    ! kill -0 "$pid" 2>/dev/null || fail 1 "the tracker (process $pid) has not ended within 2 minutes"
  fi
  "$python" "$here/tracker_state.py" save "$db" "$SWEEP_BUCKET/tracker/state"
}

case "${1:-}" in
  setup) setup ;;
  run) run ;;
  save) save ;;
  *) fail 2 "usage: tracker.sh setup|run|save" ;;
esac
