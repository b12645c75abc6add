#!/bin/sh
# Before the files are there: the package is for one instruction set, and its architecture does not say which. In an image builder, only
# the machine that builds could be asked.
[ -n "$IPKG_INSTROOT" ] && exit 0
[ "$(uname -m)" = "@MACHINE@" ] && exit 0
echo "postern: this package is for @MACHINE@, and this machine is $(uname -m)" >&2
exit 1
