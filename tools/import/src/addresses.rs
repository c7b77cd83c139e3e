//! Addresses that other trackers listen on.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Parses an address: an IP address, a host and port, or only `:port`. Returns all addresses that it stands
/// for here, where an IPv6 address accepts no IPv4 traffic.
///
/// # Errors
///
/// Says what was expected. Names other than `localhost` are not resolved.
pub(crate) fn parse(text: &str, port: u16) -> Result<Vec<String>, String> {
    let text = text.trim();
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(both(address.ip(), address.port()));
    }
    if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(both(ip, port));
    }
    let (host, number) = text.rsplit_once(':').unwrap_or((text, ""));
    let port = if number.is_empty() { Ok(port) } else { number.parse() };
    match (host, port) {
        ("" | "*", Ok(port)) => Ok(both(Ipv6Addr::UNSPECIFIED.into(), port)),
        ("localhost", Ok(port)) => Ok(vec![format!("127.0.0.1:{port}"), format!("[::1]:{port}")]),
        _ => Err(format!("expected an IP address and a port, found {text:?}")),
    }
}

/// Returns the address, and that of IPv4, too, if it is `::`.
fn both(ip: IpAddr, port: u16) -> Vec<String> {
    let ip = ip.to_canonical();
    let own = SocketAddr::new(ip, port).to_string();
    match ip {
        IpAddr::V6(ip) if ip.is_unspecified() => vec![format!("0.0.0.0:{port}"), own],
        _ => vec![own],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_trackers_write() {
        let parsed = |text: &str| parse(text, 6969).unwrap().join(" ");
        assert_eq!(parsed("192.0.2.1"), "192.0.2.1:6969");
        assert_eq!(parsed("192.0.2.1:80"), "192.0.2.1:80");
        assert_eq!(parsed(":6880"), "0.0.0.0:6880 [::]:6880");
        assert_eq!(parsed("[::]:80"), "0.0.0.0:80 [::]:80");
        assert_eq!(parsed("::"), "0.0.0.0:6969 [::]:6969");
        assert_eq!(parsed("[2001:db8::1]"), "[2001:db8::1]:6969");
        assert_eq!(parsed("2001:db8::1"), "[2001:db8::1]:6969");
        assert_eq!(parsed("localhost:9"), "127.0.0.1:9 [::1]:9");
        for bad in ["tracker.example.org:80", "1.2.3.4:99999", "1.2.3"] {
            assert!(parse(bad, 1).unwrap_err().starts_with("expected an IP address"), "{bad}");
        }
    }
}
