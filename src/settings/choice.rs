//! Settings that are one word of a few.

pub use crate::text::one_of;

/// A type whose values have one word each; words are in the order that messages list them.
pub(super) trait Choice: Copy + 'static {
    const WORDS: &'static [(&'static str, Self)];
}

/// Which public addresses a node gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressFamily {
    #[default]
    Ipv4,
    Ipv6,
    Dualstack,
}

/// Whose provider IDs, labels and names are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Profile {
    #[default]
    CcmFromScratch,
    /// As hcloud-cloud-controller-manager writes them.
    Hcloud,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// How a client command writes its data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Output {
    #[default]
    Table,
    Wide,
    Json,
    Yaml,
}

impl Choice for AddressFamily {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("ipv4", AddressFamily::Ipv4),
        ("ipv6", AddressFamily::Ipv6),
        ("dualstack", AddressFamily::Dualstack),
    ];
}

impl Choice for Profile {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("ccm-from-scratch", Profile::CcmFromScratch),
        ("hcloud", Profile::Hcloud),
    ];
}

impl Choice for LogFormat {
    const WORDS: &'static [(&'static str, Self)] =
        &[("text", LogFormat::Text), ("json", LogFormat::Json)];
}

impl Choice for Output {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("table", Output::Table),
        ("wide", Output::Wide),
        ("json", Output::Json),
        ("yaml", Output::Yaml),
    ];
}

pub(super) fn choice<C: Choice>(text: &str) -> Result<C, String> {
    match C::WORDS.iter().find(|(word, _)| *word == text) {
        Some((_, value)) => Ok(*value),
        None => Err(format!(
            "use {}",
            one_of(&C::WORDS.iter().map(|w| w.0).collect::<Vec<_>>())
        )),
    }
}
