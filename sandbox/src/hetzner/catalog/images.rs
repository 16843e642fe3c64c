//! `/images`: what a server is made from. System images only: there are no snapshots and no backups.

use super::super::error::ApiError;
use super::super::input::Query;
use super::super::listing::Page;
use super::super::text::{Text, text};
use super::super::{Call, Reply};
use super::{id, read_only};

#[derive(Debug, PartialEq)]
pub struct Image {
    pub id: u64,
    /// Shared by the images of both architectures.
    pub name: &'static str,
    pub description: &'static str,
    pub os_flavor: &'static str,
    pub os_version: &'static str,
    pub architecture: &'static str,
    pub created: &'static str,
}

const fn image(
    id: u64,
    name: &'static str,
    os: [&'static str; 3],
    architecture: &'static str,
) -> Image {
    let [description, os_flavor, os_version] = os;
    Image {
        id,
        name,
        description,
        os_flavor,
        os_version,
        architecture,
        created: "2025-09-01T08:00:00Z",
    }
}

const UBUNTU_24: [&str; 3] = ["Ubuntu 24.04", "ubuntu", "24.04"];
const UBUNTU_22: [&str; 3] = ["Ubuntu 22.04", "ubuntu", "22.04"];
const DEBIAN_13: [&str; 3] = ["Debian 13", "debian", "13"];
const DEBIAN_12: [&str; 3] = ["Debian 12", "debian", "12"];
const FEDORA_42: [&str; 3] = ["Fedora 42", "fedora", "42"];
const ROCKY_9: [&str; 3] = ["Rocky Linux 9", "rocky", "9"];

pub static IMAGES: [Image; 12] = [
    image(161_547_269, "ubuntu-24.04", UBUNTU_24, "x86"),
    image(161_547_270, "ubuntu-24.04", UBUNTU_24, "arm"),
    image(67_794_396, "ubuntu-22.04", UBUNTU_22, "x86"),
    image(103_908_130, "ubuntu-22.04", UBUNTU_22, "arm"),
    image(310_557_660, "debian-13", DEBIAN_13, "x86"),
    image(310_557_661, "debian-13", DEBIAN_13, "arm"),
    image(114_690_387, "debian-12", DEBIAN_12, "x86"),
    image(114_690_389, "debian-12", DEBIAN_12, "arm"),
    image(232_895_411, "fedora-42", FEDORA_42, "x86"),
    image(232_895_412, "fedora-42", FEDORA_42, "arm"),
    image(76_766_499, "rocky-9", ROCKY_9, "x86"),
    image(103_908_134, "rocky-9", ROCKY_9, "arm"),
];

impl Image {
    /// By ID, or by name for the architecture of the server type.
    pub fn find(text: &str, architecture: &str) -> Option<&'static Image> {
        let number = text.parse::<u64>().ok();
        let matches = |image: &&Image| Some(image.id) == number || image.name == text;
        IMAGES
            .iter()
            .filter(matches)
            .find(|image| image.architecture == architecture)
    }

    pub fn json(&self) -> Text {
        text!({
            "id": self.id, "name": self.name, "description": self.description, "type": "system",
            "status": "available", "architecture": self.architecture, "os_flavor": self.os_flavor,
            "os_version": self.os_version, "created": self.created, "disk_size": 5, "image_size": null,
            "bound_to": null, "created_from": null, "deleted": null, "deprecated": null, "labels": {},
            "protection": {"delete": false}, "rapid_deploy": true,
        })
    }
}

/// Answers `/images` and `/images/{id}`.
pub fn route(call: &Call, rest: &[&str]) -> Result<Reply, ApiError> {
    match rest {
        [] => read_only(call.method, || list(call)),
        [segment] => read_only(call.method, || {
            call.refuse_query()?;
            let id = id(segment)?;
            let image = IMAGES.iter().find(|image| image.id == id);
            let image = image.ok_or_else(|| ApiError::not_found("image", id))?;
            Ok(Reply::ok(text!({"image": image.json()})))
        }),
        _ => Err(ApiError::no_such_path()),
    }
}

/// All of them are available system images of no project, which have no labels.
fn list(call: &Call) -> Result<Reply, ApiError> {
    let known = [
        "name",
        "type",
        "status",
        "architecture",
        "include_deprecated",
        "page",
        "per_page",
    ];
    let query = Query::new(call.query, &known)?;
    let page = Page::of(&query)?;
    let is = |name: &str, value: &str| {
        let mut wanted = query.all(name).peekable();
        wanted.peek().is_none() || wanted.any(|wanted| wanted == value)
    };
    let is_asked_for = |image: &&Image| {
        is("name", image.name)
            && is("architecture", image.architecture)
            && is("type", "system")
            && is("status", "available")
    };
    let found: Vec<&Image> = IMAGES.iter().filter(is_asked_for).collect();
    Ok(page.reply("/images", "images", &found, |image| image.json()))
}
