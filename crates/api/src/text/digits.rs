//! Numbers above 53 bits as strings of digits, because JavaScript would round them.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(
    number: &Option<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match number {
        Some(number) => serializer.collect_str(number),
        None => serializer.serialize_none(),
    }
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    let digits = Option::<String>::deserialize(deserializer)?;
    let wrong = |_| serde::de::Error::custom("expected a text of digits such as \"7\"");
    digits.map(|digits| digits.parse().map_err(wrong)).transpose()
}

pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": ["string", "null"], "pattern": "^[0-9]{1,20}$"})
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Counted {
        #[serde(with = "super")]
        number: Option<u64>,
    }

    #[test]
    fn no_bit_is_lost() {
        for (number, text) in [
            (Some(u64::MAX), r#"{"number":"18446744073709551615"}"#),
            (Some(0), r#"{"number":"0"}"#),
            (None, r#"{"number":null}"#),
        ] {
            assert_eq!(serde_json::to_string(&Counted { number }).unwrap(), text);
            assert_eq!(serde_json::from_str::<Counted>(text).unwrap(), Counted { number });
        }
        assert!(serde_json::from_str::<Counted>(r#"{"number":"x"}"#).is_err());
    }
}
