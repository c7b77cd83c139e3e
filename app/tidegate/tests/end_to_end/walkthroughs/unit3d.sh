# Before the walk-through of UNIT3D: a MariaDB with the tables of the site that tidegate reads and writes, a user and a
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
CREATE DATABASE unit3d;
USE unit3d;
CREATE TABLE `groups` (id INT PRIMARY KEY, slug VARCHAR(255) NOT NULL, download_slots INT NULL,
  is_immune TINYINT(1) NOT NULL, is_freeleech TINYINT(1) NOT NULL, is_double_upload TINYINT(1) NOT NULL);
CREATE TABLE users (id INT UNSIGNED PRIMARY KEY, group_id INT NOT NULL, passkey VARCHAR(255) NOT NULL,
  can_download TINYINT(1) NOT NULL, is_donor TINYINT(1) NOT NULL, is_lifetime TINYINT(1) NOT NULL,
  uploaded BIGINT UNSIGNED NOT NULL, downloaded BIGINT UNSIGNED NOT NULL, deleted_at TIMESTAMP NULL);
CREATE TABLE torrents (id INT UNSIGNED PRIMARY KEY, info_hash BINARY(20) NOT NULL, status SMALLINT NOT NULL,
  free SMALLINT UNSIGNED NOT NULL, doubleup TINYINT(1) NOT NULL, seeders INT NOT NULL, leechers INT NOT NULL,
  times_completed INT NOT NULL, balance BIGINT NOT NULL, updated_at TIMESTAMP NULL, deleted_at TIMESTAMP NULL);
CREATE TABLE blacklist_clients (id INT PRIMARY KEY, peer_id_prefix VARCHAR(255) NOT NULL);
CREATE TABLE freeleech_tokens (id INT PRIMARY KEY, user_id INT UNSIGNED NOT NULL, torrent_id INT UNSIGNED NOT NULL);
CREATE TABLE personal_freeleeches (id INT PRIMARY KEY, user_id INT UNSIGNED NOT NULL);
CREATE TABLE featured_torrents (id INT PRIMARY KEY, torrent_id INT UNSIGNED NOT NULL);
CREATE TABLE history (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, user_id INT UNSIGNED NOT NULL,
  torrent_id INT UNSIGNED NOT NULL, agent VARCHAR(255) NOT NULL, uploaded BIGINT UNSIGNED NOT NULL,
  actual_uploaded BIGINT UNSIGNED NOT NULL, client_uploaded BIGINT UNSIGNED NOT NULL,
  downloaded BIGINT UNSIGNED NOT NULL, actual_downloaded BIGINT UNSIGNED NOT NULL,
  client_downloaded BIGINT UNSIGNED NOT NULL, seeder TINYINT(1) NOT NULL, active TINYINT(1) NOT NULL,
  seedtime BIGINT UNSIGNED NOT NULL, immune TINYINT(1) NOT NULL, created_at TIMESTAMP NULL,
  updated_at TIMESTAMP NULL, completed_at TIMESTAMP NULL, UNIQUE (user_id, torrent_id));
CREATE TABLE peers (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, user_id INT UNSIGNED NOT NULL,
  torrent_id INT UNSIGNED NOT NULL, peer_id BINARY(20) NOT NULL, ip VARBINARY(16) NOT NULL,
  port SMALLINT UNSIGNED NOT NULL, agent VARCHAR(64) NOT NULL, uploaded BIGINT UNSIGNED NOT NULL,
  downloaded BIGINT UNSIGNED NOT NULL, `left` BIGINT UNSIGNED NOT NULL, active TINYINT(1) NOT NULL,
  seeder TINYINT(1) NOT NULL, visible TINYINT(1) NOT NULL, connectable TINYINT(1) NOT NULL DEFAULT 0,
  created_at TIMESTAMP NULL, updated_at TIMESTAMP NULL, UNIQUE (user_id, torrent_id, peer_id));
CREATE TABLE unregistered_info_hashes (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY, user_id INT UNSIGNED NOT NULL,
  info_hash BINARY(20) NOT NULL, created_at TIMESTAMP NULL, updated_at TIMESTAMP NULL, UNIQUE (user_id, info_hash));
INSERT INTO `groups` VALUES (1, 'user', NULL, 0, 0, 0);
INSERT INTO users VALUES (3, 1, 'bobs-passkey-bobs-passkey-bobs-1', 1, 0, 0, 0, 0, NULL);
INSERT INTO torrents VALUES (7, X'0123456789abcdef0123456789abcdef01234567', 1, 0, 0, 0, 0, 0, 0, NULL, NULL);
END
cd /root
