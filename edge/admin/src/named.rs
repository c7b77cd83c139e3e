//! Enums whose variants have names in the API. Those of [`types::labelled!`] are in no JSON, and their meaning is their
//! documentation.

/// Makes a fieldless enum from one row for each variant: `Variant = "label", "meaning for operators";`. In JSON, a variant
/// is its label. The meaning is its documentation, too.
macro_rules! named {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $label:tt, $meaning:tt;)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
        $vis enum $name {
            $(#[doc = $meaning] $(#[$variant_meta])* #[serde(rename = $label)] $variant,)+
        }

        impl $name {
            /// Returns every variant, in the order of the rows.
            pub(crate) fn all() -> impl Iterator<Item = Self> {
                [$(Self::$variant),+].into_iter()
            }

            /// Returns its name in the API and in the records.
            pub(crate) fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label),+
                }
            }

            /// Returns what it means, for operators.
            pub(crate) fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning),+
                }
            }
        }
    };
}

pub(crate) use named;
