//! Who we are to the others: `<hostname>_<uuid>`, as client-go's users write it.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Another one each time: a daemon that was started again is another candidate.
pub fn identity() -> String {
    format!("{}_{}", hostname(), uuid(random_bits()))
}

/// The pod's name, or on host network the machine's.
fn hostname() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    kernel
        .or_else(|| std::env::var("HOSTNAME").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "unknown".into())
}

fn random_bits() -> u128 {
    // A fresh RandomState is std's source of randomness.
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}

/// Version 4, RFC 9562.
fn uuid(random: u128) -> String {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let hex = format!("{bits:032x}");
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_says_its_version() {
        assert_eq!(uuid(0), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
    }

    #[test]
    fn nobody_is_somebody_else() {
        assert_ne!(identity(), identity());
    }
}
