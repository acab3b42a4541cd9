#!/bin/sh
# Builds the stand-in driver as libcuda.so.1 in a folder: build.sh FOLDER [further options of the compiler]
set -e
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?"say the folder that libcuda.so.1 shall be made in"}
shift
mkdir -p "$folder"
made=$(mktemp -d "$folder/.build.XXXXXX")
trap 'rm -rf "$made"' EXIT
${CC:-gcc} -std=c11 -O2 -g -Wall -Wextra -Werror -fPIC -fvisibility=hidden -fno-strict-aliasing \
  -I "$here/.." -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic -Wl,-z,defs "$@" -o "$made/libcuda.so.1" "$here"/*.c "$here"/../memory/image.c -pthread
mv "$made/libcuda.so.1" "$folder/libcuda.so.1"
