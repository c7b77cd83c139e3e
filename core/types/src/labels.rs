//! Enums whose variants have labels.

/// Makes a fieldless enum from one row for each variant: its documentation, `Variant = "label",`.
///
/// The enum has `ALL`, `index`, `label`, and `meaning`: the variant's documentation.
#[macro_export]
macro_rules! labelled {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[doc = $doc:literal])* $variant:ident = $label:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis enum $name {
            $($(#[doc = $doc])* $variant),+
        }

        impl $name {
            /// Every variant, in the order of `index`.
            pub const ALL: [Self; [$($label),+].len()] = [$(Self::$variant),+];

            /// Returns the variant's index into tables.
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }

            /// Returns the variant's label in metrics, records and URLs.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label),+
                }
            }

            /// Returns what the variant means, for operators: its documentation.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),*).trim_ascii_start()),+
                }
            }
        }
    };
}
