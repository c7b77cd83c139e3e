//! Networks in CIDR notation.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// A list of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

/// A text that is neither an address nor a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseNetworkError(String);

impl Networks {
    /// Reads addresses (`192.0.2.1`) and networks (`192.0.2.0/24`, `2001:db8::/32`).
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, ParseNetworkError> {
        let network = |text: &str| {
            let parsed = IpNet::from_str(text).or_else(|_| IpAddr::from_str(text).map(IpNet::from));
            parsed.map_err(|_| ParseNetworkError(text.to_owned()))
        };
        texts.into_iter().map(network).collect::<Result<_, _>>().map(Self)
    }

    /// Whether one of them holds `ip`. A v4-mapped v6 address is its v4 address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.0.iter().any(|network| network.contains(&ip))
    }
}

impl fmt::Display for ParseNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is neither an address nor a network such as 192.0.2.0/24", self.0)
    }
}

impl std::error::Error for ParseNetworkError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_networks_of_both_families() {
        let networks = Networks::parse(["10.0.0.0/8", "192.0.2.7", "fd00::/8"]).unwrap();
        for (ip, expected) in [
            ("10.255.0.1", true),
            ("::ffff:10.0.0.1", true),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("fdff::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(networks.contains(ip.parse().unwrap()), expected, "{ip}");
        }
        let error = Networks::parse(["10.0.0/33"]).unwrap_err();
        assert!(error.to_string().starts_with("`10.0.0/33` is neither"));
    }
}
