//! Public addresses for servers, from ranges that are reserved for documentation and benchmarks.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// The IPv4 ranges from which public addresses are taken: three /24 of RFC 5737, and then the range of RFC 2544 with
/// about 131,000 addresses.
const IPV4_RANGES: [(Ipv4Addr, u8); 4] = [
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
];

/// Gives out public addresses. An address is never given out again, even after its server was deleted, so that nobody
/// who reads the output of a test takes one server for another.
#[derive(Debug, Default)]
pub struct Pool {
    ipv4_used: u32,
    ipv6_used: u32,
    /// The addresses that are already in use because a test has chosen them. They are not given out. An IPv6 range is
    /// stored as its first address.
    taken: HashSet<IpAddr>,
}

impl Pool {
    /// Marks an address, or the IPv6 range that begins with this address, as in use. The address or range will not be
    /// given out.
    pub fn take(&mut self, address: IpAddr) {
        self.taken.insert(address);
    }

    /// Returns a new address, or `None` when all ranges are used up.
    pub fn ipv4(&mut self) -> Option<Ipv4Addr> {
        loop {
            let next = self.next_ipv4()?;
            if !self.taken.contains(&next.into()) {
                return Some(next);
            }
        }
    }

    /// Returns a new /64 of 2001:db8::/32 (RFC 3849), or `None` when all of them are used up.
    pub fn ipv6(&mut self) -> Option<Ipv6Net> {
        loop {
            let next = self.next_ipv6()?;
            if !self.taken.contains(&next.network().into()) {
                return Some(next);
            }
        }
    }

    fn next_ipv4(&mut self) -> Option<Ipv4Addr> {
        let mut index = self.ipv4_used;
        for (network, prefix) in IPV4_RANGES {
            let range = Ipv4Net::new(network, prefix).ok()?;
            let usable = u32::from(range.broadcast()) - u32::from(range.network()) - 1;
            if index < usable {
                self.ipv4_used += 1;
                return Some(Ipv4Addr::from(u32::from(range.network()) + 1 + index));
            }
            index -= usable;
        }
        None
    }

    fn next_ipv6(&mut self) -> Option<Ipv6Net> {
        self.ipv6_used = self.ipv6_used.checked_add(1)?;
        let [a, b] = [(self.ipv6_used >> 16) as u16, self.ipv6_used as u16];
        Ipv6Net::new(Ipv6Addr::new(0x2001, 0xdb8, a, b, 0, 0, 0, 0), 64).ok()
    }
}
