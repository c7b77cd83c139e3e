#!/bin/sh
# Prints what the running tracker lacks of what is installed: the program, or the configuration. Nothing if it has both.
set -eu
main_process() {
    systemctl show --timestamp=us --property="$1" --value tidegate.service
}
pid=$(main_process MainPID)
# The unit starts with both.
[ "$pid" != 0 ] || exit 0
[ "/proc/$pid/exe" -ef /usr/bin/tidegate ] || echo "the program $(tidegate version)"
find /etc/tidegate/tidegate.toml -newermt "$(main_process ExecMainStartTimestamp)" -printf "the configuration of %t\n"
