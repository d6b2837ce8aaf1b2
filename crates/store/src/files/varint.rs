//! Numbers and texts as bytes: LEB128 varints, zigzag for signed ones, lengths before texts.

/// Appends a number: seven bits a byte, lowest first, the eighth bit set on all but the last.
pub(crate) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Appends a signed number: 0, -1, 1, -2 … as 0, 1, 2, 3 …
pub(crate) fn put_signed(out: &mut Vec<u8>, value: i64) {
    put(out, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends a text after its length in bytes.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Decodes what the functions above encode. Every method returns `None` for malformed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn signed(&mut self) -> Option<i64> {
        let value = self.number()?;
        Some((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    pub(crate) fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    pub(crate) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.number()?).ok()
    }

    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let length = self.count()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trip(number: u64, signed: i64, text in ".{0,20}") {
            let mut out = Vec::new();
            put(&mut out, number);
            put_signed(&mut out, signed);
            put_text(&mut out, &text);
            let mut bytes = Bytes(&out);
            prop_assert_eq!(bytes.number(), Some(number));
            prop_assert_eq!(bytes.signed(), Some(signed));
            prop_assert_eq!(bytes.text(), Some(&*text));
            prop_assert!(bytes.0.is_empty());
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut bytes = Bytes(&bytes);
            while bytes.number().is_some() && bytes.text().is_some() && bytes.signed().is_some() {}
            bytes.small();
            bytes.count();
            bytes.fixed::<4>();
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_none() {
        assert_eq!(Bytes(&[0xff; 9]).number(), None);
        let mut most = vec![0xff; 9];
        most.push(1);
        assert_eq!(Bytes(&most).number(), Some(u64::MAX));
        most[9] = 2;
        assert_eq!(Bytes(&most).number(), None);
    }
}
