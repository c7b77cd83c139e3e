//! Obtains one certificate: account, order, challenge, chain (RFC 8555, 7).

use std::fmt::Display;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeHandle, ChallengeType, Error,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use net::tls::{Certificate, Certificates};
use pages::Challenges;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tracing::{error, info, warn};

use super::cache::{Cache, StoredAccount};
use super::client::Client;
use super::schedule::FailureScope;
use crate::errors;
use config::{AcmeConfig, Challenge};

/// Policy of polling an order once the server has been notified that the challenge is ready.
const POLL_POLICY: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));
/// Longest time to obtain a certificate, or to ask when to renew one, including waits that the server asks for.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(super) struct Failure {
    pub(super) scope: FailureScope,
    pub(super) text: String,
    /// Time that the server asked us to wait, if it did.
    pub(super) retry_after: Option<Duration>,
}

/// The ACME server, and where challenges for it are placed.
pub(super) struct Authority {
    pub(super) config: AcmeConfig,
    pub(super) cache: Cache,
    pub(super) client: Client,
    pub(super) certificates: Arc<Certificates>,
    pub(super) challenges: Arc<Challenges>,
}

impl Authority {
    pub(super) async fn obtain(
        &self,
        domain: &str,
        old: Option<&Certificate>,
    ) -> Result<Certificate, Failure> {
        let ordered = self.with_timeout(self.order(domain, old)).await?;
        let path = self.cache.path(domain);
        let invalid = |error: &dyn Display| {
            self.fail(
                FailureScope::Server,
                format!("unusable certificate from the server: {error}"),
            )
        };
        let certificate = Certificate::from_pem(ordered.as_bytes(), Path::new("the certificate"))
            .map_err(|error| invalid(&error))?;
        if !certificate.covers_host(domain) {
            return Err(invalid(&"it is for another host"));
        }
        match self.cache.save_certificate(domain, &ordered) {
            Ok(()) => info!(domain, file = %path.display(), "obtained a certificate"),
            Err(error) => {
                let error = format!("{error:#}");
                error!(domain, error, "cannot save the certificate: a restart needs another");
            }
        }
        Ok(certificate)
    }

    /// Asks the server when to renew (RFC 9773). Returns the time, at the position `random` (0 to 1) of
    /// the window that the server suggests, and after how long to ask again.
    pub(super) async fn suggestion(
        &self,
        certificate: &Certificate,
        random: f64,
    ) -> Result<(SystemTime, Duration), Failure> {
        let id = certificate_id(certificate).ok_or_else(|| {
            self.fail(
                FailureScope::Host,
                "the certificate lacks the key id of its authority".into(),
            )
        })?;
        let ask = async {
            let account = self.account().await?;
            account.renewal_info(&id).await.map_err(|error| self.failed(&error))
        };
        let (info, again) = self.with_timeout(ask).await?;
        let [start, end] = [info.suggested_window.start, info.suggested_window.end];
        let [start, end] = [start, end].map(SystemTime::from);
        let window = end.duration_since(start).unwrap_or_default();
        Ok((start + window.mul_f64(random), again))
    }

