//! JSON of answers: as `serde_json` writes it, byte by byte, with a shorter way for whole numbers.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};
use std::io::{Result, Write};

/// Below, a double that is whole has all its digits as an integer.
const WHOLE_END: f64 = 1e15;

/// The JSON of a value, as [`serde_json::to_vec`] returns it. Nearly all times of an answer, and most values, are
/// whole: their digits need no search for the shortest ones.
///
/// # Errors
/// The value has no JSON.
pub fn to_json(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::with_capacity(128);
    value.serialize(&mut Serializer::with_formatter(&mut out, WholeNumbers))?;
    Ok(out)
}

struct WholeNumbers;

impl Formatter for WholeNumbers {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "it saturates, and is compared again")]
        let whole = value as i64;
        // A negative zero has a sign, which an integer has not.
        let is_whole = (whole as f64).to_bits() == value.to_bits() && value.abs() < WHOLE_END;
        if !is_whole {
            return CompactFormatter.write_f64(writer, value);
        }
        self.write_i64(writer, whole)?;
        writer.write_all(b".0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_of_whole_numbers_are_as_before() {
        let ends = [0.0, -0.0, 1.0, -1.0, 999_999_999_999_999.0, 1e15, 1e16, -1e15, 0.5, 1e300];
        let odd = [f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, f64::MAX, 9_007_199_254_740_993.0];
        for value in ends.into_iter().chain(odd) {
            assert_eq!(to_json(&value).unwrap(), serde_json::to_vec(&value).unwrap(), "{value}");
        }
    }

    proptest! {
        #[test]
        fn answers_are_as_before(
            numbers in prop::collection::vec(prop_oneof![
                any::<f64>(),
                any::<i64>().prop_map(|whole| whole as f64),
                (-2e6..2e9_f64).prop_map(f64::trunc),
                any::<i32>().prop_map(|tenths| f64::from(tenths) / 10.0),
            ], 0..20),
            text in ".{0,9}",
        ) {
            let value = serde_json::json!({ "numbers": numbers, "text": text, "more": [null, true, 7] });
            prop_assert_eq!(to_json(&value).unwrap(), serde_json::to_vec(&value).unwrap());
            prop_assert_eq!(to_json(&numbers).unwrap(), serde_json::to_vec(&numbers).unwrap());
        }
    }
}
