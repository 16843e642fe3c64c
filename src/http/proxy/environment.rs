//! `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, as Go programs read them (golang.org/x/net/http/httpproxy).

use super::Proxy;

/// What the environment says about proxies, read once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    https: Option<Proxy>,
    http: Option<Proxy>,
}

impl Environment {
    /// `variable` answers the value of an environment variable. The error names the variable and
    /// repeats nothing of its value.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Environment, String> {
        let proxy = |names: [&'static str; 2]| {
            let found = names.into_iter().find_map(|name| {
                let value = variable(name).filter(|value| !value.is_empty())?;
                Some((name, value))
            });
            found
                .map(|(name, value)| Proxy::parse(&value).map_err(|why| format!("{name}: {why}")))
                .transpose()
        };
        Ok(Environment {
            https: proxy(["HTTPS_PROXY", "https_proxy"])?,
            http: proxy(["HTTP_PROXY", "http_proxy"])?,
        })
    }
}