    async fn with_timeout<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let late = |_| {
            self.fail(
                FailureScope::Server,
                format!("not completed within {} s", TOTAL_TIMEOUT.as_secs()),
            )
        };
        tokio::time::timeout(TOTAL_TIMEOUT, work).await.map_err(late)?
    }

    async fn order(&self, domain: &str, old: Option<&Certificate>) -> Result<String, Failure> {
        let names = [Identifier::Dns(domain.to_owned())];
        let replaced = old.and_then(certificate_id);
        let account = self.account().await?;
        let mut order = match new_order(&account, &names, replaced).await {
            Err(error) if is_acme_error(&error, "accountDoesNotExist") => {
                let server = &self.config.directory;
                warn!(server, "the server no longer knows our account; creating another");
                let account = self.new_account().await?;
                new_order(&account, &names, None).await
            }
            made => made,
        }
        .map_err(|error| self.failed(&error))?;
        self.prove(&mut order).await?;
        let text = async {
            let key = order.finalize().await?;
            let chain = order.poll_certificate(&POLL_POLICY).await?;
            Ok(key + &chain)
        };
        text.await.map_err(|error: Error| self.failed(&error))
    }

    /// Proves to the server that the order's host is ours, unless it still considers that proven.
    async fn prove(&self, order: &mut Order) -> Result<(), Failure> {
        let _guard = ChallengeGuard(self);
        let wanted = match self.config.challenge {
            Challenge::TlsAlpn => ChallengeType::TlsAlpn01,
            Challenge::Http => ChallengeType::Http01,
        };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization.map_err(|error| self.failed(&error))?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let mut challenge = authorization.challenge(wanted.clone()).ok_or_else(|| {
                let text = format!("the server does not offer {}", self.config.challenge.label());
                self.fail(FailureScope::Host, text)
            })?;
            self.show(&challenge)?;
            challenge.set_ready().await.map_err(|error| self.failed(&error))?;
        }
        let status = order.poll_ready(&POLL_POLICY).await;
        match status.map_err(|error| self.failed(&error))? {
            OrderStatus::Ready | OrderStatus::Valid => Ok(()),
            _ => Err(self.fail(FailureScope::Host, self.why_invalid(order).await)),
        }
    }

    fn show(&self, challenge: &ChallengeHandle<'_>) -> Result<(), Failure> {
        let authorization = challenge.key_authorization();
        match self.config.challenge {
            Challenge::Http => self.challenges.replace(&challenge.token, authorization.as_str()),
            Challenge::TlsAlpn => {
                let domain = challenge.identifier().to_string();
                let digest = authorization.digest();
                let certificate = challenge_certificate(&domain, digest.as_ref());
                let certificate = certificate.map_err(|error| {
                    self.fail(
                        FailureScope::Host,
                        format!("cannot make the challenge's certificate: {error:#}"),
                    )
                })?;
                self.certificates.set_challenge(Some(certificate));
            }
        }
        Ok(())
    }

    async fn why_invalid(&self, order: &mut Order) -> String {
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let Ok(state) = authorization.refresh().await else { continue };
            let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
            if let Some(problem) = problem {
                let detail = problem.detail.as_deref().unwrap_or("no reason given");
                return format!("the server could not verify the host: {detail}");
            }
        }
        "the server rejected the order without a reason".into()
    }

    async fn account(&self) -> Result<Account, Failure> {
        let stored = self.cache.account().unwrap_or_else(|error| {
            warn!("cannot read the saved account, so a new one is created: {error:#}");
            None
        });
        let Some(stored) = stored else { return self.new_account().await };
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let account = builder.from_credentials(stored.credentials).await;
        account.map_err(|error| self.no_directory(&error))
    }

    async fn new_account(&self) -> Result<Account, Failure> {
        // The configuration requires the operator's agreement.
        let new = NewAccount {
            contact: &[],
            //= rfc8555#terms
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let made = builder.create(&new, self.config.directory.clone(), None).await;
        let (account, credentials) = made.map_err(|error| self.no_directory(&error))?;
        info!(account = account.id(), "created an account");
        if let Err(error) = self.cache.save_account(&StoredAccount { credentials }) {
            warn!("cannot save the account, so the next start creates another: {error:#}");
        }
        Ok(account)
    }

    fn no_directory(&self, error: &Error) -> Failure {
        match error {
            Error::Json(error) => {
                let text = "is not the directory of an ACME server (tls.acme.directory)";
                self.fail(
                    FailureScope::Server,
                    format!("{} {text}: {error}", self.config.directory),
                )
            }
            error => self.failed(error),
        }
    }

    fn failed(&self, error: &Error) -> Failure {
        let is_any = |types: &[&str]| types.iter().any(|kind| is_acme_error(error, kind));
        let scope = match error {
            Error::Api(_) if !is_any(&["badNonce", "serverInternal"]) => FailureScope::Host,
            _ => FailureScope::Server,
        };
        let text = match error {
            Error::Api(problem) => {
                let detail = problem.detail.as_deref().unwrap_or("no reason given");
                let kind = problem.r#type.as_deref().unwrap_or("no type");
                let kind = kind.rsplit_once(':').map_or(kind, |(_, kind)| kind);
                format!("the server refused: {detail} ({kind})")
            }
            Error::Other(error) => {
                format!(
                    "cannot reach {}: {}",
                    self.config.directory,
                    errors::describe(error.as_ref())
                )
            }
            error => error.to_string(),
        };
        self.fail(scope, text)
    }

    fn fail(&self, scope: FailureScope, text: String) -> Failure {
        Failure { scope, text, retry_after: self.client.take_retry_after() }
    }
}

struct ChallengeGuard<'a>(&'a Authority);

impl Drop for ChallengeGuard<'_> {
    fn drop(&mut self) {
        self.0.certificates.set_challenge(None);
        self.0.challenges.clear();
    }
}

/// Places an order. It names the certificate it replaces, so that rate limits do not count it; if the
/// server refuses that, the order is placed without.
async fn new_order(
    account: &Account,
    names: &[Identifier],
    replaced: Option<CertificateIdentifier<'_>>,
) -> Result<Order, Error> {
    if let Some(replaced) = replaced {
        let order = account.new_order(&NewOrder::new(names).replaces(replaced)).await;
        if order.is_ok()
            || order.as_ref().is_err_and(|error| is_acme_error(error, "accountDoesNotExist"))
        {
            return order;
        }
    }
    account.new_order(&NewOrder::new(names)).await
}

fn certificate_id(certificate: &Certificate) -> Option<CertificateIdentifier<'_>> {
    CertificateIdentifier::try_from(certificate.der()?).ok()
}

//= rfc8737#challenge-certificate
fn challenge_certificate(domain: &str, digest: &[u8]) -> anyhow::Result<Certificate> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([domain.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let pem = key.serialize_pem() + &params.self_signed(&key)?.pem();
    Ok(Certificate::challenge_from_pem(pem.as_bytes())?)
}

fn is_acme_error(error: &Error, kind: &str) -> bool {
    let of = |kind_of: &String| kind_of.strip_prefix("urn:ietf:params:acme:error:") == Some(kind);
    matches!(error, Error::Api(problem) if problem.r#type.as_ref().is_some_and(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    //= rfc8737#challenge-certificate
    //= type=test
    #[test]
    fn challenge_certificate_has_digest_and_one_name() {
        let certificate = challenge_certificate("t.example", &[0xa5; 32]).unwrap();
        assert_eq!(certificate.names(), ["t.example"]);
        let der = certificate.der().unwrap().to_vec();
        // id-pe-acmeIdentifier (1.3.6.1.5.5.7.1.31), critical, an octet string in an octet string.
        let mut extension =
            vec![0x06, 8, 0x2b, 6, 1, 5, 5, 7, 1, 31, 0x01, 1, 0xff, 0x04, 34, 0x04, 32];
        extension.extend([0xa5; 32]);
        assert!(der.windows(extension.len()).any(|window| window == extension));
    }
}
