#!/usr/bin/env bash
# Unpacks examples/ipsec-secgw of Debian's source package of DPDK into a directory: the program, and the scripts that test it.
#   scripts/dpdk-source.sh DIRECTORY [VERSION]
set -euo pipefail
directory=$(realpath -m "$1")
package=dpdk${2:+=$2}

mkdir -p "$directory"
work=$(mktemp -d "$directory/source-XXXXXX")
trap 'rm -rf "$work"' EXIT
# Lists of apt's own, so that the machine's sources stay as they are.
mkdir -p "$work/lists/partial"
apt-get indextargets --format 'deb-src $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 'Component: main' |
  grep -i debian | sort -u > "$work/sources.list"
options=(-qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$work/lists" -o "Dir::Cache::srcpkgcache=" -o "Dir::Cache::pkgcache=" -o APT::Sandbox::User=)
{ apt-get "${options[@]}" update && cd "$work" &&
  apt-get "${options[@]}" source --download-only "$package"; } > "$work/log" 2>&1 || {
  printf '%s\n' "the source package $package is not to be had" "$(tail -n 3 "$work/log")" >&2
  exit 1
}
tar -xf "$work"/dpdk_*.orig.tar.* -C "$work" --wildcards --strip-components 2 '*/examples/ipsec-secgw'
rm -rf "$directory/ipsec-secgw"
mv "$work/ipsec-secgw" "$directory/"
