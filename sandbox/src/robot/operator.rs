//! Methods of [`Robot`] with which tests change dedicated servers, logins and rate limits, as a customer or a
//! technician could. All changes take effect at once.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use super::{DedicatedServer, Limit, Logins, OWN_ACCOUNT, Robot, Sees, User};
use crate::exchange::Response;
use crate::time;

/// The server number of the first server that is created.
const FIRST_NUMBER: u64 = 2_000_001;

impl Robot {
    /// Creates a running dedicated server of the account [`OWN_ACCOUNT`], with one IPv4 address and one IPv6 subnet.
    /// Returns the server's number.
    pub fn create(&self, name: &str) -> u64 {
        let mut state = self.lock();
        let number =
            (FIRST_NUMBER..).find(|number| !state.servers.contains_key(number)).unwrap_or_default();
        state.created += 1;
        let index = u16::try_from(state.created).unwrap_or_else(|_| panic!("too many servers"));
        let [high, low] = index.to_be_bytes();
        // The simulated Hetzner Cloud takes its addresses from the beginning of the range 198.18.0.0/15 (RFC 2544).
        // Dedicated servers get theirs from the second half of this range, so that no address is used twice.
        let ipv4 = Ipv4Addr::new(198, 19, high, low).to_string();
        let ipv6 = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, index, 0, 0, 0, 0).to_string();
        let server = DedicatedServer {
            number,
            name: name.to_owned(),
            server_ip: Some(ipv4.clone()),
            server_ipv6_net: Some(ipv6.clone()),
            product: "AX41-NVMe".into(),
            dc: "FSN1-DC16".into(),
            traffic: "unlimited".into(),
            status: "ready".into(),
            cancelled: false,
            paid_until: "2027-01-31".into(),
            ips: vec![ipv4],
            subnets: Some(vec![(ipv6, "64".into())]),
            reset_types: ["power", "power_long", "hw", "man"].map(str::to_owned).into(),
            operating_status: None,
            account: OWN_ACCOUNT,
            private_ip: None,
            machine: state.created,
            on: Some(time::now()),
        };
        state.servers.insert(number, server);
        number
    }

    /// Calls `edit` with the dedicated server that has this number, so that a test can change the server. When `edit`
    /// changes the number to that of another server, the other server is removed. Nothing happens when no server has
    /// this number.
    pub fn edit(&self, number: u64, edit: impl FnOnce(&mut DedicatedServer)) {
        let mut state = self.lock();
        if let Some(mut server) = state.servers.remove(&number) {
            edit(&mut server);
            state.servers.insert(server.number, server);
        }
    }

    pub fn remove(&self, number: u64) {
        self.lock().servers.remove(&number);
    }

    /// Returns all servers of all accounts, sorted by number.
    pub fn servers(&self) -> Vec<DedicatedServer> {
        self.lock().servers.values().cloned().collect()
    }

    pub fn server(&self, number: u64) -> Option<DedicatedServer> {
        self.lock().servers.get(&number).cloned()
    }

    /// Returns the number of the dedicated server with this name. When several servers have the name, the lowest number
    /// is returned.
    pub fn number_of(&self, name: &str) -> Option<u64> {
        let state = self.lock();
        let mut servers = state.servers.values();
        servers.find(|server| server.name == name).map(|server| server.number)
    }

    /// Switches a dedicated server on or off, as its power button does. The simulated kubelet on a server that is off
    /// stops reporting, and starts again when the server is switched on.
    pub fn set_power(&self, number: u64, on: bool) {
        self.edit(number, |server| {
            server.on = on.then(|| server.on.unwrap_or_else(time::now));
        });
    }

    /// Adds a login to Robot, or replaces the login of the same user.
    pub fn set_login(&self, user: &str, password: &str, sees: Sees) {
        let user = User { name: user.to_owned(), password: password.to_owned(), sees };
        let users = &mut self.lock().users;
        match users.iter_mut().find(|other| other.name == user.name) {
            Some(known) => *known = user,
            None => users.push(user),
        }
    }

    /// Returns the user and the password of the first login that sees all servers of [`OWN_ACCOUNT`]. The sandbox gives
    /// them to clients as `ROBOT_USER` and `ROBOT_PASSWORD`. Both are empty when there is no such login.
    pub fn login(&self) -> (String, String) {
        let state = self.lock();
        let mut users = state.users.iter();
        let own = users.find(|user| user.sees == Sees::Account(OWN_ACCOUNT));
        own.map(|user| (user.name.clone(), user.password.clone())).unwrap_or_default()
    }

    /// Changes the password of the login that [`login`](Robot::login) returns. The old password is refused from now on.
    pub fn set_password(&self, password: &str) {
        self.set_login(&self.login().0, password, Sees::Account(OWN_ACCOUNT));
    }

    pub fn remove_login(&self, user: &str) {
        self.lock().users.retain(|other| other.name != user);
    }

    /// Sets a rate limit to `max_request` requests within `interval`. The time scale of the sandbox does not change
    /// `interval`. Requests that were already made no longer count.
    pub fn set_limit(&self, limit: Limit, max_request: usize, interval: Duration) {
        let mut state = self.lock();
        let budget = &mut state.limits[limit as usize];
        budget.spent.clear();
        (budget.max_request, budget.interval) = (max_request, interval);
    }

    /// Sets the answer to requests from a blocked IP address. The default is an answer with status 403 that is not
    /// JSON.
    pub fn set_blocked_answer(&self, answer: Response) {
        self.lock().blocked_answer = answer;
    }

    /// Returns how much longer Robot blocks the IP address that all clients share, or `None` when the address is not
    /// blocked.
    pub fn blocked_for(&self) -> Option<Duration> {
        let left = self.lock().blocked_until?.checked_duration_since(time::now())?;
        (!left.is_zero()).then_some(left)
    }

    /// Ends the block of the IP address that all clients of the sandbox share. Also sets the number of failed logins to
    /// zero, so that the next failed login does not block the address again.
    pub fn end_block(&self) {
        let mut state = self.lock();
        state.blocked_until = None;
        state.failures.clear();
    }

    pub fn logins(&self) -> Logins {
        self.lock().logins
    }

    /// Returns the numbers of the physical machines that are switched on. Simulated kubelets call this function often.
    /// It is therefore cheaper than [`servers`](Robot::servers), which copies all facts about each server.
    pub(crate) fn running_machines(&self) -> HashSet<u64> {
        let state = self.lock();
        let running = state.servers.values().filter(|server| server.on.is_some());
        running.map(|server| server.machine).collect()
    }

    /// Whether `ip` is a public address of a dedicated server of [`OWN_ACCOUNT`].
    pub(crate) fn owns(&self, ip: IpAddr) -> bool {
        let state = self.lock();
        let mut servers = state.servers.values();
        servers.any(|server| server.account == OWN_ACCOUNT && server.has(ip))
    }

    /// Returns the time at which the dedicated server with this public or private address was switched on. Returns
    /// `None` when it is off or does not exist.
    pub(crate) fn answers_since(&self, ip: IpAddr) -> Option<Instant> {
        self.at_address(ip, |server| server.on)?
    }

    /// Returns the field `machine` of the dedicated server that has this public or private address. This number
    /// identifies the computer, and stays the same when a test changes the server's number.
    pub(crate) fn machine_with(&self, ip: IpAddr) -> Option<u64> {
        self.at_address(ip, |server| server.machine)
    }

    fn at_address<T>(&self, ip: IpAddr, read: impl FnOnce(&DedicatedServer) -> T) -> Option<T> {
        let state = self.lock();
        let mut servers = state.servers.values();
        let is = |server: &&DedicatedServer| {
            server.private_ip.map(IpAddr::V4) == Some(ip) || server.has(ip)
        };
        servers.find(is).map(read)
    }
}

impl DedicatedServer {
    /// Returns the number that identifies the physical machine. It stays the same when a test changes the server's
    /// number. The [`NodeSpec`](crate::kubelet::NodeSpec) of the kubelet on this machine contains it.
    pub fn machine(&self) -> u64 {
        self.machine
    }
}
