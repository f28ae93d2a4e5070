//! Decodes the bytes of keys to values. The parent module shows the format.

use serde::de::{self, DeserializeOwned, DeserializeSeed, IntoDeserializer, Visitor};

use super::{END, KeyError, MARK, Tuple, WIDE_VARIANT, descend};

pub(super) fn decode<K: DeserializeOwned>(bytes: &[u8]) -> Result<K, KeyError> {
    let mut decoder = Decoder::new(bytes);
    let outcome = K::deserialize(&mut decoder).and_then(|key| match decoder.rest.len() {
        0 => Ok(key),
        more => Err(KeyError::new(format!("more follows behind it (bytes: {more})"))),
    });
    let at = bytes.len() - decoder.rest.len();
    outcome.map_err(|error| KeyError { at, ..error })
}

/// The tuple structs and tuple variants in these bytes, with the numbers of fields that the type
/// declares, in the order in which they begin. The list ends where the bytes do not fit the type.
pub(super) fn declared<K: DeserializeOwned>(bytes: &[u8]) -> Vec<Tuple> {
    let mut decoder = Decoder::new(bytes);
    let _ = K::deserialize(&mut decoder);
    decoder.tuples
}

struct Decoder<'b> {
    rest: &'b [u8],
    /// The length of the whole key.
    len: usize,
    depth: u32,
    /// See [`declared`].
    tuples: Vec<Tuple>,
}

impl<'b> Decoder<'b> {
    fn new(bytes: &'b [u8]) -> Decoder<'b> {
        Decoder { rest: bytes, len: bytes.len(), depth: 0, tuples: Vec::new() }
    }

    fn note_tuple(&mut self, name: Option<&'static str>, count: usize) {
        self.tuples.push(Tuple { at: self.len - self.rest.len(), name, count });
    }

    /// Decodes a part one level deeper.
    fn inside<T>(
        &mut self,
        decode: impl FnOnce(&mut Decoder<'b>) -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        descend(&mut self.depth)?;
        let value = decode(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], KeyError> {
        match self.rest.split_first_chunk() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(*bytes)
            }
            None => {
                let left = self.rest.len();
                Err(KeyError::new(format!("it ends too early (wanted: {N}, left: {left})")))
            }
        }
    }

    fn take_byte(&mut self) -> Result<u8, KeyError> {
        self.take().map(|[byte]| byte)
    }

    /// Whether something follows: a value, or another element.
    fn take_mark(&mut self) -> Result<bool, KeyError> {
        match self.take_byte()? {
            END => Ok(false),
            MARK => Ok(true),
            byte => Err(KeyError::new(format!("byte {byte:#04x} stands where 0 or 1 must be"))),
        }
    }

    fn take_bytes(&mut self) -> Result<Vec<u8>, KeyError> {
        let mut bytes = Vec::new();
        loop {
            bytes.push(match self.take_byte()? {
                END => return Ok(bytes),
                MARK => match self.take_byte()? {
                    byte @ 1..=2 => byte - 1,
                    byte => return Err(KeyError::new(format!("byte {byte:#04x} ends no escape"))),
                },
                byte => byte,
            });
        }
    }

    fn take_variant(&mut self) -> Result<u32, KeyError> {
        match self.take_byte()? {
            WIDE_VARIANT => self.take().map(u32::from_be_bytes),
            byte => Ok(byte.into()),
        }
    }
}

macro_rules! integers {
    ($($name:ident $visit:ident $type:ty, $unsigned:ty, $flipped:expr;)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
            visitor.$visit((<$unsigned>::from_be_bytes(self.take()?) ^ $flipped) as $type)
        }
    )*};
}

macro_rules! floats {
    ($($name:ident $visit:ident $type:ty, $unsigned:ty, $sign:expr;)*) => {$(
        fn $name<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
            let bits = <$unsigned>::from_be_bytes(self.take()?);
            let bits = if bits & $sign == 0 { !bits } else { bits ^ $sign };
            visitor.$visit(<$type>::from_bits(bits))
        }
    )*};
}

