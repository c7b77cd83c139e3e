//! TLS to the database, with authorities of the test's own.

use std::path::PathBuf;

use harness::mariadb::without_tls;
use harness::{Directory, unused_address};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tidegate_site::{DatabaseTls, SiteConfig, SiteKind, SiteStatus};

use crate::fixture::{Client, Database, Site, UNIT3D};

/// Returns the host at which a database of this test listens.
fn own_host() -> String {
    unused_address().ip().to_string()
}

/// Files of an authority and of a server's certificate that it signed.
struct Certificates {
    _folder: Directory,
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Certificates {
    /// Makes an authority, and a certificate for `host`.
    fn new(host: &str) -> Self {
        let folder = Directory::new().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        Self {
            authority: folder.write("ca.pem", &authority).unwrap(),
            certificate: folder.write("server.pem", &certificate).unwrap(),
            key: folder.write("key.pem", key.serialize_pem()).unwrap(),
            _folder: folder,
        }
    }

    /// Starts a database with the certificate, whose user must connect by TLS.
    fn start(&self) -> Database {
        let certificate = format!("--ssl-cert={}", self.certificate.display());
        let key = format!("--ssl-key={}", self.key.display());
        let database = Database::start_with(UNIT3D, &[&certificate, &key]);
        database.run("ALTER USER tidegate@'%' REQUIRE SSL");
        database
    }
}

fn with_tls(database: &Database, tls: DatabaseTls) -> SiteConfig {
    SiteConfig { database_tls: tls, ..database.config(SiteKind::Unit3d) }
}

/// Returns the database's problem, which ends the site.
fn problem(config: SiteConfig) -> String {
    let site = Site::start(config);
    let status = site.wait("a problem", |status: &SiteStatus| status.database.is_some());
    site.stop();
    let problem = status.database.unwrap();
    format!("{}; {}", problem.error, problem.remedy)
}

#[test]
fn rows_are_written_by_tls_with_a_certificate_of_the_named_authority() {
    let certificates = Certificates::new(&own_host());
    let database = certificates.start();
    let plain = problem(with_tls(&database, DatabaseTls::Off));
    assert!(plain.contains("1045"), "the user must connect by TLS: {plain}");
    let authority = DatabaseTls::Authority(certificates.authority.clone());
    let site = Site::start(with_tls(&database, authority));
    site.wait_ready();
    site.announce(&Client::new(1, 1, 1));
    site.announce(&Client { uploaded: 10, ..Client::new(1, 1, 1) });
    site.wait_written();
    assert_eq!(database.rows("SELECT uploaded FROM users WHERE id = 1"), ["10"]);
    site.stop();
}

#[test]
fn certificates_of_others_are_refused_with_a_sentence() {
    let certificates = Certificates::new(&own_host());
    let database = certificates.start();
    let stranger = Certificates::new(&own_host());
    let remedy = "name the authority of the database's certificate in site.database_ca";
    for tls in [DatabaseTls::Authority(stranger.authority.clone()), DatabaseTls::Public] {
        let text = problem(with_tls(&database, tls));
        let error = "no TLS to the database: expected a certificate of the authority in site.database_ca, found one of \
                     another";
        assert!(text.starts_with(error) && text.contains(remedy), "{text}");
    }
    let elsewhere = Certificates::new("db.example");
    let database = elsewhere.start();
    let text = problem(with_tls(&database, DatabaseTls::Authority(elsewhere.authority.clone())));
    let error = "no TLS to the database: expected a certificate for the host in site.database, found one for another";
    assert!(text.starts_with(error) && text.contains(remedy), "{text}");
}

#[test]
fn a_server_without_tls_is_refused_with_a_sentence() {
    let database = Database::start_with(UNIT3D, &[without_tls()]);
    let certificates = Certificates::new(&own_host());
    let text = problem(with_tls(&database, DatabaseTls::Authority(certificates.authority.clone())));
    assert!(text.starts_with("the database offers no TLS"), "{text}");
    let file = certificates.key.clone();
    let config = with_tls(&database, DatabaseTls::Authority(file.clone()));
    let error = config.check().unwrap_err().to_string();
    let expected = format!(
        "site.database_ca: expected a PEM file with certificates, found none in {}",
        file.display()
    );
    assert_eq!(error, expected);
    let config = with_tls(&database, DatabaseTls::Authority("/nowhere/ca.pem".into()));
    let error = config.check().unwrap_err().to_string();
    assert!(error.contains("/nowhere/ca.pem: No such file"), "{error}");
}
