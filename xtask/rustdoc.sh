#!/bin/sh
# rustdoc under `cargo xtask ci doc`: what cargo would have it test is documented, from libraries that are built already.
# `cargo doc` would read all of them once more.
drop=
for word; do
  shift
  case "$drop$word" in
    --test) ;;
    --test-run-directory) drop=the-next: ;;
    the-next:*) drop= ;;
    *) set -- "$@" "$word" ;;
  esac
done
exec rustdoc "$@" --document-private-items -D warnings --out-dir "$OUT"
