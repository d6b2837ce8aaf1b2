//! Values of Slurm's JSON. Shapes differ by version: a time limit is `60`, `null`, or `{"set": true,
//! "infinite": false, "number": 60}`; a state is `"RUNNING"` or `["RUNNING"]`.
//! Each type here accepts every shape and treats unusable ones as missing. A changed field is then missing,
//! and the job is still read.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Start of the range of `NO_VAL` and `INFINITE` of `slurm.h`: 32-bit numbers from here are not numbers.
const NO_VALUE_MIN: i64 = 0xffff_fffe;

/// A whole number, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Number(pub(super) Option<i64>);

impl Number {
    /// A number above 0: an ID, a time.
    pub(super) fn positive(self) -> Option<i64> {
        self.below_no_value().filter(|number| *number > 0)
    }

    /// A number from 0 up to Slurm's special values.
    pub(super) fn below_no_value(self) -> Option<i64> {
        self.0.filter(|number| (0..NO_VALUE_MIN).contains(number))
    }

    /// The same as 32 bits.
    pub(super) fn small(self) -> Option<u32> {
        self.below_no_value().and_then(|number| number.try_into().ok())
    }
}

/// A text; empty if missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Text(pub(super) Box<str>);

impl Text {
    /// The text, if not empty.
    pub(super) fn some(&self) -> Option<Box<str>> {
        Some(self.0.trim()).filter(|text| !text.is_empty()).map(Into::into)
    }
}

/// One text or several.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TextList(pub(super) Vec<Box<str>>);

/// The objects of an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct List<T>(pub(super) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// An object; all fields missing if it is missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object<T>(pub(super) T);

/// The shapes that a type ignores.
macro_rules! ignored {
    ($($name:ident: $type:ty),*) => {
        $(fn $name<E>(self, _: $type) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        })*
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a value")
        }
    };
}

pub(super) use ignored;

/// Skips the rest of an array.
pub(super) fn skip_all<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn skip_fields<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wrapped {
    set: Option<bool>,
    infinite: Option<bool>,
    number: Option<f64>,
}

/// The number without its fraction, if 64 bits hold it exactly.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "below 2^53, where doubles are exact")]
    (number.abs() <= EXACT).then_some(number as i64)
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = Number;

    ignored! { visit_bool: bool }

    fn visit_i64<E>(self, number: i64) -> Result<Number, E> {
        Ok(Number(Some(number)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Number, E> {
        Ok(Number(number.try_into().ok()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Number, E> {
        Ok(Number(whole(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Number, E> {
        Ok(Number(text.trim().parse().ok()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Number, A::Error> {
        skip_all(seq)?;
        Ok(Number(None))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Number, A::Error> {
        let wrapped = Wrapped::deserialize(MapAccessDeserializer::new(map))?;
        let is_one = wrapped.set != Some(false) && wrapped.infinite != Some(true);
        Ok(Number(wrapped.number.filter(|_| is_one).and_then(whole)))
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    ignored! { visit_bool: bool, visit_f64: f64 }

    fn visit_i64<E>(self, number: i64) -> Result<Text, E> {
        Ok(Text(number.to_string().into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Text, E> {
        Ok(Text(number.to_string().into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Text, A::Error> {
        skip_all(seq)?;
        Ok(Text::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text, A::Error> {
        skip_fields(map)?;
        Ok(Text::default())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = TextList;

    ignored! { visit_bool: bool, visit_f64: f64, visit_i64: i64, visit_u64: u64 }

    fn visit_str<E>(self, text: &str) -> Result<TextList, E> {
        Ok(TextList(vec![text.into()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TextList, A::Error> {
        let mut words = Vec::new();
        while let Some(Text(word)) = seq.next_element()? {
            words.push(word);
        }
        Ok(TextList(words))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TextList, A::Error> {
        skip_fields(map)?;
        Ok(TextList::default())
    }
}

impl<'de> Deserialize<'de> for TextList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordsVisitor)
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    ignored! { visit_bool: bool, visit_f64: f64, visit_i64: i64, visit_u64: u64, visit_str: &str }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(Object(one)) = seq.next_element()? {
            all.push(one);
        }
        Ok(List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<List<T>, A::Error> {
        skip_fields(map)?;
        Ok(List::default())
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    ignored! { visit_bool: bool, visit_f64: f64, visit_i64: i64, visit_u64: u64, visit_str: &str }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Object<T>, A::Error> {
        skip_all(seq)?;
        Ok(Object::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ObjectVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct All {
        number: Number,
        text: Text,
        words: TextList,
        list: List<Inner>,
        object: Object<Inner>,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default)]
    struct Inner {
        number: Number,
    }

    #[test]
    fn every_type_takes_every_shape() {
        for value in [
            "null",
            "true",
            "1",
            "-1",
            "1.5",
            "1e300",
            "18446744073709551615",
            "\"x\"",
            "[]",
            "[null]",
            "[1, \"x\", {}, []]",
            "{}",
            "{\"number\": 1}",
            "{\"a\": {\"b\": [1]}}",
        ] {
            let text = format!(
                "{{\"number\": {value}, \"text\": {value}, \"words\": {value}, \"list\": {value}, \
                 \"object\": {value}, \"other\": {value}}}"
            );
            serde_json::from_str::<All>(&text).unwrap();
        }
    }

    #[test]
    fn numbers() {
        for (text, number) in [
            ("7", Some(7)),
            ("\"7\"", Some(7)),
            ("7.0", Some(7)),
            ("null", None),
            ("{\"set\": true, \"infinite\": false, \"number\": 7}", Some(7)),
            ("{\"set\": false, \"infinite\": false, \"number\": 0}", None),
            ("{\"set\": true, \"infinite\": true, \"number\": 0}", None),
            ("{\"number\": 7}", Some(7)),
        ] {
            assert_eq!(serde_json::from_str::<Number>(text).unwrap().0, number, "{text}");
        }
        assert_eq!(Number(Some(0xffff_fffe)).small(), None);
        assert_eq!(Number(Some(-1)).small(), None);
    }
}
