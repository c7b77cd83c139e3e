//! `[trace]`: where spans go.

use hyper::Uri;

use super::read::{Problem, Settings};

/// A collector, and how much of it goes there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TraceConfig {
    /// The URL that takes spans.
    pub(crate) endpoint: String,
    /// Its port.
    pub(crate) port: u16,
    /// Of a million requests.
    pub(crate) per_million: u32,
}

impl TraceConfig {
    pub(super) fn from_settings(settings: &Settings, problems: &mut Vec<Problem>) -> Option<Self> {
        let name = "trace.endpoint";
        let endpoint = Some(settings.text(name)).filter(|text| !text.is_empty())?.to_owned();
        let Some(port) = port(&endpoint) else {
            let text = "http:// or https:// and a host are due, as in \
                        `http://127.0.0.1:4318/v1/traces`";
            problems.push(settings.problem(name, format!("`{endpoint}`: {text}")));
            return None;
        };
        Some(Self { endpoint, port, per_million: settings.int("trace.sample_per_million") })
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
    fn endpoints_are_urls_of_http() {
        assert_eq!(port("http://127.0.0.1:4318/v1/traces"), Some(4318));
        assert_eq!(port("https://collector.example/v1/traces"), Some(443));
        assert_eq!(port("http://[::1]/"), Some(80));
        for bad in ["", "collector:4318", "/v1/traces", "grpc://a:4317", "http://", "http:///x"] {
            assert_eq!(port(bad), None, "{bad}");
        }
    }
}
