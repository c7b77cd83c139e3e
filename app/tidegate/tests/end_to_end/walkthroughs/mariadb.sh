# Before the walk-throughs of UNIT3D and Gazelle: a MariaDB server. The tables of the site follow.
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
