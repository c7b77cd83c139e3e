//! The compose file with monitoring, started as its page says. Prometheus and BusyBox are Debian's, in images with the
//! names that the file has; Grafana is not in Debian, so it is not started.

use super::find;
use super::podman::Podman;
use crate::artifacts::Architecture;
use crate::workspace::root;
use anyhow::Result;
use harness::Directory;
use std::path::Path;

/// Starts the services, and follows a figure from the tracker to an alert, and a ban through a backup.
pub(super) fn check(folder: &Path, architecture: Architecture) -> Result<()> {
    let (podman, work) = (Podman::new()?, Directory::new()?);
    let file = find(folder, &format!("-image-{}.tar", architecture.debian))?;
    let script = SCRIPT
        .replace("FILE", &file.display().to_string())
        .replace("DIST", &root().join("dist").display().to_string());
    println!("{}", podman.run(work.root(), &script)?);
    Ok(())
}

/// Some machines allow fewer open files and processes than the file asks for. The certificate needs a public name, so the
/// tracker has none, as the page allows.
const SCRIPT: &str = r#"
import_image() {
    name=$1 program=$2
    shift 2
    mkdir -p image/bin
    cp $program image/bin
    for library in $(ldd $program | grep --only-matching '/lib[^ ]*'); do cp --parents $library image; done
    for link in "$@"; do ln -s $(basename $program) image/bin/$link; done
    tar --create --directory=image --file=image.tar .
    podman import --change "ENTRYPOINT $entrypoint" --change 'ENV PATH=/bin' image.tar $name
    rm -r image image.tar
}
entrypoint='["/bin/prometheus"]' import_image docker.io/prom/prometheus:v2.53.0 /usr/bin/prometheus
entrypoint='[]' import_image docker.io/library/busybox:1.36.1 /usr/bin/busybox \
    $(busybox --list | grep --line-regexp --invert-match busybox)
podman load --input FILE

cp --recursive DIST dist
cd dist/compose/monitored
cp example.env .env
sed --in-place 's/TOKEN=$/TOKEN=tg_0123456789abcdef0123456789abcdef/; s/PASSWORD=$/PASSWORD=secret/' .env
sed --in-place '/^# HTTPS/,$d' tidegate.toml
limit=$(ulimit -Hn)
[ $limit = unlimited ] || [ $limit -ge 1048576 ] || sed --in-place "s/nofile: .*/{ nofile: $limit, nproc: 1024 }/" compose.yaml
mkdir -p backups
docker compose up --detach tidegate prometheus backup
serves tidegate_tidegate_1

until_has() {
    tries=0
    until podman exec tidegate_backup_1 wget -q -O - "http://127.0.0.1:9090/api/v1/$1" | grep --quiet --fixed-strings "$2"; do
        tries=$((tries + 1))
        [ $tries -lt 100 ] || { docker compose logs prometheus; exit 1; }
        sleep 1
    done
}
up='query?query=up%7Bjob%3D%22tidegate%22%7D'
until_has $up '"1"]'

. ./.env
admin() {
    podman exec --env TIDEGATE_ADMIN_TOKEN=$TIDEGATE_TOKEN tidegate_tidegate_1 tidegate admin "$@"
}
admin bans add 192.0.2.0/24
rm --force backups/*
podman exec tidegate_backup_1 sh /backup.sh /backups once
admin bans remove 192.0.2.0/24
docker compose stop tidegate
until_has $up '"0"]'
until_has alerts '"alertname":"TidegateDown"'
docker compose run --rm -T tidegate restore --config /etc/tidegate/tidegate.toml - < backups/tidegate-*.tar
docker compose start tidegate
serves tidegate_tidegate_1
admin bans list | grep 192.0.2.0/24
until_has $up '"1"]'
docker compose down
"#;
