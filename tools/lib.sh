# lib.sh -- what quickstart.sh and check.sh share: messages, packages, one build. Sourced, POSIX sh.

ROOT=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
say() { printf '%s\n' "tessera: $*" >&2; }
die() { printf '%s\n' "tessera: $*" >&2; exit 1; }

# What the build needs, as "file-or-command package" lines.
needs() {
    cat <<'EOF'
cmd:cmake cmake
cmd:ninja ninja-build
cmd:gcc gcc
file:/usr/include/stdlib.h libc6-dev
file:/usr/include/cjson/cJSON.h libcjson-dev
file:/usr/include/stb/stb_image_write.h libstb-dev
file:/usr/include/libdeflate.h libdeflate-dev
EOF
}

missing_packages() {
    while read -r what package; do
        case $what in
        cmd:*) command -v "${what#cmd:}" >/dev/null 2>&1 || printf '%s ' "$package" ;;
        file:*) [ -e "${what#file:}" ] || printf '%s ' "$package" ;;
        esac
    done
}

# install_missing: reads "need package" lines, installs what is not there. Nothing is done, and no network
# is needed, when all of it is.
install_missing() {
    packages=$(missing_packages)
    [ -n "$packages" ] || return 0
    command -v apt-get >/dev/null 2>&1 ||
        die "these are missing: $packages; this is no Debian, so please install them by hand"
    sudo=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 || die "these packages are missing: $packages; run as root: apt-get install $packages"
        sudo=sudo
    fi
    say "installing $packages"
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $packages >/dev/null 2>&1 ||
        { $sudo apt-get update -qq >/dev/null 2>&1 &&
          DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $packages >/dev/null; } ||
        die "apt-get could not install $packages; see its message above"
}

# build PRESET [TARGET...]: configures once (or with TESSERA_CMAKE_ARGS when they are set), builds what changed.
build() {
    preset=$1
    shift
    log=$ROOT/build/$preset.log
    mkdir -p "$ROOT/build"
    { [ -f "$ROOT/build/$preset/build.ninja" ] && [ -z "${TESSERA_CMAKE_ARGS:-}" ]; } ||
        (cd "$ROOT" && cmake --preset "$preset" ${TESSERA_CMAKE_ARGS:-} >"$log" 2>&1) ||
        { tail -n 20 "$log" >&2; die "configuring failed; the whole log is build/$preset.log"; }
    (cd "$ROOT" && cmake --build "build/$preset" ${1:+--target "$@"} >"$log" 2>&1) ||
        { grep -E -A4 'error|warning|FAILED' "$log" | head -n 40 >&2; die "the build failed; the whole log is build/$preset.log"; }
}
