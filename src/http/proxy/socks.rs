//! SOCKS 5 (RFC 1928), with user name and password (RFC 1929).

use super::address::Login;
use super::tunnel::{Target, Trouble, way_out};
use std::io::{Read, Write};
use std::net::IpAddr;

const VERSION: u8 = 5;
const NO_LOGIN: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_OF_THESE: u8 = 0xff;
const LOGIN_VERSION: u8 = 1;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

pub(super) fn open(
    stream: &mut (impl Read + Write),
    target: &Target,
    login: Option<&Login>,
    told_by: &str,
) -> Result<(), Trouble> {
    let offered: &[u8] = match login {
        Some(_) => &[VERSION, 2, NO_LOGIN, USER_AND_PASSWORD],
        None => &[VERSION, 1, NO_LOGIN],
    };
    send(stream, offered)?;
    let [version, method] = receive(stream)?;
    if version != VERSION {
        return Err(no_socks());
    }
    match (method, login) {
        (NO_LOGIN, _) => {}
        (USER_AND_PASSWORD, Some(login)) => log_in(stream, login, told_by)?,
        (NONE_OF_THESE, None) => {
            return Err(Trouble::Lasting(format!(
                "it wants a login; write it before the host in {told_by}: socks5://user:password@host:port"
            )));
        }
        _ => {
            return Err(Trouble::Lasting(
                "it wants another way of logging in than user name and password".into(),
            ));
        }
    }
    send(stream, &request(target)?)?;
    let [version, reply, _, kind] = receive(stream)?;
    if version != VERSION {
        return Err(no_socks());
    }
    refusal(reply, target, told_by)?;
    // The address it connects from says nothing to us, but it stands before the tunnel.
    match kind {
        IPV4 => receive::<{ 4 + 2 }>(stream).map(drop),
        IPV6 => receive::<{ 16 + 2 }>(stream).map(drop),
        NAME => {
            let [length] = receive(stream)?;
            let mut name_and_port = vec![0; usize::from(length) + 2];
            Ok(stream.read_exact(&mut name_and_port)?)
        }
        _ => Err(no_socks()),
    }
}

fn log_in(stream: &mut (impl Read + Write), login: &Login, told_by: &str) -> Result<(), Trouble> {
    let mut message = vec![LOGIN_VERSION];
    for text in [login.user.as_str(), login.password.expose()] {
        let length = u8::try_from(text.len()).map_err(|_| {
            Trouble::Lasting(format!(
                "the user name or password in {told_by} is longer than the 255 bytes that SOCKS allows"
            ))
        })?;
        message.push(length);
        message.extend(text.as_bytes());
    }
    send(stream, &message)?;
    let [_, refused] = receive(stream)?;
    match refused {
        0 => Ok(()),
        _ => Err(Trouble::Lasting(format!(
            "it does not accept the login in {told_by}; is it right?"
        ))),
    }
}

/// A name is sent as it is: the proxy knows names that we can't resolve.
fn request(target: &Target) -> Result<Vec<u8>, Trouble> {
    let mut message = vec![VERSION, CONNECT, 0];
    match target.host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            message.push(IPV4);
            message.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            message.push(IPV6);
            message.extend(ip.octets());
        }
        Err(_) => {
            let length = u8::try_from(target.host.len()).map_err(|_| {
                Trouble::Lasting(format!("{} is too long for a host's name", target.host))
            })?;
            message.extend([NAME, length]);
            message.extend(target.host.as_bytes());
        }
    }
    message.extend(target.port.to_be_bytes());
    Ok(message)
}

fn refusal(reply: u8, target: &Target, told_by: &str) -> Result<(), Trouble> {
    let Target { host, port } = target;
    let why = match reply {
        0 => return Ok(()),
        2 => {
            return Err(Trouble::Lasting(format!(
                "it does not let us through to {host} port {port}; {}",
                way_out(told_by)
            )));
        }
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "no answer in time",
        7 | 8 => "it does not support this",
        _ => "general failure",
    };
    Err(Trouble::Passing(format!(
        "it could not connect to {host} port {port} ({why}); does it reach that host?"
    )))
}

fn send(stream: &mut impl Write, bytes: &[u8]) -> Result<(), Trouble> {
    stream.write_all(bytes)?;
    Ok(stream.flush()?)
}

fn receive<const N: usize>(stream: &mut impl Read) -> Result<[u8; N], Trouble> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn no_socks() -> Trouble {
    Trouble::Lasting(
        "what answers there does not speak SOCKS 5; is it an HTTP proxy (http://)?".into(),
    )
}
