//! Looks up on this machine what another tracker's configuration names.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use net::tls::{Certificate, CertificateFiles};
use tidegate_import::Here;
use tracker::access::HashList;

pub(super) struct Machine;

impl Here for Machine {
    fn check_certificate(&self, chain: &Path, key: &Path) -> Result<(), String> {
        let files = CertificateFiles { chain: chain.into(), key: key.into() };
        Certificate::read(&files).map(drop).map_err(|error| error.to_string())
    }

    fn check_list(&self, file: &Path) -> Result<(), String> {
        let name = file.display();
        let list = File::open(file).map_err(|error| format!("cannot read {name}: {error}"))?;
        let list = HashList::parse(BufReader::with_capacity(1 << 20, list));
        list.map(drop).map_err(|error| format!("{name}: {error}"))
    }

    fn check_folder(&self, folder: &Path) -> Result<(), String> {
        let entries = std::fs::read_dir(folder);
        entries.map(drop).map_err(|error| format!("cannot read {}: {error}", folder.display()))
    }
}
