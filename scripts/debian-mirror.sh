#!/usr/bin/env bash
# Prints where this machine has its packages of Debian from.
set -euo pipefail
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Component: main' | head -n 1)
[ -n "$mirror" ] || { printf 'no source of Debian packages is known here: see /etc/apt/sources.list\n' >&2; exit 1; }
printf '%s\n' "$mirror"
