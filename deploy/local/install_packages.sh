#!/usr/bin/env bash
# Installs what the project is built and tested with, from Debian 12's packages:
# as root, or by sudo. Does nothing, and asks for nothing, when all is there.
#
#   install_packages.sh           to build and run the server and its clients
#   install_packages.sh --tests   and what the tests and further tiers need
set -euo pipefail

build=(
  ca-certificates cmake g++ ninja-build pkg-config
  libabsl-dev libgrpc++-dev libprotobuf-dev protobuf-compiler
  protobuf-compiler-grpc libsentencepiece-dev libssl-dev nlohmann-json3-dev
  prometheus-cpp-dev zlib1g-dev libzstd-dev libxxhash-dev libhiredis-dev
)
tests=(
  libgtest-dev libgmock-dev libbenchmark-dev binutils ccache
  clang clang-format libclang-rt-14-dev
  python3 python3-numpy python3-yaml git redis-server
)

packages=("${build[@]}")
case "${1:-}" in
  "") ;;
  --tests) packages+=("${tests[@]}") ;;
  *) echo "usage: $0 [--tests]" >&2; exit 2 ;;
esac

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
    missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "This system has no apt-get; install by hand: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "Missing packages, and neither root nor sudo to install them: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi
echo "Installing: ${missing[*]}" >&2
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends "${missing[@]}" >/dev/null
