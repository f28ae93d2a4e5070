//! Declares which types are the first parts of keys.

use serde::Serialize;

/// The first parts of keys of type `K`. For a tuple, this is a shorter tuple of the same types.
///
/// For a struct, declare the types of its first fields, in the order of the struct's declaration:
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Visit {
///     user: u64,
///     page: String,
/// }
/// impl runstone_typed::KeyPrefix<Visit> for (u64,) {}
/// ```
pub trait KeyPrefix<K>: Serialize {}

macro_rules! prefixes {
    ($(($($first:ident)+) of ($($rest:ident)+);)*) => {$(
        impl<$($first: Serialize,)+ $($rest),+> KeyPrefix<($($first,)+ $($rest,)+)>
            for ($($first,)+)
        {
        }
    )*};
}

prefixes! {
    (A) of (B);
    (A) of (B C);
    (A B) of (C);
    (A) of (B C D);
    (A B) of (C D);
    (A B C) of (D);
    (A) of (B C D E);
    (A B) of (C D E);
    (A B C) of (D E);
    (A B C D) of (E);
    (A) of (B C D E F);
    (A B) of (C D E F);
    (A B C) of (D E F);
    (A B C D) of (E F);
    (A B C D E) of (F);
}
