//! Setters of options. A struct whose fields are read by name has a method of the same name for
//! each field. The method takes the struct by value and returns it. It has the doc comment of its
//! field, with the default. Help and flags show the first sentence.

/// One setter, for the field of `self` at the path in brackets. Its argument depends on the type:
/// the value or `None` for an option, and a float for a decimal.
macro_rules! setter {
    // These fields have their own setter, or none.
    ([$($at:ident)*] $(#[doc = $doc:expr])* policy: $($of:tt)*) => {};
    ([$($at:ident)*] $(#[doc = $doc:expr])* shape: $($of:tt)*) => {};
    ([$($at:ident)*] $(#[doc = $doc:expr])* refused: $($of:tt)*) => {};
    // This converts an `Arc` of a program's own type to an `Arc` of the trait.
    ([$($at:ident)*] $(#[doc = $doc:expr])* listener: Option<$of:ty>) => {
        setter!(@ [$($at)*] $(#[doc = $doc])* listener: $of, Some(listener));
    };
    ([$($at:ident)*] $(#[doc = $doc:expr])* $name:ident: Option<$of:ty>) => {
        setter!(@ [$($at)*] $(#[doc = $doc])* $name: impl Into<Option<$of>>, $name.into());
    };
    ([$($at:ident)*] $(#[doc = $doc:expr])* $name:ident: String) => {
        setter!(@ [$($at)*] $(#[doc = $doc])* $name: impl Into<String>, $name.into());
    };
    ([$($at:ident)*] $(#[doc = $doc:expr])* $name:ident: Tenths) => {
        setter!(@ [$($at)*] $(#[doc = $doc])* $name: impl Into<Tenths>, $name.into());
    };
    ([$($at:ident)*] $(#[doc = $doc:expr])* $name:ident: Thousandths) => {
        setter!(@ [$($at)*] $(#[doc = $doc])* $name: impl Into<Thousandths>, $name.into());
    };
    ([$($at:ident)*] $(#[doc = $doc:expr])* $name:ident: $of:ty) => {
        setter!(@ [$($at)*] $(#[doc = $doc])* $name: $of, $name);
    };
    (@ [] $(#[doc = $doc:expr])* $name:ident: $of:ty, $to:expr) => {
        $(#[doc = $doc])*
        #[must_use]
        pub fn $name(mut self, $name: $of) -> Self {
            self.$name = $to;
            self
        }
    };
    // The type is `must_use` itself.
    (@ [$at:ident] $(#[doc = $doc:expr])* $name:ident: $of:ty, $to:expr) => {
        $(#[doc = $doc])*
        pub fn $name(mut self, $name: $of) -> Self {
            self.$at.$name = $to;
            self
        }
    };
}

/// A struct of options with its defaults, what help says about it, and its setters. Words after
/// `=>` state a default that the Rust expression does not show. A field without a doc comment is
/// not an option for users. `and macro! of field` also makes a macro that calls `each_setter!` for
/// every field, so that a struct that contains the options in `field` has the same setters.
macro_rules! with_setters {
    (
        $(#[$meta:meta])*
        pub struct $type:ident {$(
            $(#[doc = $doc:expr])*
            $(#[serde($($serde:tt)*)])?
            $vis:vis $name:ident: $of:ident $(<$in:ty>)? = $default:expr $(=> $words:literal)?,
        )*}
        $(and $also:ident! of $at:ident)?
    ) => {
        $(#[$meta])*
        pub struct $type {$(
            $(#[doc = $doc])*
            #[doc = default_doc!($default $(, $words)?)]
            $(#[serde($($serde)*)])?
            $vis $name: $of $(<$in>)?,
        )*}

        impl Default for $type {
            fn default() -> Self {
                $type { $($name: $default,)* }
            }
        }

        impl $type {
            /// What each field means, in the order of the fields, for help.
            #[doc(hidden)]
            pub const FIELDS: &'static [OptionDoc] = &[$(OptionDoc {
                name: stringify!($name),
                lines: &[$($doc),*],
                defaults: &[stringify!($default) $(, $words)?],
            }),*];

            $(setter!(
                [] $(#[doc = $doc])* #[doc = default_doc!($default $(, $words)?)]
                $name: $of $(<$in>)?
            );)*
        }

        with_setters!(@ $($also $at)? $([
            $(#[doc = $doc])* #[doc = default_doc!($default $(, $words)?)] $name: $of $(<$in>)?
        ])*);
    };
    (@ $([$($field:tt)*])*) => {};
    (@ $also:ident $at:ident $([$($field:tt)*])*) => {
        macro_rules! $also {
            () => { $(each_setter!([$at] $($field)*);)* };
        }
        pub(crate) use $also;
    };
}

/// A paragraph of a doc comment that states a default.
macro_rules! default_doc {
    ($default:expr $(, $words:literal)?) => {
        concat!("\n\nDefault: `", stringify!($default), "`" $(, " (", $words, ")")?, ".")
    };
}

pub(crate) use {default_doc, setter, with_setters};
