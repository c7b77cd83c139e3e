# Before the page about verifying a release: an archive of the program in the working folder, with signed checksums.
tar --create --gzip --file tidegate-1.0.0-x86_64-linux.tar.gz --directory /usr/bin tidegate
sha256sum tidegate-*.tar.gz > SHA256SUMS
minisign -G -W -p tidegate.pub -s /run/walk/secret.key > /dev/null
minisign -S -s /run/walk/secret.key -m SHA256SUMS -t "tidegate 1.0.0 0123456" > /dev/null
