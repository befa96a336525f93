#!/bin/sh
# Run this machine's Python, $1, with the other arguments, where every user may read it: if it lies in root's closed home, in a mount
# namespace in which that home has nothing else.
set -e
prefix=$(dirname "$(dirname "$(readlink -f "$1")")")
case "$prefix" in
/root/*)
  if [ -z "$IN_OPEN_NAMESPACE" ]; then
    IN_OPEN_NAMESPACE=1 exec unshare --mount --propagation private "$0" "$@"
  fi
  held=$(mktemp -d /tmp/tunefarm-python-XXXXXX)
  mount --bind "$prefix" "$held"
  mount -t tmpfs -o mode=755 tmpfs /root
  mkdir -p "$prefix"
  mount --bind "$held" "$prefix"
  umount "$held"
  rmdir "$held"
  ;;
esac
exec "$@"
