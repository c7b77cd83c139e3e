//! `[trace]`: where traces of API requests go.

use hyper::Uri;

use super::key::Problem;
use super::keys::TraceSection;

/// A collector, and how many requests are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceConfig {
    /// The URL that accepts spans.
    pub(crate) endpoint: String,
    /// Its port.
    pub(crate) port: u16,
    /// How many of a million requests are traced.
    pub(crate) per_million: u32,
}

impl TraceConfig {
    pub(super) fn from_section(
        section: &TraceSection,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let endpoint = &section.endpoint.value;
        if endpoint.is_empty() {
            return None;
        }
        let Some(port) = port(endpoint) else {
            let text =
                "expected an http:// or https:// URL, e.g. `http://127.0.0.1:4318/v1/traces`";
            problems.push(section.endpoint.item_problem(endpoint, text));
            return None;
        };
        let per_million = section.sample_per_million.value;
        Some(Self { endpoint: endpoint.clone(), port, per_million })
    }
}

fn port(endpoint: &str) -> Option<u16> {
    let uri: Uri = endpoint.parse().ok()?;
    let default = match uri.scheme_str()? {
        "http" => 80,
        "https" => 443,
        _ => return None,
    };
    uri.host().filter(|host| !host.is_empty())?;
    Some(uri.port_u16().unwrap_or(default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_http_urls_as_endpoints() {
        assert_eq!(port("http://127.0.0.1:4318/v1/traces"), Some(4318));
        assert_eq!(port("https://collector.example/v1/traces"), Some(443));
        assert_eq!(port("http://[::1]/"), Some(80));
        for bad in ["", "collector:4318", "/v1/traces", "grpc://a:4317", "http://", "http:///x"] {
            assert_eq!(port(bad), None, "{bad}");
        }
    }
}
