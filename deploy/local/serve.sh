#!/usr/bin/env bash
# From a fresh checkout to a running server: installs what is missing, builds
# into build/, starts flash-server on the demo model, streams a completion and
# keeps serving until Ctrl-C.
#
#   deploy/local/serve.sh           serve until Ctrl-C
#   deploy/local/serve.sh --once    stop after the completion
#
# FLASH_LISTEN (127.0.0.1:8500), FLASH_MODEL (deploy/models/demo) and every other
# FLASH_... variable of `flash-server --help` are passed on. A second server on
# this machine needs another FLASH_LISTEN and FLASH_METRICS_LISTEN.
set -euo pipefail

usage() { echo "usage: $0 [--once]" >&2; exit 2; }
once=no
[ $# -le 1 ] || usage
case "${1:-}" in
  "") ;;
  --once) once=yes ;;
  -h|--help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) usage ;;
esac

here=$PWD
cd "$(dirname "$0")/../.."

# Whatever runs when this ends, ends too; the server when its requests have.
child=
port_file=
stop() {
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || true
  [ -z "$child" ] || wait "$child" 2>/dev/null || true
  [ -z "$port_file" ] || rm -f "$port_file"
}
trap stop EXIT
trap 'echo >&2; echo "Stopping ..." >&2; exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

bash deploy/local/install_packages.sh
if [ ! -f build/build.ninja ]; then
  echo "Configuring build/ ..." >&2
  cmake -S . -B build -G Ninja >build-configure.log 2>&1 || {
    cat build-configure.log >&2; exit 1
  }
  rm -f build-configure.log
fi
echo "Building (5 minutes or more the first time, seconds later) ..." >&2
ninja -C build flash-server flash-client flash-loadtest &
child=$!
wait "$child"
child=

export FLASH_MODEL=${FLASH_MODEL:-$PWD/deploy/models/demo}
[[ $FLASH_MODEL = /* ]] || FLASH_MODEL=$here/$FLASH_MODEL
export FLASH_LISTEN=${FLASH_LISTEN:-127.0.0.1:8500}
port_file=$(mktemp)
rm "$port_file"
# A line for each request: not between the words. One for each address, and
# appended to, for another server may write to it.
log=build/flash-server-${FLASH_LISTEN##*:}.log
log_begin=$(($(stat -c %s "$log" 2>/dev/null || echo 0) + 1))
# In a session of its own, so that Ctrl-C reaches this script alone, which then
# asks the server once.
setsid build/bin/flash-server --port_file="$port_file" 2>>"$log" &
child=$!
until [ -s "$port_file" ]; do
  kill -0 "$child" 2>/dev/null || {
    tail -c "+$log_begin" "$log" >&2
    wait "$child" || exit $?
    exit 1
  }
  sleep 0.05
done
address=$(cat "$port_file")

prompt='And it came to pass, when the king heard these words, that he'
echo >&2
printf '%s' "$prompt"
completed=yes
build/bin/flash-client generate --server="$address" --prompt="$prompt" \
  --max_tokens=80 --temperature=0.7 --seed=1 || completed=no
echo
if [ "$once" = yes ]; then
  [ "$completed" = yes ] || exit 1
  exit 0
fi
cat >&2 <<END

The server listens on $address and logs to $log; Ctrl-C stops it. To try next, in another terminal:
  build/bin/flash-client generate --server=$address --prompt='In the beginning' --max_tokens=200 --temperature=0.7
  build/bin/flash-client generate --server=$address --prompt='HACKER, n.' --output=json --logprobs=3
  build/bin/flash-client score --server=$address --text='The Lord is my shepherd' --output=json
  build/bin/flash-client chat --server=$address --max_tokens=60
  build/bin/flash-client info --server=$address
  build/bin/flash-loadtest --server=$address --sessions=16 --prompt_tokens=64 --max_tokens=128 --duration=10
END
wait "$child"
