# Before the walk-through of TLS: an ACME authority on this host, pebble, in the place of Let's Encrypt, and its DNS
# server, for which every name is that of the tracker. The tracker has their addresses by variables, which only
# systemctl.sh knows; the authority's certificates are trusted here, as those of Let's Encrypt are everywhere.
cd /run/walk
ec="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 2"
openssl req -x509 $ec -subj /CN=authority -keyout authority.key -out authority.pem 2> /dev/null
openssl req -x509 -CA authority.pem -CAkey authority.key $ec -subj /CN=localhost -addext basicConstraints=CA:FALSE \
  -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout pebble.key -out pebble.pem 2> /dev/null
cat > pebble.json << END
{ "pebble": {
  "listenAddress": "127.0.0.1:14000", "managementListenAddress": "127.0.0.1:15000",
  "certificate": "/run/walk/pebble.pem", "privateKey": "/run/walk/pebble.key",
  "httpPort": 80, "tlsPort": 443, "keyAlgorithm": "ecdsa", "retryAfter": { "authz": 1, "order": 1 },
  "profiles": { "default": { "description": "the only one", "validityPeriod": 7776000 } }
} }
END
pebble-challtestsrv -http01= -https01= -doh= -tlsalpn01= -management 127.0.0.1:8055 \
  -dnsserver 127.0.0.1:8053 -defaultIPv6= -defaultIPv4 203.0.113.2 > dns.log 2>&1 &
PEBBLE_VA_NOSLEEP=1 pebble -config pebble.json -dnsserver 127.0.0.1:8053 > pebble.log 2>&1 &
curl --silent --retry 600 --retry-delay 1 --retry-all-errors --retry-max-time 60 --cacert authority.pem \
  https://127.0.0.1:15000/roots/0 > root.pem
cat root.pem >> /etc/ssl/certs/ca-certificates.crt
cat > environment << END
TIDEGATE_TLS__ACME__DIRECTORY=https://localhost:14000/dir
TIDEGATE_TLS__ACME__CA=/etc/tidegate-test-authority/authority.pem
END
install -D -m 644 authority.pem /etc/tidegate-test-authority/authority.pem
cd /root
