//! Reads certificate requests of kubelets (PKCS#10). Such a request is the only binary input that comes from machines
//! which may be hostile. The API server, a Go program, has parsed the request and checked its signature before.
//!
//! This reader accepts only the one form that kubelets write, so that it can't understand a request in another way than
//! Go does. Everything else is an error, and the request is left to people. The reader has no recursion, and all its
//! inputs are bounded.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt;
use std::net::IpAddr;
use untrusted::{Input, Reader};

/// The longest PEM text of a request that is read, in bytes.
const PEM_BYTES_AT_MOST: usize = 16 << 10;
/// How many alternative names (`subjectAltName`) a certificate request may have.
const NAMES_AT_MOST: usize = 16;
/// The longest text, in bytes, that is accepted as a name in a certificate request. The longest name is the user name
/// of a kubelet. It consists of `system:node:`, which has 12 bytes, and the name of the kubelet's node, which has up to
/// 253 bytes.
const TEXT_BYTES_AT_MOST: usize = 265;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----\n";
const END: &str = "-----END CERTIFICATE REQUEST-----\n";

/// The organisation of each kubelet's certificate.
pub const NODES_GROUP: &str = "system:nodes";

// The tags of DER. A tag is the first byte of a value, and says which type the value has.
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const NULL: u8 = 0x05;
const OID: u8 = 0x06;
const PRINTABLE_STRING: u8 = 0x13;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const ATTRIBUTES: u8 = 0xa0;
const DNS_NAME: u8 = 0x82;
const IP_ADDRESS: u8 = 0x87;

/// The first bytes of the subject of every request that a kubelet makes, in DER. They encode a set of one attribute,
/// the organisation (OID 2.5.4.10), whose text is [`NODES_GROUP`]. The common name follows after them.
const ORGANISATION: &[u8] = b"\x31\x15\x30\x13\x06\x03\x55\x04\x0a\x13\x0csystem:nodes";

const COMMON_NAME: &[u8] = b"\x55\x04\x03";
const SUBJECT_ALT_NAME: &[u8] = b"\x55\x1d\x11";
const EXTENSION_REQUEST: &[u8] = b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x0e";

/// What a kubelet asks for in a certificate request. The organisation in such a request is always [`NODES_GROUP`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingRequest {
    pub common_name: String,
    /// The names and IPs for which the certificate is requested (subject alternative names), in the order of the
    /// request.
    pub names: Vec<AltName>,
}

/// An alternative name for which a kubelet wants a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AltName {
    Dns(String),
    Ip(IpAddr),
}

impl fmt::Display for AltName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AltName::Dns(name) => name.fmt(f),
            AltName::Ip(ip) => ip.fmt(f),
        }
    }
}

/// The value that was read from a certificate request, or an error text. The text says how the request differs from the
/// requests that kubelets create.
type Form<T> = Result<T, &'static str>;

const ENDS_ELSEWHERE: &str = "a field has additional data that requests of kubelets do not have";

impl ServingRequest {
    /// Reads a certificate request from its PEM text. The error says how it differs from the requests that kubelets
    /// create.
    pub fn read(pem: &[u8]) -> Form<ServingRequest> {
        let der = decoded(pem)?;
        only(Input::from(&der), SEQUENCE)?.read_all(ENDS_ELSEWHERE, |request| {
            let info = value(request, SEQUENCE)?;
            algorithm_and_bits(request)?;
            info.read_all(ENDS_ELSEWHERE, |info| {
                if value(info, INTEGER)?.as_slice_less_safe() != [0] {
                    return Err("the version of the request is not 0");
                }
                let common_name = subject(value(info, SEQUENCE)?)?;
                value(info, SEQUENCE)?.read_all(ENDS_ELSEWHERE, algorithm_and_bits)?;
                let names = alternative_names(value(info, ATTRIBUTES)?)?;
                Ok(ServingRequest { common_name, names })
            })
        })
    }
}

/// Decodes the PEM text of a certificate request. The text must be exactly one block without headers. A usual PEM
/// parser skips text before and after a block. Such a parser could read another block than the one that the API server
/// (a Go program) has checked.
fn decoded(pem: &[u8]) -> Form<Vec<u8>> {
    if pem.len() > PEM_BYTES_AT_MOST {
        return Err("the request is longer than 16 KiB");
    }
    let text = std::str::from_utf8(pem).unwrap_or_default();
    let body = text.strip_prefix(BEGIN).and_then(|text| text.strip_suffix(END));
    let body =
        body.ok_or("the request is not exactly one PEM block of type CERTIFICATE REQUEST")?;
    let body: String = body.split('\n').collect();
    STANDARD.decode(body).map_err(|_| "the PEM block of the request is not in base64")
}

/// Reads the next value of a DER encoding, and returns its content. Returns an error when the value does not have the
/// type `tag`, or when its length is not written in the shortest form.
fn value<'a>(reader: &mut Reader<'a>, tag: u8) -> Form<Input<'a>> {
    let (found, content) = any_value(reader)?;
    if found == tag {
        Ok(content)
    } else {
        Err("a field has another type than in requests of kubelets")
    }
}

