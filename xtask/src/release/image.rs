//! The container image: one layer with the programs, its configuration and a user. Written as the OCI describes it, by
//! tar alone: no daemon, and the same bytes each time.
//!
//! One archive per architecture has Docker's form, for `docker load`, `podman load` and the like. Another has all
//! architectures as an OCI layout, for `skopeo copy --all` into a registry.

use super::{Architecture, PROGRAMS, Release, copy};
use anyhow::Result;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use trials::archive;
use trials::command::{command, run};
use trials::workspace::root;

/// The user and group that the tracker runs as: what images without a distribution use.
const USER: u32 = 65532;
const STATE: &str = "/var/lib/tidegate";
const CONFIGURATION: &str = "/etc/tidegate/tidegate.toml";

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Writes the archives of all architectures.
pub(super) fn write(release: &Release) -> Result<()> {
    let (version, epoch) = (&release.version, release.commit.epoch);
    let mut all = Layout::new(release.stage("image")?)?;
    let mut manifests = Vec::new();
    for architecture in &release.architectures {
        let mut one = Layout::new(release.stage("image-one")?)?;
        let layer = layer(release, *architecture)?;
        let manifest = one.add(release, *architecture, &layer)?;
        all.add(release, *architecture, &layer)?;
        one.finish_for_docker()?;
        manifests.push(manifest);
        // Its layer is compressed, and not all versions of Podman load what is compressed as a whole.
        let file = format!("tidegate-{version}-image-{}.tar", architecture.debian);
        archive::tar_plain(&one.folder, &release.out.join(file), epoch, archive::OWNED_BY_ROOT)?;
    }
    all.finish(&manifests, version)?;
    let file = release.out.join(format!("tidegate-{version}-image.oci.tar"));
    archive::tar_plain(&all.folder, &file, epoch, archive::OWNED_BY_ROOT)
}

/// A layer, and its digest before compression.
struct Layer {
    file: PathBuf,
    content_digest: String,
}

/// Packs what is in the image.
fn layer(release: &Release, architecture: Architecture) -> Result<Layer> {
    let folder = release.stage("layer")?;
    for name in PROGRAMS {
        copy(&release.program(architecture, name), &folder.join("usr/bin").join(name))?;
    }
    copy(&root().join("dist/tidegate.toml"), &folder.join(&CONFIGURATION[1..]))?;
    fs::write(folder.join("etc/passwd"), format!("tidegate:x:{USER}:{USER}::{STATE}:/\n"))?;
    fs::write(folder.join("etc/group"), format!("tidegate:x:{USER}:\n"))?;
    let tar = release.work.join("stage/layer.tar");
    let root_files = ["--owner=0", "--group=0", "--mode=u=rwX,go=rX", "etc", "usr"];
    archive::tar_plain(&folder, &tar, release.commit.epoch, &root_files)?;
    // A volume takes owner and rights from here. Temporary files of SQLite go to /tmp.
    fs::create_dir_all(folder.join(&STATE[1..]))?;
    fs::create_dir_all(folder.join("tmp"))?;
    let parents =
        ["--owner=0", "--group=0", "--mode=u=rwX,go=rX", "--no-recursion", "var", "var/lib"];
    append(&folder, &tar, release.commit.epoch, &parents)?;
    let own = [&format!("--owner={USER}"), &format!("--group={USER}"), "--mode=0700", &STATE[1..]];
    append(&folder, &tar, release.commit.epoch, &own)?;
    append(&folder, &tar, release.commit.epoch, &["--owner=0", "--group=0", "--mode=1777", "tmp"])?;
    let content_digest = archive::sha256(&tar)?;
    archive::gzip(&[&tar])?;
    Ok(Layer { file: tar.with_extension("tar.gz"), content_digest })
}

/// Adds a folder to an archive.
fn append(folder: &Path, archive: &Path, epoch: u64, more: &[&str]) -> Result<()> {
    let mut tar = command(&["tar", "--append", "--format=ustar", "--numeric-owner"]);
    tar.arg(format!("--mtime=@{epoch}")).arg("--file").arg(archive).arg("--directory").arg(folder);
    tar.args(more);
    run(tar)
}

