//! Encodes values as the bytes of keys. The parent module shows the format.

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

use super::{END, KeyError, MARK, Tuple, WIDE_VARIANT, descend};

/// A key as bytes.
#[derive(Default)]
pub(super) struct Encoder {
    pub(super) bytes: Vec<u8>,
    /// The tuple structs and tuple variants that were written, with their names for messages, in
    /// the order in which they begin. A field that is left out is not counted, because serde does
    /// not report it.
    pub(super) tuples: Vec<(Tuple, &'static str)>,
    depth: u32,
}

pub(super) fn encode<K: Serialize + ?Sized>(key: &K) -> Result<Encoder, KeyError> {
    let mut encoder = Encoder::default();
    key.serialize(&mut encoder)?;
    Ok(encoder)
}

impl Encoder {
    fn push(&mut self, bytes: &[u8]) -> Result<(), KeyError> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Encodes a value one level deeper.
    fn inside<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
        descend(&mut self.depth)?;
        value.serialize(&mut *self)?;
        self.depth -= 1;
        Ok(())
    }

    /// Encodes a value on the same level.
    fn beside<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
        value.serialize(self)
    }

    fn push_variant(&mut self, number: u32) -> Result<(), KeyError> {
        match u8::try_from(number) {
            Ok(byte) if byte < WIDE_VARIANT => self.push(&[byte]),
            _ => {
                self.bytes.push(WIDE_VARIANT);
                self.push(&number.to_be_bytes())
            }
        }
    }
}

/// Unsigned numbers are written as they are, signed ones with the sign bit flipped.
macro_rules! integers {
    ($($name:ident $type:ty, $unsigned:ty, $flipped:expr;)*) => {$(
        fn $name(self, value: $type) -> Result<(), KeyError> {
            self.push(&(value as $unsigned ^ $flipped).to_be_bytes())
        }
    )*};
}

macro_rules! floats {
    ($($name:ident $type:ty, $sign:expr;)*) => {$(
        fn $name(self, value: $type) -> Result<(), KeyError> {
            let bits = value.to_bits();
            self.push(&(if bits & $sign == 0 { bits ^ $sign } else { !bits }).to_be_bytes())
        }
    )*};
}

impl Serializer for &mut Encoder {
    type Ok = ();
    type Error = KeyError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Impossible<(), KeyError>;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    integers! {
        serialize_bool bool, u8, 0;
        serialize_u8 u8, u8, 0;
        serialize_u16 u16, u16, 0;
        serialize_u32 u32, u32, 0;
        serialize_u64 u64, u64, 0;
        serialize_u128 u128, u128, 0;
        serialize_char char, u32, 0;
        serialize_i8 i8, u8, 1 << 7;
        serialize_i16 i16, u16, 1 << 15;
        serialize_i32 i32, u32, 1 << 31;
        serialize_i64 i64, u64, 1 << 63;
        serialize_i128 i128, u128, 1 << 127;
    }

    floats! {
        serialize_f32 f32, 1 << 31;
        serialize_f64 f64, 1 << 63;
    }

    fn serialize_str(self, value: &str) -> Result<(), KeyError> {
        self.serialize_bytes(value.as_bytes())
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), KeyError> {
        for byte in value {
            match *byte {
                byte @ (END | MARK) => self.bytes.extend([MARK, byte + 1]),
                byte => self.bytes.push(byte),
            }
        }
        self.push(&[END])
    }

    fn serialize_none(self) -> Result<(), KeyError> {
        self.push(&[END])
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), KeyError> {
        self.bytes.push(MARK);
        self.inside(value)
    }

    fn serialize_unit(self) -> Result<(), KeyError> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), KeyError> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        number: u32,
        _: &'static str,
    ) -> Result<(), KeyError> {
        self.push_variant(number)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), KeyError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        number: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), KeyError> {
        self.push_variant(number)?;
        self.inside(value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, name: &'static str, count: usize) -> Result<Self, KeyError> {
        self.tuples.push((Tuple { at: self.bytes.len(), name: Some(name), count }, name));
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        number: u32,
        name: &'static str,
        count: usize,
    ) -> Result<Self, KeyError> {
        self.push_variant(number)?;
        self.tuples.push((Tuple { at: self.bytes.len(), name: None, count }, name));
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, KeyError> {
        Err(KeyError::new("it holds a map (or a flattened struct), which has no order of its own"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, KeyError> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        number: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, KeyError> {
        self.push_variant(number)?;
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl ser::SerializeSeq for &mut Encoder {
    type Ok = ();
    type Error = KeyError;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
        self.bytes.push(MARK);
        self.inside(value)
    }

    fn end(self) -> Result<(), KeyError> {
        self.push(&[END])
    }
}

/// Parts are written one after another, without names. Parts of variants are one level deeper.
/// Parts of plain tuples and structs are not: these can contain themselves only through one of the
/// other types.
macro_rules! parts {
    ($($of:ident $name:ident $write:ident;)*) => {$(
        impl ser::$of for &mut Encoder {
            type Ok = ();
            type Error = KeyError;

            fn $name<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), KeyError> {
                self.$write(value)
            }

            fn end(self) -> Result<(), KeyError> {
                Ok(())
            }
        }
    )*};
}

macro_rules! fields {
    ($($of:ident $write:ident;)*) => {$(
        impl ser::$of for &mut Encoder {
            type Ok = ();
            type Error = KeyError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                _: &'static str,
                value: &T,
            ) -> Result<(), KeyError> {
                self.$write(value)
            }

            // The bytes would not show that the field is missing.
            fn skip_field(&mut self, name: &'static str) -> Result<(), KeyError> {
                Err(KeyError::new(format!("its field {name} is left out at times")))
            }

            fn end(self) -> Result<(), KeyError> {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeTuple serialize_element beside;
    SerializeTupleStruct serialize_field beside;
    SerializeTupleVariant serialize_field inside;
}

fields! {
    SerializeStruct beside;
    SerializeStructVariant inside;
}
