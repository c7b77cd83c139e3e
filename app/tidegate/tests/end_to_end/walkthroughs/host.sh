# The machine on which the commands of a walk-through run, as root, right after the installation of the package.
#
# It sees the files of this machine, but whatever it writes goes to memory and is gone at the end. `unshare` has
# made its namespaces of processes and mounts; its network is that of a tracker's host (harness::network).
#
# Usage: host.sh ROOT REPOSITORY TIDEGATE CLIENTS FOLDER N PROGRAM...: an empty folder to mount things in; the
# repository; the program; the network of another machine; the folder that commands come from and output goes to;
# the number of this machine, or 0; other programs that it has.
set -e
root=$1 repository=$2 tidegate=$3 clients=$4 folder=$5 number=$6
shift 6

# NATS takes three quarters of what is free, which must be enough for its streams. Only what is written takes memory.
mount -t tmpfs -o mode=755,size=64g tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/all"
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" overlay "$root/all"
cd "$root/all"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
for program; do
  touch "usr/local/bin/${program##*/}"
  mount --bind "$program" "usr/local/bin/${program##*/}"
done

# What the walk-through's own commands are not.
mkdir run/walk run/walk/folder
touch run/walk/clients
mount --bind "$clients" run/walk/clients
mount --bind "$folder" run/walk/folder
for program in systemctl journalctl; do
  install -m 755 "$repository/app/tidegate/tests/end_to_end/walkthroughs/$program.sh" "usr/local/sbin/$program"
done

# The package.
# By a link, so that pages can replace it.
touch run/walk/tidegate
mount --bind "$tidegate" run/walk/tidegate
ln -s /run/walk/tidegate usr/bin/tidegate
mkdir -p etc/tidegate usr/lib/systemd/system usr/share/tidegate
install -m 644 "$repository/dist/tidegate.service" usr/lib/systemd/system/
install -m 644 "$repository/dist/tidegate-xdp.conf" usr/share/tidegate/xdp.conf
install -m 644 -t usr/share/tidegate "$repository/dist/cluster/cluster.conf"
install -m 644 "$repository/dist/tidegate.toml" etc/tidegate/
grep -q ^tidegate: etc/passwd || echo "tidegate:x:64046:64046::/var/lib/tidegate:/usr/sbin/nologin" >> etc/passwd
grep -q ^tidegate: etc/group || echo "tidegate:x:64046:" >> etc/group

# The package of nats-server.
if [ -e usr/local/bin/nats-server ]; then
  ln -sf ../local/bin/nats-server usr/bin/nats-server
  install -m 644 "$repository/dist/cluster/nats.service" usr/lib/systemd/system/
  grep -q ^nats: etc/passwd || echo "nats:x:64047:64047::/var/lib/nats:/usr/sbin/nologin" >> etc/passwd
  grep -q ^nats: etc/group || echo "nats:x:64047:" >> etc/group
fi

printf '%s\n' "127.0.0.1 localhost" "::1 localhost" "203.0.113.2 tracker.example.org" > etc/hosts
printf '198.18.1.%s t%s.example.org\n' 1 1 2 2 3 3 >> etc/hosts
export N=$number
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
unset "${!TIDEGATE_@}"

# Commands come as files that are numbered, one after the other; one that fails ends all.
exec chroot . bash -c '
  cd /root
  set -e
  for ((walk_step = 0; ; walk_step++)); do
    until [ -e /run/walk/folder/$walk_step.sh ]; do sleep 0.02; done
    . /run/walk/folder/$walk_step.sh > /run/walk/folder/$walk_step.out 2>&1 < /dev/null
    : > /run/walk/folder/$walk_step.done
  done
'
