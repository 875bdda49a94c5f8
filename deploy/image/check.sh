#!/usr/bin/env bash
# Builds the image and runs it as the manifests of deploy/kubernetes do: not as
# root, without capabilities, on a root file system that is read-only, with 2
# processors and 2 GiB. Says what it does; exit 1 where something is not so.
#
#   deploy/image/check.sh                        with docker or podman, if they run
#   ENGINE='podman --runtime=runc' deploy/image/check.sh --build-arg BASE=...
#
# Arguments go to the engine's `build`. It needs curl, and two ports of this
# machine: PORT (18500) and METRICS_PORT (19400).
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly port=${PORT:-18500} metrics_port=${METRICS_PORT:-19400}
readonly address=127.0.0.1:$port
readonly image=flash-server:check name=flash-image-check-$$
work=$(mktemp -d)

step() { echo "--- $*"; }
die() {
  echo "deploy/image/check.sh: $*" >&2
  exit 1
}

if [ -n "${ENGINE:-}" ]; then
  read -ra engine <<<"$ENGINE"
else
  engine=()
  for candidate in docker podman; do
    if "$candidate" info >/dev/null 2>&1; then
      engine=("$candidate")
      break
    fi
  done
fi
[ ${#engine[@]} -gt 0 ] || die "neither docker nor podman runs here"
command -v curl >/dev/null || die "it needs curl"
finish() {
  "${engine[@]}" rm --force "$name" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap finish EXIT

now_ms() { echo $(($(date +%s%N) / 1000000)); }
in_container() { "${engine[@]}" exec "$name" "$@"; }

# What the health service says of the service $1, asked from outside of the
# container as a kubelet does: 1 SERVING, 2 NOT_SERVING, empty no answer.
health() {
  local length=${#1} request
  # A HealthCheckRequest behind the five bytes that gRPC puts before a message.
  if [ "$length" -eq 0 ]; then
    request='\x00\x00\x00\x00\x00'
  else
    request=$(printf '\\x00\\x00\\x00\\x00\\x%02x\\x0a\\x%02x%s' \
      $((length + 2)) "$length" "$1")
  fi
  printf '%b' "$request" |
    curl --silent --http2-prior-knowledge --max-time 5 --data-binary @- \
      --header 'content-type: application/grpc' --header 'te: trailers' \
      "http://$address/grpc.health.v1.Health/Check" |
    od -An -v -t u1 | awk '{ if (NF == 7) print $7 }'
}

# Waits, for ten seconds at most, until the service $1 is said to be $2.
await_health() {
  local deadline=$((SECONDS + 10))
  until [ "$(health "$1")" = "$2" ]; do
    [ "$SECONDS" -lt "$deadline" ] ||
      die "the health of \"$1\" is \"$(health "$1")\", not $2"
    sleep 0.02
  done
}

step "building with ${engine[*]}"
began=$SECONDS
ignore=()  # docker finds the file by its name
[[ ${engine[0]} = *docker ]] ||
  ignore=(--ignorefile deploy/image/Containerfile.dockerignore)
"${engine[@]}" build "$@" --file deploy/image/Containerfile "${ignore[@]}" \
  --tag "$image" . >"$work/build.log" 2>&1 || {
  tail -n 40 "$work/build.log" >&2
  die "the image cannot be built"
}
bytes=$("${engine[@]}" image inspect --format '{{.Size}}' "$image")
echo "built in $((SECONDS - began)) s; $((bytes / 1000000)) MB"
user=$("${engine[@]}" image inspect --format '{{.Config.User}}' "$image")
[ "$user" = 65532:65532 ] || die "the image's user is \"$user\""

step "starting it, as the manifests do"
began=$(now_ms)
"${engine[@]}" run --detach --name "$name" --read-only --network host \
  --cap-drop all --security-opt no-new-privileges --memory 2g --cpus 2 \
  --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 \
  "$image" --listen="$address" --metrics_listen="127.0.0.1:$metrics_port" \
  >"$work/id" 2>"$work/run.log" || {
  cat "$work/run.log" >&2
  die "it does not start"
}
await_health flash.v1.Inference 1
echo "ready $(($(now_ms) - began)) ms after \`run\`"
await_health "" 1

step "looking at its process"
in_container cat /proc/1/status >"$work/status"
grep -q '^Uid:[[:space:]]*65532[[:space:]]' "$work/status" || die "it is not 65532"
grep -q '^CapEff:[[:space:]]*0*$' "$work/status" || die "it has capabilities"
in_container cat /proc/1/mounts | awk '$2 == "/"' | grep -q ' ro,' ||
  die "its root file system is not read-only"
version=$(in_container flash-server --version)
echo "$version, as user 65532 on a read-only root"

step "generating, scoring, measuring, with the clients of the image"
in_container flash-client generate --server="$address" --prompt='Behold' \
  --max_tokens=24 --seed=1 --ignore_eos >"$work/text"
[ "$(wc -c <"$work/text")" -gt 24 ] || die "no text came: $(cat "$work/text")"
cat "$work/text"
in_container flash-client score --server="$address" --text='Behold, a text'
in_container flash-loadtest --server="$address" --sessions=4 --requests=8 \
  --prompt_tokens=32 --max_tokens=32 | head -n 3
curl --silent --fail "http://127.0.0.1:$metrics_port/metrics" |
  grep -q '^flash_' || die "there are no metrics"

step "telling it to stop (SIGTERM) while a text is written"
in_container flash-client generate --server="$address" --prompt='Behold' \
  --max_tokens=20000 --ignore_eos --output=json >"$work/long" &
client=$!
until [ -s "$work/long" ]; do
  kill -0 "$client" 2>/dev/null || die "the text ended before it began"
  sleep 0.02
done
"${engine[@]}" kill --signal TERM "$name" >/dev/null
await_health flash.v1.Inference 2
[ "$(health "")" = 1 ] || die "a server that drains is said to be stuck"
echo "not ready, and alive"
wait "$client" || die "the running text was cut off"
[ "$(grep -c '"token"' "$work/long")" -eq 20000 ] ||
  die "the running text has $(grep -c '"token"' "$work/long") tokens, not 20000"
code=$("${engine[@]}" wait "$name")
[ "$code" = 0 ] || die "it ended with exit code $code"
echo "the text came to its end, and the server to exit code 0"

"${engine[@]}" rm "$name" >/dev/null
"${engine[@]}" image rm "$image" >/dev/null
step "all is well"
