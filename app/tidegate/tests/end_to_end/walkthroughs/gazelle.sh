# Before the walk-through of Gazelle: a MariaDB with the tables of the site that tidegate reads and writes, a user and a
# torrent.
mkdir -p /run/mysqld
mariadb-install-db --no-defaults --auth-root-authentication-method=normal --skip-test-db --user=root \
  --datadir=/run/walk/mysql > /run/walk/mariadb-install.log 2>&1
/usr/sbin/mariadbd --no-defaults --user=root --datadir=/run/walk/mysql --socket=/run/mysqld/mysqld.sock \
  --pid-file=/run/mysqld/mysqld.pid --bind-address=127.0.0.1 --port=3306 --innodb-buffer-pool-size=64M \
  > /run/walk/mariadb.log 2>&1 &
for _ in $(seq 600); do
  mariadb --socket=/run/mysqld/mysqld.sock -e 'SELECT 1' > /dev/null 2>&1 && break
  sleep 0.1
done
mariadb --socket=/run/mysqld/mysqld.sock << 'END'
CREATE DATABASE gazelle;
USE gazelle;
CREATE TABLE users_main (ID INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    IP VARCHAR(15) NOT NULL DEFAULT '0.0.0.0', Uploaded BIGINT UNSIGNED NOT NULL DEFAULT 0,
    Downloaded BIGINT UNSIGNED NOT NULL DEFAULT 0, Enabled ENUM('0','1','2') NOT NULL DEFAULT '0',
    Visible ENUM('1','0') NOT NULL DEFAULT '1', can_leech TINYINT NOT NULL DEFAULT 1, torrent_pass CHAR(32) NOT NULL);
CREATE TABLE torrents (ID INT NOT NULL AUTO_INCREMENT PRIMARY KEY, info_hash BLOB NOT NULL,
    FreeTorrent ENUM('0','1','2') NOT NULL DEFAULT '0', Seeders INT UNSIGNED NOT NULL DEFAULT 0,
    Leechers INT UNSIGNED NOT NULL DEFAULT 0, Snatched INT UNSIGNED NOT NULL DEFAULT 0,
    balance BIGINT NOT NULL DEFAULT 0, last_action DATETIME NOT NULL DEFAULT '2000-01-01 00:00:00');
CREATE TABLE users_freeleeches (UserID INT NOT NULL, TorrentID INT NOT NULL, Time DATETIME NOT NULL,
    Expired TINYINT(1) NOT NULL DEFAULT 0, Downloaded BIGINT NOT NULL DEFAULT 0, Uses INT NOT NULL DEFAULT 1,
    PRIMARY KEY (UserID, TorrentID));
CREATE TABLE xbt_client_whitelist (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, peer_id VARCHAR(20) DEFAULT NULL,
    vstring VARCHAR(200) DEFAULT '');
CREATE TABLE xbt_files_users (uid INT NOT NULL, active TINYINT(1) NOT NULL DEFAULT 1, announced INT NOT NULL DEFAULT 0,
    completed TINYINT(1) NOT NULL DEFAULT 0, downloaded BIGINT NOT NULL DEFAULT 0, remaining BIGINT NOT NULL DEFAULT 0,
    uploaded BIGINT NOT NULL DEFAULT 0, upspeed INT UNSIGNED NOT NULL DEFAULT 0,
    downspeed INT UNSIGNED NOT NULL DEFAULT 0, corrupt BIGINT NOT NULL DEFAULT 0, timespent INT UNSIGNED NOT NULL DEFAULT 0,
    useragent VARCHAR(51) NOT NULL DEFAULT '', connectable TINYINT NOT NULL DEFAULT 1,
    peer_id BINARY(20) NOT NULL DEFAULT '', fid INT NOT NULL, mtime INT NOT NULL DEFAULT 0,
    ip VARCHAR(15) NOT NULL DEFAULT '', PRIMARY KEY (peer_id, fid, uid));
CREATE TABLE xbt_snatched (uid INT NOT NULL DEFAULT 0, tstamp INT NOT NULL, fid INT NOT NULL, IP VARCHAR(15) NOT NULL);
INSERT INTO users_main (ID, Enabled, Visible, can_leech, torrent_pass, IP) VALUES (3, '1', '1', 1, 'bobs-passkey-bobs-passkey-bobs-1', '203.0.113.9');
INSERT INTO torrents (ID, info_hash) VALUES (7, X'0123456789abcdef0123456789abcdef01234567');
END
cd /root
