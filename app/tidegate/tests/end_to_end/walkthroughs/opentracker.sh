# Before the page on opentracker: the program runs as its package sets it up. Its list has a torrent, which one client
# has completed.
hash=89abcdef0123456789abcdef0123456789abcdef
echo $hash >> /etc/opentracker/whitelist.txt
systemctl start opentracker
until curl -s -o /dev/null http://127.0.0.1:6969/; do sleep 0.05; done
tidegate announce http://127.0.0.1:6969/announce $hash --peer-id -XX0000-000000000001 --left 9 --event started --stay
tidegate announce http://127.0.0.1:6969/announce $hash --peer-id -XX0000-000000000001 --left 0 --event completed --stay
