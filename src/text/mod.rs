//! Parses values that people write on a command line, in a variable or in an annotation, and prepares texts for output.
//!
//! To prepare texts, this module limits how many names a message lists, escapes texts that come from outside of this
//! program, and quotes words in commands that a user copies. The module does not know for which setting a value is, and
//! uses no other module of this program.

pub mod duration;
pub mod selector;
mod shell;
mod shown;
mod values;

pub use shell::{is_plain, shell_command};
pub use shown::{
    all_nearest, cut, did_you_mean, first_of, fnv1a, lines, nearest, one_line, one_of,
};
pub use shown::{quoted, reported_once, slashed, some_of};
pub use values::{base_url, boolean, count, host_and_port, ip_range, is_label, is_subdomain};
pub use values::{is_label_key, is_label_value};
pub use values::{is_this_machine, leaves_unencrypted};

/// Defines an enum whose variants have names as text. The constant `ALL` lists all variants in their order.
macro_rules! named {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $variant:ident = $name:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type {
            $($(#[$doc])* $variant,)*
        }

        impl $type {
            pub const ALL: &'static [$type] = &[$($type::$variant),*];

            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }
        }
    };
}
pub(crate) use named;
