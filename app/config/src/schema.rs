//! The macro that makes the table of keys ([`super::keys`]) into types and functions.

/// Defines [`Sections`](super::keys::Sections), a struct with a field for each section, which has a
/// typed field for each key, and [`SECTIONS`](super::keys::SECTIONS), the sections' documentation.
///
/// A key is written as
///
/// ```text
/// /// Documentation, which `config init` writes, too.
/// name: Kind(arguments), flags = default;
/// ```
///
/// `Kind` is one of those of [`super::key::Kind`]; flags are `reloadable`, `per_listener` or
/// `per_listener_deprecated`, `common` and `constant`.
macro_rules! settings {
    ($(
        $(#[doc = $section_help:literal])+
        [$section:literal] $section_field:ident: $section_type:ident {
            $(
                $(#[doc = $help:literal])*
                $key:ident: $kind:ident $(($($argument:tt)+))? $(, $flag:ident)* = $default:expr;
            )+
        }
    )+) => {
        /// All sections, in the order in which `config init` writes them.
        pub(crate) const SECTIONS: &[Section] = &[$(
            Section { name: $section, help: &[$($section_help),+] },
        )+];

        #[derive(Clone, Debug, Default)]
        pub(crate) struct Sections {
            $(pub(crate) $section_field: $section_type,)+
        }

        $(
            #[derive(Clone, Debug)]
            pub(crate) struct $section_type {
                $(
                    pub(crate) $key: Setting<value_type!($kind $(($($argument)+))?)>,
                )+
            }

            impl Default for $section_type {
                fn default() -> Self {
                    Self { $($key: {
                        static KEY: Key = Key::new(
                            concat!($section, ".", stringify!($key)),
                            kind!($kind $(($($argument)+))?),
                            &[$($help),*],
                        )
                        $(.$flag())*;
                        Setting::by_default(&KEY, default_value!($kind, $default))
                    },)+ }
                }
            }
        )+

        impl Sections {
            /// Returns all settings and constants, in the order of the table.
            pub(super) fn all(&self) -> Vec<&dyn AnySetting> {
                vec![$($(&self.$section_field.$key,)+)+]
            }

            /// Returns the settings that users can change, in the order of the table.
            pub(super) fn settable(&self) -> impl Iterator<Item = &dyn AnySetting> {
                self.all().into_iter().filter(|setting| !setting.key().constant)
            }

            fn all_mut(&mut self) -> Vec<&mut dyn AnySetting> {
                vec![$($(&mut self.$section_field.$key,)+)+]
            }

            /// Copies those settings of `other` for which `is_wanted` returns true.
            pub(super) fn copy_from(
                &mut self,
                other: &Self,
                is_wanted: impl Fn(&dyn AnySetting) -> bool,
            ) {
                $($(
                    if is_wanted(&other.$section_field.$key) {
                        self.$section_field.$key.clone_from(&other.$section_field.$key);
                    }
                )+)+
            }

            pub(super) fn changed_keys(&self, other: &Self) -> Vec<&'static Key> {
                let mut changed = Vec::new();
                $($(
                    if self.$section_field.$key.value != other.$section_field.$key.value {
                        changed.push(self.$section_field.$key.key);
                    }
                )+)+
                changed
            }
        }
    };
}

macro_rules! value_type {
    (Int($low:expr, $high:expr)) => { u32 };
    (AutoInt($low:expr, $high:expr)) => { Option<u32> };
    (Flag) => { bool };
    (Text) => { String };
    (Choice($choice:ty)) => { $choice };
    (List) => { Vec<String> };
    (Certificates) => { Vec<CertificateFiles> };
}

macro_rules! kind {
    (Int($low:expr, $high:expr)) => {
        Kind::Int($low, $high)
    };
    (AutoInt($low:expr, $high:expr)) => {
        Kind::AutoInt($low, $high)
    };
    (Choice($choice:ty)) => {
        Kind::Choice(<$choice as Choice>::WORDS)
    };
    ($kind:ident) => {
        Kind::$kind
    };
}

/// The default of a key, from how the table writes it.
macro_rules! default_value {
    (Text, $default:expr) => {
        String::from($default)
    };
    (List, $default:expr) => {
        list(&$default)
    };
    (Certificates, $default:expr) => {
        Vec::from($default)
    };
    ($kind:ident, $default:expr) => {
        $default
    };
}

pub(super) use {default_value, kind, settings, value_type};
