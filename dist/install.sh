#!/bin/sh
# Installs the files of this folder, the unpacked archive of a release, where packages install them:
#
#   ./install.sh [ROOT]
#
# ROOT is / unless it is given. A configuration that is there stays as it is. The packages for Debian, Fedora and Arch
# Linux are made by this script, too.
set -eu
cd "$(dirname "$0")"
root=${1:-}
# Debian's zsh looks in vendor-completions.
zsh=${ZSH_COMPLETIONS:-/usr/share/zsh/site-functions}

# put MODE FILE PATH
put() {
    install -D -m "$1" "$2" "$root$3"
}

for program in tidegate tidegate-import; do
    put 755 $program /usr/bin/$program
    put 644 completions/$program.bash /usr/share/bash-completion/completions/$program
    put 644 completions/$program.fish /usr/share/fish/vendor_completions.d/$program.fish
    put 644 completions/_$program "$zsh/_$program"
done
for page in man/*.1; do
    put 644 "$page" "/usr/share/man/man1/${page##*/}"
done

[ -e "$root/etc/tidegate/tidegate.toml" ] || put 644 tidegate.toml /etc/tidegate/tidegate.toml
put 644 systemd/tidegate.service /usr/lib/systemd/system/tidegate.service
put 644 systemd/tidegate.socket /usr/lib/systemd/system/tidegate.socket
put 644 systemd/tidegate.sysusers /usr/lib/sysusers.d/tidegate.conf
put 755 systemd/hand-over /usr/lib/tidegate/hand-over
# For links from /etc/systemd/system/tidegate.service.d.
put 644 systemd/tidegate-xdp.conf /usr/share/tidegate/xdp.conf
put 644 systemd/cluster.conf /usr/share/tidegate/cluster.conf

put 644 LICENSE /usr/share/licenses/tidegate/LICENSE
put 644 THIRD-PARTY.txt /usr/share/doc/tidegate/THIRD-PARTY.txt
put 644 CHANGELOG.md /usr/share/doc/tidegate/CHANGELOG.md
put 644 prometheus/alerts.yml /usr/share/doc/tidegate/examples/alerts.yml
put 644 grafana/tidegate.json /usr/share/doc/tidegate/examples/grafana.json