/// Reads the next value of the DER encoding (a tag, a length and the content), and returns its tag and its content. A
/// length below 128 is one byte. For a larger length, the first byte says how many bytes of length follow. At most two
/// are accepted, which is enough for [`PEM_BYTES_AT_MOST`].
fn any_value<'a>(reader: &mut Reader<'a>) -> Form<(u8, Input<'a>)> {
    let short = |_| "the request ends in the middle of a value";
    let tag = reader.read_byte().map_err(short)?;
    let mut byte = || reader.read_byte().map(usize::from).map_err(short);
    let length = match byte()? {
        length @ 0..=0x7f => Some(length),
        0x81 => Some(byte()?).filter(|length| *length >= 0x80),
        0x82 => Some(byte()? << 8 | byte()?).filter(|length| *length >= 0x100),
        _ => None,
    };
    let length = length
        .ok_or("the length of a field is written in another way than in requests of kubelets")?;
    Ok((tag, reader.read_bytes(length).map_err(short)?))
}

/// Reads the only value in `input`, which has the DER encoding (a tag, a length and the content). Returns its content.
/// It is an error when the value has another tag than `tag`, or when something follows the value.
fn only(input: Input, tag: u8) -> Form<Input> {
    input.read_all(ENDS_ELSEWHERE, |reader| value(reader, tag))
}

/// Reads an object identifier and the value that follows it, and returns this value. The identifier must be `id`. The
/// value must have the type `tag`, and the input must end after it.
fn named<'a>(input: Input<'a>, id: &[u8], tag: u8) -> Form<Input<'a>> {
    input.read_all(ENDS_ELSEWHERE, |reader| {
        if value(reader, OID)?.as_slice_less_safe() == id {
            value(reader, tag)
        } else {
            Err("the request has a field, attribute or extension that kubelets do not use")
        }
    })
}

/// Reads an algorithm and the bits that belong to it, which are a public key or a signature. Only their form is
/// checked. The parameters of the algorithm must be missing, null or an object identifier, as for every key that a
/// kubelet can have. The first byte of the bits says how many bits at the end are unused, and must be 0.
fn algorithm_and_bits(reader: &mut Reader) -> Form<()> {
    const OTHER: &str =
        "the key or the signature is encoded in another way than in requests of kubelets";
    let identifier = |id: Input| match id.as_slice_less_safe() {
        [0..=0x7f, .., 0..=0x7f] => Ok(()),
        _ => Err(OTHER),
    };
    value(reader, SEQUENCE)?.read_all(OTHER, |algorithm| {
        identifier(value(algorithm, OID)?)?;
        if algorithm.at_end() {
            return Ok(());
        }
        match any_value(algorithm)? {
            (OID, id) => identifier(id),
            (NULL, nothing) if nothing.is_empty() => Ok(()),
            _ => Err(OTHER),
        }
    })?;
    match value(reader, BIT_STRING)?.as_slice_less_safe() {
        [0, ..] => Ok(()),
        _ => Err(OTHER),
    }
}

/// Parses the subject of a certificate request and returns its common name. A subject that has more or less than the
/// organisation [`NODES_GROUP`] and one common name is an error.
fn subject(name: Input) -> Form<String> {
    let rest = name.as_slice_less_safe().strip_prefix(ORGANISATION);
    let rest = rest.ok_or("the organisation in the subject is not exactly system:nodes")?;
    let part = only(only(Input::from(rest), SET)?, SEQUENCE)?;
    text(named(part, COMMON_NAME, PRINTABLE_STRING)?)
}

/// Returns the content as text. It is an error when the content has a character that no name of a kubelet's node has,
/// or when it is empty or too long.
fn text(content: Input) -> Form<String> {
    let bytes = content.as_slice_less_safe();
    let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b":.-".contains(byte);
    let is_text = (1..=TEXT_BYTES_AT_MOST).contains(&bytes.len()) && bytes.iter().all(is_usual);
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_text);
    text.map(str::to_owned)
        .ok_or("a name in the request is too long, or has characters that no node's name has")
}

/// Reads the alternative names of a certificate request. The attributes of the request must ask for exactly one
/// extension, which is `subjectAltName`.
fn alternative_names(attributes: Input) -> Form<Vec<AltName>> {
    let extensions = named(only(attributes, SEQUENCE)?, EXTENSION_REQUEST, SET)?;
    let extension = only(only(extensions, SEQUENCE)?, SEQUENCE)?;
    let names = only(named(extension, SUBJECT_ALT_NAME, OCTET_STRING)?, SEQUENCE)?;
    names.read_all("the request has more than 16 alternative names", |reader| {
        let mut names = vec![alternative_name(any_value(reader)?)?];
        while !reader.at_end() && names.len() < NAMES_AT_MOST {
            names.push(alternative_name(any_value(reader)?)?);
        }
        Ok(names)
    })
}

fn alternative_name((tag, content): (u8, Input)) -> Form<AltName> {
    let bytes = content.as_slice_less_safe();
    let (ipv4, ipv6) = (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes));
    match (tag, ipv4, ipv6) {
        (DNS_NAME, ..) => text(content).map(AltName::Dns),
        (IP_ADDRESS, Ok(ipv4), _) => Ok(AltName::Ip(ipv4.into())),
        (IP_ADDRESS, _, Ok(ipv6)) => Ok(AltName::Ip(ipv6.into())),
        _ => Err("an alternative name is neither a DNS name nor an IP address"),
    }
}
