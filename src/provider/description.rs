//! Descriptions of writes in words. A plan announces a write, and a report says later that the write was made. Both
//! texts are made from the same description.

use serde_json::Value;
use std::fmt;

/// A planned write to a node, to a Service, or in the cloud.
pub trait Write {
    /// Returns the kind of the write as one word for metrics, e.g. `set_addresses`.
    fn word(&self) -> &'static str;

    /// Returns the write in words, for messages.
    fn description(&self) -> Description;

    /// Returns the write as JSON for programs, such as `{"change": "add_target", …}`.
    fn json(&self) -> Value;
}

/// The description of a write. It has one part for each thing that the write changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description(Vec<DescriptionPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct DescriptionPart {
    verb: WriteVerb,
    /// The thing that this part of the write changes, e.g. `target worker-1`.
    noun: String,
    /// The text that follows `noun` in messages. It begins with a space or a comma, e.g. `, by private IP` or ` at
    /// 10.0.0.7`. For the verb [`WriteVerb::CHANGE`], it is only the old and the new value, e.g. `tcp → https`.
    detail: String,
}

/// The verb for a write. The fields are the symbol in a plan, e.g. `+`, the infinitive, and the past participle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteVerb(char, &'static str, &'static str);

impl WriteVerb {
    pub const ADD: WriteVerb = WriteVerb('+', "add", "added");
    pub const ATTACH: WriteVerb = WriteVerb('+', "attach", "attached");
    pub const CREATE: WriteVerb = WriteVerb('+', "create", "created");
    pub const ORDER: WriteVerb = WriteVerb('+', "order", "ordered");
    pub const SET: WriteVerb = WriteVerb('+', "set", "set");
    /// The verb for a write that changes a value. The text after the noun is then the old and the new value, e.g. `tcp
    /// → https`.
    pub const CHANGE: WriteVerb = WriteVerb('~', "change", "changed");
    pub const TAKE_OVER: WriteVerb = WriteVerb('~', "take over", "taken over");
    pub const UPLOAD: WriteVerb = WriteVerb('+', "upload", "uploaded");
    pub const DELETE: WriteVerb = WriteVerb('-', "delete", "deleted");
    pub const DETACH: WriteVerb = WriteVerb('-', "detach", "detached");
    pub const EMPTY: WriteVerb = WriteVerb('-', "empty", "emptied");
    pub const LEAVE: WriteVerb = WriteVerb('-', "leave", "not used by the Service any more");
    pub const RELEASE: WriteVerb = WriteVerb('-', "release", "released");
    pub const REMOVE: WriteVerb = WriteVerb('-', "remove", "removed");
}

impl Description {
    pub fn new(verb: WriteVerb, noun: impl Into<String>, detail: impl Into<String>) -> Description {
        Description(vec![DescriptionPart { verb, noun: noun.into(), detail: detail.into() }])
    }

    /// Describes a write that changes the value of a field from `have` to `want`. `None` means that the field has no
    /// value.
    pub fn value(name: impl Into<String>, have: Option<&str>, want: Option<&str>) -> Description {
        match (have, want) {
            (None, Some(want)) => Description::new(WriteVerb::SET, name, format!(" to {want}")),
            (Some(have), None) => Description::new(WriteVerb::REMOVE, name, format!(" ({have})")),
            (have, want) => {
                let values = format!("{} → {}", have.unwrap_or("-"), want.unwrap_or("-"));
                Description::new(WriteVerb::CHANGE, name, values)
            }
        }
    }

    /// Adds a text to the end of the last part of this description, e.g. the reason for the write.
    pub fn because(mut self, text: &str) -> Description {
        if let Some(part) = self.0.last_mut() {
            part.detail.push_str(text);
        }
        self
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a line for each part of the write, as a plan shows it before the write: the symbol, and a text such as
    /// `add target worker-1`. A line about a changed value has no verb, e.g. `port 443 protocol: tcp → https`.
    pub fn announced(&self) -> impl Iterator<Item = (char, String)> {
        self.0.iter().map(|part| (part.verb.0, part.planned()))
    }

    /// Returns a line for each part of the write, as a report shows it after the write, e.g. `target worker-1: added`.
    pub fn done(&self) -> Vec<String> {
        self.0.iter().map(DescriptionPart::done).collect()
    }

    /// Returns the text for a write that failed, e.g. `could not add target worker-1`.
    pub fn failed(&self) -> String {
        format!("could not {}", self.requested())
    }

    /// Returns the write in the infinitive and without details, e.g. `add target worker-1`.
    pub fn requested(&self) -> String {
        let infinitive = |part: &DescriptionPart| format!("{} {}", part.verb.1, part.noun);
        let parts: Vec<String> = self.0.iter().map(infinitive).collect();
        parts.join(", ")
    }
}

/// Prints the write as a plan shows it, but in one line and without symbols such as `+`.
impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(DescriptionPart::planned).collect();
        f.write_str(&parts.join(", "))
    }
}

/// Joins several descriptions into one, which has the parts of all of them in the same order.
impl FromIterator<Description> for Description {
    fn from_iter<I: IntoIterator<Item = Description>>(all: I) -> Description {
        Description(all.into_iter().flat_map(|description| description.0).collect())
    }
}

impl DescriptionPart {
    fn planned(&self) -> String {
        let DescriptionPart { verb, noun, detail } = self;
        match *verb {
            WriteVerb::CHANGE => format!("{noun}: {detail}"),
            WriteVerb(_, infinitive, _) => format!("{infinitive} {noun}{detail}"),
        }
    }

    fn done(&self) -> String {
        let DescriptionPart { verb, noun, detail } = self;
        let between = if *verb == WriteVerb::CHANGE { ", " } else { "" };
        format!("{noun}: {}{between}{detail}", verb.2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_announces_and_a_report_says_what_was_done() {
        for (description, mark, planned, done, failed) in [
            (
                Description::new(WriteVerb::CREATE, "load balancer web", ", lb11 in fsn1"),
                '+',
                "create load balancer web, lb11 in fsn1",
                "load balancer web: created, lb11 in fsn1",
                "could not create load balancer web",
            ),
            (
                Description::new(WriteVerb::ATTACH, "private Network 7", " at 10.0.0.9"),
                '+',
                "attach private Network 7 at 10.0.0.9",
                "private Network 7: attached at 10.0.0.9",
                "could not attach private Network 7",
            ),
            (
                Description::new(WriteVerb::REMOVE, "target worker-2", ""),
                '-',
                "remove target worker-2",
                "target worker-2: removed",
                "could not remove target worker-2",
            ),
            (
                Description::value("port 443 protocol", Some("tcp"), Some("https")),
                '~',
                "port 443 protocol: tcp → https",
                "port 443 protocol: changed, tcp → https",
                "could not change port 443 protocol",
            ),
            (
                Description::value("label a", None, Some("b")),
                '+',
                "set label a to b",
                "label a: set to b",
                "could not set label a",
            ),
            (
                Description::value("address ExternalIP", Some("192.0.2.1"), None),
                '-',
                "remove address ExternalIP (192.0.2.1)",
                "address ExternalIP: removed (192.0.2.1)",
                "could not remove address ExternalIP",
            ),
        ] {
            let announced: Vec<(char, String)> = description.announced().collect();
            assert_eq!(announced, [(mark, planned.to_owned())]);
            assert_eq!(description.done(), [done]);
            assert_eq!(description.failed(), failed);
        }
    }
}
