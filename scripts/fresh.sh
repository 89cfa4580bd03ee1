#!/usr/bin/env bash
# What a new user would do on a new machine: a minimal Debian in a folder, with git, make, python3, python3-venv, g++ and
# nothing else, and in it `make train`, the newest JAX, `make test`, and train and test again without the compiler.
# `fresh.sh train` stops after the first two. Debian 13, or what SUITE says. Root, debootstrap, 5 GB in TMPDIR, half an hour or more; `train` a few minutes.
# Exit status 75: something could not be fetched, or this machine does not let us; then nothing is known about mepg.
set -euo pipefail
cd "$(dirname "$0")/.."
upto=${1:-everything}
suite=${SUITE:-trixie}

unknown() { echo "fresh: $1: nothing was tried" >&2; exit 75; }
[ "$(id -u)" = 0 ] || unknown "this takes root"
command -v debootstrap > /dev/null || unknown "there is no debootstrap: apt-get install debootstrap"
unshare --mount --pid --fork true 2> /dev/null || unknown "this machine allows no mounts"

root=$(mktemp -d "${TMPDIR:-/var/tmp}/mepg-fresh.XXXXXX")
trap 'rm -rf --one-file-system "$root"' EXIT
chmod 755 "$root"  # for whoever is not root in it
trap 'exit 130' INT TERM

# Packages come from where this machine gets its own: the mirror, names of hosts, certificates, and what pip is told.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 2> /dev/null | sed -n 1p) || true
echo "fresh: Debian $suite, from Debian's packages"
SECONDS=0
debootstrap --variant=minbase --include=git,make,python3,python3-venv,g++ "$suite" "$root" ${mirror:+"$mirror"} \
    > "$root.log" 2>&1 || { tail -n 3 "$root.log"; rm "$root.log"; unknown "Debian's packages could not be fetched"; }
rm "$root.log"
echo "fresh: $(sed -n 's/^PRETTY_NAME=//p' "$root/etc/os-release") in $SECONDS s"
cp -L --remove-destination /etc/resolv.conf /etc/hosts "$root/etc/"
mkdir -p "$root/etc/ssl" && cp -rL --remove-destination /etc/ssl/certs "$root/etc/ssl/"
cp -L /etc/pip.conf "$root/etc/" 2> /dev/null || true
chroot "$root" useradd --create-home new
git clone --quiet --depth 1 "file://$PWD" "$root/home/new/mepg"
chroot "$root" chown -R new:new /home/new

# As that user, with nothing of ours but what leads to packages; whatever is mounted or started ends with it.
inside() {
    local one kept=(HOME=/home/new PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8)
    while IFS= read -r -d '' one; do
        case $one in PIP_* | UV_* | *_proxy=* | *_PROXY=* | SSL_CERT_* | REQUESTS_CA_BUNDLE=*) kept+=("$one") ;; esac
    done < <(env --null)
    unshare --mount --pid --fork --kill-child bash -c 'root=$1 command=$2; shift 2
        mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" || exit
        chroot --userspec=new:new "$root" env --ignore-environment "$@" sh -c "cd ~/mepg && $command"
        exit $?  # not exec: whoever becomes another user is no longer killed with unshare' \
        inside "$root" "$1" "${kept[@]}"
}

try() {
    echo "fresh: $1${2:+, $2}"
    SECONDS=0
    if ! inside "make --no-print-directory $1" 2>&1 | tee "$root/log"; then
        ! grep -q "^mepg: packages cannot be fetched" "$root/log" || unknown "Python's packages could not be fetched"
        echo "fresh: $1 failed${2:+, $2}" >&2
        exit 1
    fi
    echo "fresh: $1${2:+, $2}: $((SECONDS / 60)) min $((SECONDS % 60)) s"
}

inside 'python3 --version; make --version | sed -n 1p; g++ --version | sed -n 1p'
try train
try test-jax-newest
[ "$upto" = train ] && exit
try test
rm -f "$root"/usr/bin/{,*-}{cc,c++,gcc,g++}*
inside 'rm -rf runs .venv .pytest_cache'
try train "without a compiler"
try test "without a compiler"
