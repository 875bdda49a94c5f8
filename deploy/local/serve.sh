#!/usr/bin/env bash
# From a fresh checkout to a running server: installs what is missing, builds
# into build/, starts flash-server on the demo model, streams a completion and
# keeps serving until Ctrl-C.
#
#   deploy/local/serve.sh           serve until Ctrl-C
#   deploy/local/serve.sh --once    stop after the completion
#
# FLASH_LISTEN (127.0.0.1:8500), FLASH_MODEL (deploy/models/demo) and every other
# FLASH_... variable of `flash-server --help` are passed on.
set -euo pipefail

once=no
case "${1:-}" in
  "") ;;
  --once) once=yes ;;
  -h|--help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "usage: $0 [--once]" >&2; exit 2 ;;
esac

cd "$(dirname "$0")/../.."
bash deploy/local/install_packages.sh
if [ ! -f build/build.ninja ]; then
  echo "Configuring build/ ..." >&2
  cmake -S . -B build -G Ninja >build-configure.log 2>&1 || {
    cat build-configure.log >&2; exit 1
  }
  rm -f build-configure.log
fi
echo "Building (minutes the first time, seconds later) ..." >&2
cmake --build build --target flash-server flash-client flash-loadtest

export FLASH_MODEL=${FLASH_MODEL:-deploy/models/demo}
export FLASH_LISTEN=${FLASH_LISTEN:-127.0.0.1:8500}
port_file=$(mktemp)
rm "$port_file"
log=build/flash-server.log  # a line for each request: not between the words
build/bin/flash-server --port_file="$port_file" 2>"$log" &
server=$!
stop() {
  kill -TERM "$server" 2>/dev/null || true
  wait "$server" 2>/dev/null || true
  rm -f "$port_file"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
until [ -s "$port_file" ]; do
  kill -0 "$server" 2>/dev/null || { cat "$log" >&2; wait "$server"; exit 1; }
  sleep 0.05
done
address=$(cat "$port_file")

prompt='And it came to pass, when the king heard these words, that he'
echo >&2
printf '%s' "$prompt"
build/bin/flash-client generate --server="$address" --prompt="$prompt" \
  --max_tokens=80 --temperature=0.7 --seed=1
echo
[ "$once" = yes ] && exit 0
cat >&2 <<END

The server listens on $address and logs to $log; Ctrl-C stops it. To try next, in another terminal:
  build/bin/flash-client generate --server=$address --prompt='In the beginning' --max_tokens=200
  build/bin/flash-client generate --server=$address --prompt='HACKER, n.' --output=json --logprobs=3
  build/bin/flash-client score --server=$address --text='The Lord is my shepherd' --output=json
  build/bin/flash-client info --server=$address
  build/bin/flash-loadtest --server=$address --sessions=16 --prompt_tokens=64 --max_tokens=128 --duration=10
END
wait "$server"
