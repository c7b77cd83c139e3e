#!/bin/bash
# Stands in for systemd in the walk-throughs: starts, reloads and stops the services that they name. Those of
# tidegate, NATS and opentracker run as their units say: with this command line, user, state directory, capabilities and credentials.
set -e
verb=$1
shift
while [[ $1 == -* ]]; do
  [[ $verb == enable && $1 == --now ]] && verb=start
  [[ $verb == disable && $1 == --now ]] && verb=stop
  [[ $1 == -s ]] && signal=$2 && shift
  shift
done
if [[ $# -gt 1 ]]; then
  for unit; do "$0" "$verb" "$unit"; done
  exit
fi
unit=${1%.service}
journal=/run/walk/$unit.journal
pid=$(cat "/run/walk/$unit.pid" 2> /dev/null || true)
# Whichever process has taken over from the first one.
[[ -n $pid && $unit == tidegate ]] && pid=$(pgrep --newest --exact tidegate || true)

# Prints the values of a key of the unit and of its drop-ins.
values() {
  cat "/usr/lib/systemd/system/$unit.service" "/etc/systemd/system/$unit.service.d/"*.conf 2> /dev/null |
    sed -n "s/^$1=//p"
}

stop() {
  [[ -n $pid ]] || return 0
  kill "$pid" 2> /dev/null || true
  while kill -0 "$pid" 2> /dev/null; do sleep 0.02; done
  rm -f "/run/walk/$unit.pid"
  pid=
}

start_unit() {
  local user capabilities directory credential command
  user=$(values User | tail -n 1)
  user=${user:-$unit} # DynamicUser
  capabilities=$(values AmbientCapabilities | tr ' ' '\n' | sed 's/^CAP_/+/' | tr 'A-Z\n' 'a-z,' | sed 's/,$//')
  for directory in $(values StateDirectory); do
    install -d -o "$user" -g "$user" -m 700 "/var/lib/$directory"
    chown -R "$user:$user" "/var/lib/$directory"
    export STATE_DIRECTORY="/var/lib/$directory"
  done
  install -d -o "$user" -g "$user" -m 700 "/run/credentials/$unit.service"
  for credential in $(values LoadCredential); do
    install -o "$user" -m 400 "${credential#*:}" "/run/credentials/$unit.service/${credential%%:*}"
  done
  command=$(values ExecStart | tail -n 1)
  # What only the test knows: the address of its ACME authority.
  [[ -e /run/walk/environment ]] && set -a && . /run/walk/environment && set +a
  # shellcheck disable=SC2086 # a command line is words
  setsid setpriv --reuid="$user" --regid="$user" --clear-groups --bounding-set="-all${capabilities:+,$capabilities}" \
    --inh-caps="-all${capabilities:+,$capabilities}" --ambient-caps="-all${capabilities:+,$capabilities}" \
    --no-new-privs $command >> "$journal" 2>&1 < /dev/null &
  echo $! > "/run/walk/$unit.pid"
}

start_tidegate() {
  start_unit
  # READY, in systemd's words.
  for ((n = 0; n < 600; n++)); do
    if ! kill -0 $! 2> /dev/null; then
      echo "Job for tidegate.service failed."
      cat "$journal"
      exit 1
    fi
    curl -sk --noproxy '*' --max-time 5 -o /dev/null --fail http://127.0.0.1:6970/health/ready && return
    sleep 0.1
  done
  exit 1
}

start() {
  [[ -n $pid ]] && kill -0 "$pid" 2> /dev/null && return
  case $unit in
    tidegate) start_tidegate ;;
    nats | opentracker) start_unit ;;
    nginx) nginx && cp /run/nginx.pid /run/walk/nginx.pid ;;
    haproxy) haproxy -D -p /run/walk/haproxy.pid -f /etc/haproxy/haproxy.cfg ;;
    caddy) caddy start --config /etc/caddy/Caddyfile --pidfile /run/walk/caddy.pid ;;
    *) echo "Failed to start $unit.service: Unit $unit.service not found." && exit 5 ;;
  esac
}

case $verb in
  daemon-reload | enable | disable) ;;
  start) start ;;
  restart) stop && start ;;
  stop) stop ;;
  reload)
    case $unit in
      tidegate) kill -s HUP "$pid" ;;
      nginx) nginx -s reload ;;
      haproxy) haproxy -D -p /run/walk/haproxy.pid -f /etc/haproxy/haproxy.cfg -sf "$pid" ;;
      caddy) caddy reload --config /etc/caddy/Caddyfile ;;
    esac
    ;;
  kill) kill -s "$signal" "$pid" ;;
  is-active) kill -0 "$pid" 2> /dev/null && echo active ;;
  *) echo "unknown verb $verb" && exit 1 ;;
esac
