# Functions that machines.sh, tracker.sh and worker.sh source.
# shellcheck shell=bash

say() { printf '[%s %(%H:%M:%S)T] %s\n' "$(basename "$0")" -1 "$*" >&2; }

fail() {
  say "$2"
  exit "$1"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

need() { # need NAME...: end with exit code 2 if one of these variables has no value
  local name
  for name in "$@"; do
    [ -n "${!name:-}" ] || fail 2 "$name has no value; set it in infra/machines.env"
  done
}

# Print the packages with which fsspec and MLflow access the bucket: $1 its URL.
store_packages() {
  case "$1" in
    s3://*) echo s3fs boto3 ;;
    gs://*) echo gcsfs google-cloud-storage ;;
    file://*) ;;
    *) fail 2 "SWEEP_BUCKET=$1: write it as s3://NAME or gs://NAME" ;;
  esac
}

# Make a virtual environment with uv: $1 its folder, then the packages to install. If the folder exists,
# only missing packages are installed.
make_environment() {
  local where=$1 uv
  shift
  uv=$(command -v uv || true)
  if [ -z "$uv" ]; then
    if [ ! -x "$HOME/.uv/bin/uv" ]; then
      if ! python3 -c 'import ensurepip' 2>/dev/null; then
        as_root apt-get update -q
        as_root apt-get install -q -y --no-install-recommends python3-venv
      fi
      python3 -m venv "$HOME/.uv"
      "$HOME/.uv/bin/pip" install -q uv
    fi
    uv="$HOME/.uv/bin/uv"
  fi
  [ -x "$where/bin/python" ] || "$uv" venv -q --python '>=3.11,<3.14' "$where"
  "$uv" pip install -q --python "$where/bin/python" "$@"
}

# Wait until an MLflow server answers on the loopback interface: $1 its port, $2 the longest wait in
# seconds, $3 the path of a Python. Fails if there is no answer.
wait_for_mlflow() {
  local left
  for ((left = $2; left > 0; left -= 2)); do
    if "$3" - "$1" <<'PY' 2>/dev/null; then
import sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
opener.open(f"http://127.0.0.1:{sys.argv[1]}/health", timeout=5).close()
PY
      return 0
    fi
    sleep 2
  done
  return 1
}
