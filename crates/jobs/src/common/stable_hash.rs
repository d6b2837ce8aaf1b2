//! A hash that is safe to store: equal on every machine and with every compiler.

use std::fmt;
use xxhash_rust::xxh3::Xxh3;

/// XXH3 (64 bits, seed 0) over encoded fields. A number takes 8 bytes, little-endian. Bytes follow
/// their length, so that two adjacent fields never hash like two different ones.
#[derive(Clone, Default)]
pub struct StableHash(Xxh3);

impl fmt::Debug for StableHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StableHash({:#x})", self.finish())
    }
}

impl StableHash {
    /// Adds a number.
    pub fn number(&mut self, number: u64) -> &mut Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    /// Adds bytes, possibly none.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64).0.update(bytes);
        self
    }

    /// Returns the hash of all added fields.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_remain_the_same_and_fields_apart() {
        let hash = |fields: &[&str]| {
            let mut hash = StableHash::default();
            fields.iter().for_each(|field| _ = hash.bytes(field.as_bytes()));
            hash.finish()
        };
        // The hash of no bytes in the xxHash specification (XXH3_64bits).
        assert_eq!(hash(&[]), 0x2d06_8005_38d3_94c2);
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["a"]), hash(&["a", ""]));
    }
}
