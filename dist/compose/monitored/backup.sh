#!/bin/sh
# Fetches a backup of the tracker into a folder each day, and removes old ones. Needs no more than BusyBox.
#
#   sh backup.sh FOLDER [once]
set -eu
folder=$1
address=${TIDEGATE_ADMIN:-127.0.0.1:6970}
umask 077

# Fetches the archive into a file. The token is in no command's arguments, which others could read.
fetch() {
    rm -f "$1.read"
    fetched=0
    # The tracker ends connections whose clients send no more, so standard input stays open.
    {
        printf 'GET /api/v1/backup HTTP/1.0\r\nHost: %s\r\n' "$address"
        printf 'Authorization: Bearer %s\r\n\r\n' "$TIDEGATE_TOKEN"
        until [ -e "$1.read" ]; do sleep 1; done
    } | nc "${address%:*}" "${address##*:}" | {
        result=0
        read_response "$1" || result=$?
        touch "$1.read"
        exit "$result"
    } || fetched=$?
    rm -f "$1.read"
    return "$fetched"
}

# Writes the body of a response to a file.
read_response() {
    IFS= read -r status || status="no response from $address"
    case $status in
    *' 200 '*) ;;
    *) echo "no backup: $status" >&2 && return 1 ;;
    esac
    while IFS= read -r line && [ "$line" != "$(printf '\r')" ]; do :; done
    cat >"$1"
}

# An archive is complete if it has its last file.
back_up() {
    new=$folder/new.tar
    fetch "$new" || return 1
    tar -tf "$new" | grep -q '^backup.json$' || { echo "no backup: the archive is incomplete" >&2; return 1; }
    mv "$new" "$folder/tidegate-$(date +%F-%H%M%S).tar"
    find "$folder" -name 'tidegate-*.tar' -mtime "+${BACKUP_DAYS:-14}" -exec rm {} +
}

if [ "${2:-}" = once ]; then
    back_up
    exit
fi
while :; do
    # Until it succeeds, it is tried each minute.
    if back_up; then sleep 86400; else sleep 60; fi
done
