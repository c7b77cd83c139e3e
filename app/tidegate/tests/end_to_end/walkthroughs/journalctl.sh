#!/bin/bash
# Stands in for systemd's journal in the walk-throughs: prints what a service has written.
lines=+1
while [[ $# -gt 0 ]]; do
  case $1 in
    -n) lines=$2 && shift ;;
    -*) ;;
    *) unit=${1%.service} ;;
  esac
  shift
done
tail -n "$lines" "/run/walk/$unit.journal"