/// Types that cannot be decoded, because the bytes of a key do not describe them.
macro_rules! refused {
    ($($name:ident, $what:literal;)*) => {$(
        fn $name<V: Visitor<'de>>(self, _: V) -> Result<V::Value, KeyError> {
            Err(KeyError::new(concat!("keys hold no ", $what)))
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Decoder<'_> {
    type Error = KeyError;

    integers! {
        deserialize_u8 visit_u8 u8, u8, 0;
        deserialize_u16 visit_u16 u16, u16, 0;
        deserialize_u32 visit_u32 u32, u32, 0;
        deserialize_u64 visit_u64 u64, u64, 0;
        deserialize_u128 visit_u128 u128, u128, 0;
        deserialize_i8 visit_i8 i8, u8, 1 << 7;
        deserialize_i16 visit_i16 i16, u16, 1 << 15;
        deserialize_i32 visit_i32 i32, u32, 1 << 31;
        deserialize_i64 visit_i64 i64, u64, 1 << 63;
        deserialize_i128 visit_i128 i128, u128, 1 << 127;
    }

    floats! {
        deserialize_f32 visit_f32 f32, u32, 1 << 31;
        deserialize_f64 visit_f64 f64, u64, 1 << 63;
    }

    refused! {
        deserialize_any, "types (is it an untagged or internally tagged enum?)";
        deserialize_ignored_any, "parts that can be skipped";
        deserialize_identifier, "names";
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_bool(self.take_mark()?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        let number = u32::from_be_bytes(self.take()?);
        match char::from_u32(number) {
            Some(found) => visitor.visit_char(found),
            None => Err(KeyError::new(format!("{number:#x} is not the number of a char"))),
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match String::from_utf8(self.take_bytes()?) {
            Ok(text) => visitor.visit_string(text),
            Err(_) => Err(KeyError::new("the string before it is not UTF-8")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_byte_buf(self.take_bytes()?)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match self.take_mark()? {
            true => self.inside(|decoder| visitor.visit_some(decoder)),
            false => visitor.visit_none(),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_seq(Elements(self))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_seq(Parts { decoder: self, left: count, are_inside: false })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.note_tuple(Some(name), count);
        self.deserialize_tuple(count, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, _: V) -> Result<V::Value, KeyError> {
        Err(KeyError::new("keys hold no maps"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// The elements of a sequence. Its length is not known, so no memory is allocated for it in
/// advance.
struct Elements<'d, 'b>(&'d mut Decoder<'b>);

impl<'de> de::SeqAccess<'de> for Elements<'_, '_> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, KeyError> {
        match self.0.take_mark()? {
            true => self.0.inside(|decoder| seed.deserialize(decoder)).map(Some),
            false => Ok(None),
        }
    }
}

/// The parts of a tuple or struct.
struct Parts<'d, 'b> {
    decoder: &'d mut Decoder<'b>,
    left: usize,
    /// Whether the parts are inside a variant, and so one level deeper, as in the encoder.
    are_inside: bool,
}

impl<'de> de::SeqAccess<'de> for Parts<'_, '_> {
    type Error = KeyError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, KeyError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match self.are_inside {
            true => self.decoder.inside(|decoder| seed.deserialize(decoder)).map(Some),
            false => seed.deserialize(&mut *self.decoder).map(Some),
        }
    }
}

impl<'de> de::EnumAccess<'de> for &mut Decoder<'_> {
    type Error = KeyError;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), KeyError> {
        let number = self.take_variant()?;
        let variant = seed.deserialize(IntoDeserializer::<KeyError>::into_deserializer(number))?;
        Ok((variant, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Decoder<'_> {
    type Error = KeyError;

    fn unit_variant(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, KeyError> {
        self.inside(|decoder| seed.deserialize(decoder))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        self.note_tuple(None, count);
        visitor.visit_seq(Parts { decoder: self, left: count, are_inside: true })
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        visitor.visit_seq(Parts { decoder: self, left: fields.len(), are_inside: true })
    }
}
