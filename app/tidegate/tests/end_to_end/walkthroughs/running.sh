# Before pages on operating: a tracker that runs as a service and has a key and a peer, and a new version of it
# in the working folder.
cat > /etc/tidegate/tidegate.toml << END
[state]
dir = "/var/lib/tidegate"
END
systemctl start tidegate
export TIDEGATE_ADMIN_TOKEN=$(cat /var/lib/tidegate/first-token)
tidegate admin keys create --name bob > /dev/null
tidegate announce udp://127.0.0.1:6969/announce 0123456789abcdef0123456789abcdef01234567 --left 0 --stay
ln -s /run/walk/tidegate tidegate
