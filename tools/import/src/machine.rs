//! Looks up on this machine what another tracker's configuration names. Errors say what is wrong with it.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use net::tls::{Certificate, CertificateFiles};
use tracker::access::HashList;

/// Checks that tidegate can use a certificate and its key.
pub(crate) fn check_certificate(chain: &Path, key: &Path) -> Result<(), String> {
    let files = CertificateFiles { chain: chain.into(), key: key.into() };
    Certificate::read(&files).map(drop).map_err(|error| error.to_string())
}

/// Checks that tidegate can read a file as an allow or deny list.
pub(crate) fn check_list(file: &Path) -> Result<(), String> {
    let name = file.display();
    let list = File::open(file).map_err(|error| format!("cannot read {name}: {error}"))?;
    let list = HashList::parse(BufReader::with_capacity(1 << 20, list));
    list.map(drop).map_err(|error| format!("{name}: {error}"))
}

/// Checks that tidegate can read a folder of torrent files.
pub(crate) fn check_folder(folder: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(folder);
    entries.map(drop).map_err(|error| format!("cannot read {}: {error}", folder.display()))
}
