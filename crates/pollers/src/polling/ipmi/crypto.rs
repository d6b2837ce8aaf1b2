//! The algorithms of the cipher suites 3 and 17 (section 22.15.2; algorithms of sections 13.28 to 13.29).

use crate::protocols::IpmiCipher;
use aes::Aes128;
use cbc::cipher::block_padding::NoPadding;
use cbc::cipher::{BlockModeDecrypt as _, BlockModeEncrypt as _, KeyIvInit as _};
use ring::hmac;

/// Bytes of an AES block, and of its initialisation vector.
pub(super) const BLOCK: usize = 16;
/// Bytes of the constants from which the keys of a session are derived (section 13.32).
const CONSTANT_BYTES: usize = 20;

/// The keyed hash of a cipher suite.
pub(super) fn keyed_hash(cipher: IpmiCipher, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let algorithm = match cipher {
        IpmiCipher::Suite3 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        IpmiCipher::Suite17 => hmac::HMAC_SHA256,
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    parts.iter().for_each(|part| context.update(part));
    context.sign().as_ref().to_vec()
}

/// Bytes of the integrity check of messages and of RAKP message 4.
pub(super) const fn check_bytes(cipher: IpmiCipher) -> usize {
    match cipher {
        IpmiCipher::Suite3 => 12,
        IpmiCipher::Suite17 => 16,
    }
}

/// Whether two checks are equal, in a time that does not depend on them.
pub(super) fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |differs, (a, b)| differs | a ^ b);
    one.len() == other.len() && differs == 0
}

/// The keys of a session.
pub(super) struct Keys {
    pub(super) cipher: IpmiCipher,
    /// For the check of messages.
    pub(super) integrity: Vec<u8>,
    /// For AES.
    encryption: [u8; BLOCK],
}

impl Keys {
    /// Derives the keys from the session's integrity key.
    pub(super) fn derive(cipher: IpmiCipher, session: &[u8]) -> Self {
        let of = |number: u8| keyed_hash(cipher, session, &[&[number; CONSTANT_BYTES]]);
        let (integrity, second) = (of(1), of(2));
        let mut encryption = [0; BLOCK];
        encryption.iter_mut().zip(&second).for_each(|(to, from)| *to = *from);
        Self { cipher, integrity, encryption }
    }

    /// Encrypts a message: the vector, then the blocks (section 13.29).
    pub(super) fn encrypt(&self, plain: &[u8], vector: [u8; BLOCK]) -> Vec<u8> {
        let mut padded = plain.to_vec();
        // The bytes 1, 2, 3, … and their number fill the last block.
        let pad = BLOCK - 1 - plain.len() % BLOCK;
        padded.extend((1..=pad).map(|byte| u8::try_from(byte).unwrap_or(0)));
        padded.push(u8::try_from(pad).unwrap_or(0));
        let encryptor = cbc::Encryptor::<Aes128>::new(&self.encryption.into(), &vector.into());
        let blocks = encryptor.encrypt_padded_vec::<NoPadding>(&padded);
        [&vector[..], &blocks].concat()
    }

    /// Decrypts a message; `None` if it is not valid.
    pub(super) fn decrypt(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (vector, blocks) = bytes.split_first_chunk::<BLOCK>()?;
        if blocks.is_empty() || blocks.len() % BLOCK != 0 {
            return None;
        }
        let decryptor = cbc::Decryptor::<Aes128>::new(&self.encryption.into(), &(*vector).into());
        let mut plain = decryptor.decrypt_padded_vec::<NoPadding>(blocks).ok()?;
        let pad = usize::from(plain.pop()?);
        let length = plain.len().checked_sub(pad)?;
        plain.truncate(length);
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_come_back(plain in prop::collection::vec(any::<u8>(), 0..100)) {
            let keys = Keys::derive(IpmiCipher::Suite17, b"key");
            let bytes = keys.encrypt(&plain, [7; BLOCK]);
            prop_assert_eq!(bytes.len() % BLOCK, 0);
            prop_assert_eq!(keys.decrypt(&bytes), Some(plain));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            Keys::derive(IpmiCipher::Suite3, b"key").decrypt(&bytes);
        }
    }

    #[test]
    fn checks_are_compared_as_a_whole() {
        assert!(is_equal(b"ab", b"ab"));
        assert!(!is_equal(b"ab", b"ac") && !is_equal(b"ab", b"a"));
    }
}
