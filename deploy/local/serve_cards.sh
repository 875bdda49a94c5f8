#!/usr/bin/env bash
# One flash-server for each card of this machine, each on ports of its own, and
# one line for clients, who go on at another server when one is gone.
#
#   deploy/local/serve_cards.sh [--dry-run] [--first_port=8500] [FLAG ...]
#
# Server n sees card n alone (CUDA_VISIBLE_DEVICES), listens on 127.0.0.1:8500 + n
# and has its metrics on 9400 + n. What it has of the host is its share: threads,
# and half of the memory that is free for sessions and the prefix cache. What goes
# with slots, above all with sessions, comes on top: --slots bounds it.
# FLAGs go to every server and win over these; what the environment has
# (FLASH_MODEL, else the demo model) does not.
# --dry-run prints the memory and the commands, and starts nothing.
#
# The build in build/ must have CUDA (kernels/README.md). Ctrl-C stops all of
# them. A server whose card fails ends, and the others go on; what starts it again
# is for systemd or the like, with the commands that --dry-run prints.
#
# FLASH_CARDS, for a machine without nvidia-smi: lines of "index, name, total
# MiB, free MiB".
set -euo pipefail

dry_run=no
first_port=8500
host=127.0.0.1
flags=()
for argument in "$@"; do
  case "$argument" in
    --dry-run) dry_run=yes ;;
    --first_port=*) first_port=${argument#*=} ;;
    -h|--help) sed -n '2,22s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --*=*) flags+=("$argument") ;;
    *) echo "usage: $0 [--dry-run] [--first_port=N] [--FLAG=VALUE ...]" >&2; exit 2 ;;
  esac
done
[[ $first_port =~ ^[0-9]{1,5}$ ]] || {
  echo "--first_port is \"$first_port\"; it must be a number" >&2; exit 2
}
cd "$(dirname "$0")/../.."

if [ -n "${FLASH_CARDS:-}" ]; then
  list=$FLASH_CARDS
elif command -v nvidia-smi >/dev/null; then
  list=$(nvidia-smi --format=csv,noheader,nounits \
    --query-gpu=index,name,memory.total,memory.free)
else
  echo "there is no nvidia-smi, so no driver, so no card" >&2; exit 1
fi
cards=()
while IFS= read -r line; do
  [ -z "$line" ] || cards+=("$line")
done <<<"$list"
[ ${#cards[@]} -gt 0 ] || { echo "nvidia-smi names no card" >&2; exit 1; }
number=${#cards[@]}

processors=$(nproc)
threads=$((processors / number > 0 ? processors / number : 1))
host_mib=$(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
# Of the host's memory for each server: half of its share, and of that as much
# for sessions as for the prefix cache, and half of it for the sessions' cache.
share=$((host_mib / number / 2 * 1048576))
store=$((share * 2 / 5))
cache=$((share / 5))

servers=()
echo "$number cards, $processors processors, $host_mib MiB of host memory free:"
for line in "${cards[@]}"; do
  IFS=, read -r index name total free <<<"$line"
  index=${index// /} name=${name# } total=${total// /} free=${free// /}
  echo "  card $index, $name: $free of $total MiB free; weights, then nine tenths of the rest for slots;" \
    "$threads threads, $((share / 1048576)) MiB of the host"
  servers+=("$host:$((first_port + index))")
done
echo "clients: --server=$(IFS=,; echo "${servers[*]}")"

# The command of the server of one card.
command_of() {
  # The driver's numbers are those of nvidia-smi only in this order.
  printf '%s\n' env CUDA_DEVICE_ORDER=PCI_BUS_ID "CUDA_VISIBLE_DEVICES=$1" \
    build/bin/flash-server --device=cuda \
    "--listen=$host:$((first_port + $1))" \
    "--metrics_listen=$host:$((first_port + 900 + $1))" \
    "--threads=$threads" "--session_store_bytes=$store" \
    "--session_cache_bytes=$cache" "--prefix_cache_bytes=$store" \
    ${flags[@]+"${flags[@]}"}
}

indices=()
for line in "${cards[@]}"; do indices+=("$(tr -d ' ' <<<"${line%%,*}")"); done
if [ "$dry_run" = yes ]; then
  for index in "${indices[@]}"; do command_of "$index" | paste -sd' '; done
  exit 0
fi
export FLASH_MODEL=${FLASH_MODEL:-$PWD/deploy/models/demo}


# Each in a session of its own, so that Ctrl-C reaches this script alone, which
# then asks them once.
children=()
stop() {
  [ ${#children[@]} -eq 0 ] || kill -TERM "${children[@]}" 2>/dev/null || true
  wait
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
for index in "${indices[@]}"; do
  mapfile -t command < <(command_of "$index")
  setsid "${command[@]}" &
  children+=($!)
done
failed=0
for _ in "${indices[@]}"; do
  ended=
  wait -n -p ended "${children[@]}" || failed=1
  for n in "${!children[@]}"; do
    [ "${children[$n]}" = "$ended" ] || continue
    echo "the server of card ${indices[$n]} has ended" >&2
    unset "children[$n]"
  done
done
children=()
exit "$failed"
