#!/bin/sh
# Has a new process of the tracker take over, and waits until it serves.
set -eu
main_pid() {
    systemctl show --property=MainPID --value tidegate.service
}
old=$(main_pid)
begun=$(date +%s)
systemctl kill --signal=USR2 --kill-whom=main tidegate.service
while [ "$(main_pid)" = "$old" ]; do
    log=$(journalctl --unit=tidegate.service --since="@$begun" --no-pager --output=cat)
    case $log in
    *"upgrade failed"*)
        echo "$log" >&2
        echo "The previous process serves on. Correct the configuration, or restart the tracker." >&2
        exit 1
        ;;
    esac
    # The new process waits 270 s for the swarms.
    [ $(($(date +%s) - begun)) -lt 300 ] || { echo "no new process serves after 300 s" >&2; exit 1; }
    sleep 1
done
