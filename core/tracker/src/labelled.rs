//! Enums whose variants have labels.

/// Makes a fieldless enum from one row for each variant: its documentation, `Variant = "label",`.
///
/// The enum has `ALL`, `index`, `label`, and `meaning`: the variant's documentation.
macro_rules! labelled {
    (
        $(#[doc = $enum_doc:literal])*
        $vis:vis enum $name:ident {
            $($(#[doc = $doc:literal])* $variant:ident = $label:literal,)+
        }
    ) => {
        $(#[doc = $enum_doc])*
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

            /// Returns the variant's label in metrics and records.
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

pub(crate) use labelled;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use crate::counters::{DropReason, Protocol};
    use crate::{BanReason, RequestKind};

    #[test]
    fn labels_are_distinct_and_meanings_are_the_documentation() {
        fn check(labels: &[&str]) {
            assert_eq!(labels.iter().collect::<BTreeSet<_>>().len(), labels.len());
        }
        let meaning =
            "UDP: BEP 41 options that run past the packet. The announce is served all the same.";
        assert_eq!(DropReason::MalformedOptions.meaning(), meaning);
        check(&DropReason::ALL.map(DropReason::label));
        check(&RequestKind::ALL.map(RequestKind::label));
        check(&BanReason::ALL.map(BanReason::label));
        check(&Protocol::ALL.map(Protocol::label));
    }
}
