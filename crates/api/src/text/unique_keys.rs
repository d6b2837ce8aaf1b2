//! Objects of JSON without repeated keys.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Deserializes an object. A repeated key is an error: RFC 8259, section 4, leaves open which value counts, so a
/// caller and a log could mean different ones.
///
/// # Errors
/// A key occurs twice, or a value is invalid.
pub fn unique_keys<'de, D: Deserializer<'de>, V: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, V>, D::Error> {
    deserializer.deserialize_map(UniqueKeys(PhantomData))
}

struct UniqueKeys<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueKeys<V> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = BTreeMap::new();
        while let Some((key, value)) = map.next_entry::<String, V>()? {
            if found.contains_key(&key) {
                return Err(A::Error::custom(format_args!("`{key}` occurs twice")));
            }
            found.insert(key, value);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_source_of_a_change_occurs_once() {
        let text =
            r#"{"nodes": "n1", "for_seconds": 60, "sources": {"cpu": {"enabled": true}, SECOND}}"#;
        let with =
            |second: &str| serde_json::from_str::<crate::Set>(&text.replace("SECOND", second));
        assert_eq!(with(r#""load": {"enabled": false}"#).unwrap().sources.len(), 2);
        let error = with(r#""cpu": {"enabled": false}"#).unwrap_err().to_string();
        assert!(error.starts_with("`cpu` occurs twice"), "{error}");
    }
}
