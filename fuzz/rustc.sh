#!/bin/sh
# The compiler of this workspace's crates under `cargo xtask fuzz --quick`: with $COVERAGE for what is fuzzed, and without
# for build scripts.
case " $* " in
  *" build_script_build "*) exec "$@" ;;
esac
# The flags are words without spaces.
# shellcheck disable=SC2086
exec "$@" $COVERAGE
