//! Node selectors, as `kubectl -l` reads them.

use ccm::hetzner::load_balancers::Selector;
use std::collections::BTreeMap;

#[test]
#[rustfmt::skip] // A case is a line.
fn selectors_match_as_in_kubectl() {
    let labels: BTreeMap<String, String> = [("zone", "a"), ("pool/name", "big"), ("size", "4"), ("empty", "")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    for (text, expected) in [
        ("", true), ("zone=a", true), ("zone==a", true), ("zone = a", true), ("zone=b", false), ("zone!=b", true), ("zone!=a", false),
        ("nothing!=a", true), ("nothing=a", false), ("zone", true), ("nothing", false), ("!nothing", true), ("!zone", false),
        ("zone in (a, b)", true), ("zone in (b)", false), ("zone notin (b,c)", true), ("zone notin (a)", false), ("nothing notin (a)", true),
        ("pool/name=big,zone=a", true), ("pool/name=big,zone=b", false), ("zone in (a,b),pool/name in (big)", true),
        ("size>3", true), ("size>4", false), ("size<5", true), ("zone>1", false), ("empty=", true), ("zone=", false), ("empty in (,a)", true),
    ] {
        assert_eq!(Selector::parse(text).map(|selector| selector.matches(|key| labels.get(key).map(String::as_str))), Ok(expected), "{text}");
    }
    for (text, says) in [
        ("a in (b", "has no \")\" after it"), ("a in b)", "has no \"(\" before it"), ("a b", "not a valid label name"), ("=b", "not a valid label name"), ("a=b=c", "not a valid label value"),
        ("a,,b", "a comma has no requirement"), ("a>b", "not a whole number"), ("a=-b", "not a valid label value"), ("a within (b)", "no valid requirement"), ("a in ((b))", "nested parentheses"),
        ("a)", "has no \"(\" before it"), ("-a", "not a valid label name"), ("A_/b", "not a valid label name"), ("a=ü", "not a valid label value"), ("!", "not a valid label name"),
    ] {
        let error = Selector::parse(text).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
}
