//! Answers requests to `/images`, the images from which servers are made. All images are system images: there are no
//! snapshots and no backups.

use serde::Deserialize;

use super::super::input::Query;
use super::super::text::{Text, text};
use super::super::world::World;
use super::{CATALOG, Entry};

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Image {
    pub id: u64,
    /// The name of the image. An operating system has one image for each CPU architecture, and both images have the
    /// same name.
    pub name: &'static str,
    pub description: &'static str,
    pub os_flavor: &'static str,
    pub os_version: &'static str,
    pub architecture: &'static str,
    pub created: &'static str,
}

impl Image {
    /// Finds the image for this CPU architecture whose ID or name is `text`.
    pub fn find_for(text: &str, architecture: &str) -> Option<&'static Image> {
        let number = text.parse::<u64>().ok();
        let matches = |image: &&Image| Some(image.id) == number || image.name == text;
        Image::all().iter().filter(matches).find(|image| image.architecture == architecture)
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

/// All images are system images, so they are available to every project and have no labels.
impl Entry for Image {
    const KIND: &'static str = "image";
    const PARAMETERS: &'static [&'static str] = &[
        "name",
        "type",
        "status",
        "architecture",
        "include_deprecated",
        "sort",
        "page",
        "per_page",
    ];

    fn all() -> &'static [Image] {
        &CATALOG.images
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn is_asked_for(&self, query: &Query) -> bool {
        let is = |name: &str, value: &str| {
            let mut wanted = query.all(name).peekable();
            wanted.peek().is_none() || wanted.any(|wanted| wanted == value)
        };
        is("name", self.name)
            && is("architecture", self.architecture)
            && is("type", "system")
            && is("status", "available")
    }

    fn json(&self, _world: &World) -> Text {
        self.json()
    }
}