/// A folder of blobs, named by their digests.
struct Layout {
    folder: PathBuf,
    /// The list that `docker load` reads: configuration and layers of each image.
    images: Vec<Value>,
}

impl Layout {
    fn new(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(folder.join("blobs/sha256"))?;
        Ok(Self { folder, images: Vec::new() })
    }

    /// Adds the image of an architecture, and returns what an index says about its manifest.
    fn add(
        &mut self,
        release: &Release,
        architecture: Architecture,
        layer: &Layer,
    ) -> Result<Value> {
        let content = self.blob(&fs::read(&layer.file)?, LAYER)?;
        let config = config(release, architecture, &layer.content_digest);
        let config = self.blob(config.to_string().as_bytes(), CONFIG)?;
        self.images.push(json!({
            "Config": path(&config),
            "RepoTags": [format!("tidegate:{}", release.version)],
            "Layers": [path(&content)],
        }));
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [content],
        });
        let mut manifest = self.blob(manifest.to_string().as_bytes(), MANIFEST)?;
        manifest["platform"] = json!({ "os": "linux", "architecture": architecture.debian });
        Ok(manifest)
    }

    /// Writes a blob, and returns its descriptor.
    fn blob(&self, bytes: &[u8], media_type: &str) -> Result<Value> {
        let folder = self.folder.join("blobs/sha256");
        let fresh = folder.join("fresh");
        fs::write(&fresh, bytes)?;
        let digest = archive::sha256(&fresh)?;
        fs::rename(fresh, folder.join(&digest))?;
        Ok(
            json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() }),
        )
    }

    /// Writes what `docker load` and `podman load` read. There is no index beside it: Podman would prefer that, and lose
    /// the health check, which the OCI does not know.
    fn finish_for_docker(&self) -> Result<()> {
        let images = Value::from(self.images.clone()).to_string();
        Ok(fs::write(self.folder.join("manifest.json"), images)?)
    }

    /// Writes the index: of the only image, or of one image with several architectures.
    fn finish(&self, manifests: &[Value], version: &str) -> Result<()> {
        fs::write(self.folder.join("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}\n")?;
        let index = |manifests: &[Value]| json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        let mut named = match manifests {
            [only] => only.clone(),
            several => self.blob(index(several).to_string().as_bytes(), INDEX)?,
        };
        named["annotations"] = json!({ "org.opencontainers.image.ref.name": version });
        fs::write(self.folder.join("index.json"), index(&[named]).to_string())?;
        Ok(())
    }
}

/// Returns the path of a blob in the layout.
fn path(descriptor: &Value) -> String {
    format!("blobs/{}", descriptor["digest"].as_str().unwrap_or_default().replace(':', "/"))
}

/// Returns how the image is run. `Healthcheck` is Docker's and Podman's; others ignore it.
fn config(release: &Release, architecture: Architecture, content_digest: &str) -> Value {
    let Release { version, commit, .. } = release;
    let second = 1_000_000_000_u64;
    json!({
        "created": commit.date,
        "architecture": architecture.debian,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ["PATH=/usr/bin"],
            "Entrypoint": ["/usr/bin/tidegate"],
            "Cmd": ["serve", "--config", CONFIGURATION],
            "WorkingDir": "/",
            "ExposedPorts": { "6969/tcp": {}, "6969/udp": {}, "6970/tcp": {} },
            "Volumes": { STATE: {} },
            "StopSignal": "SIGTERM",
            "Healthcheck": {
                "Test": ["CMD", "/usr/bin/tidegate", "admin", "health", "--timeout", "5", "--config", CONFIGURATION],
                "Interval": 10 * second,
                "Timeout": 6 * second,
                "StartPeriod": 30 * second,
                "Retries": 3,
            },
            "Labels": {
                "org.opencontainers.image.title": "tidegate",
                "org.opencontainers.image.description": "A BitTorrent tracker: UDP, HTTP and WebTorrent",
                "org.opencontainers.image.licenses": "Apache-2.0",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.revision": commit.id,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{content_digest}")] },
        "history": [{ "created": commit.date, "created_by": "cargo xtask release" }],
    })
}
