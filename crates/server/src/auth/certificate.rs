//! Reads the common name of a client's certificate.
//!
//! Parses only the parts of DER (ITU-T X.690) and X.509 (RFC 5280, section 4.1) that lead to the subject's
//! common name. `rustls` has verified the signature, the dates and the chain before.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
/// `[0]` precedes the version; version 1 omits it.
const VERSION: u8 = 0xa0;
/// OID 2.5.4.3, the common name.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Returns the common name of a certificate's subject, if it has exactly one.
pub(crate) fn common_name(der: &[u8]) -> Option<&str> {
    let (certificate, _) = expect(SEQUENCE, der)?;
    let (mut rest, _) = expect(SEQUENCE, certificate)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // Serial number, algorithm, issuer and dates precede the subject.
    for _ in 0..4 {
        rest = element(rest)?.2;
    }
    let (mut subject, _) = expect(SEQUENCE, rest)?;
    let mut name = None;
    while !subject.is_empty() {
        let (mut set, after) = expect(SET, subject)?;
        subject = after;
        while !set.is_empty() {
            let (attribute, after) = expect(SEQUENCE, set)?;
            set = after;
            let (kind, value) = expect(OBJECT_IDENTIFIER, attribute)?;
            if kind == COMMON_NAME {
                let (tag, text, _) = element(value)?;
                let text = std::str::from_utf8(text).ok();
                let text = text.filter(|_| matches!(tag, UTF8_STRING | PRINTABLE_STRING))?;
                if name.replace(text).is_some() {
                    return None;
                }
            }
        }
    }
    name
}

/// Returns the content of an element with this tag, and the bytes after it.
fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = element(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Returns the tag and content of the first element, and the bytes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(*first) {
        short @ 0..=0x7f => (short, rest),
        // Accept up to 4 length bytes: certificates are kilobytes long.
        long @ 0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(long - 0x80)?;
            let add = |sum: usize, byte: &u8| sum.checked_mul(256)?.checked_add(usize::from(*byte));
            (length.iter().try_fold(0, add)?, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_among_others() {
        let names = [(DnType::OrganizationName, "site"), (DnType::CommonName, "node-1")];
        assert_eq!(common_name(&certificate(&names)), Some("node-1"));
        assert_eq!(common_name(&certificate(&[(DnType::OrganizationName, "site")])), None);
    }

    #[test]
    fn every_cut_is_rejected() {
        let der = certificate(&[(DnType::CommonName, "node-1")]);
        for cut in 0..der.len() {
            assert_eq!(common_name(&der[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn two_common_names_are_none() {
        let attribute =
            [&[SEQUENCE, 8, OBJECT_IDENTIFIER, 3], COMMON_NAME, &[UTF8_STRING, 1, b'a']];
        let attribute = attribute.concat();
        let subject = |attributes: &[u8]| {
            let length = |inner: &[u8]| u8::try_from(inner.len()).unwrap();
            let set = [&[SET, length(attributes)], attributes].concat();
            let subject = [&[SEQUENCE, length(&set)], &*set].concat();
            let body = [&[2, 1, 1, 2, 0, 2, 0, 2, 0], &*subject].concat();
            let body = [&[SEQUENCE, length(&body)], &*body].concat();
            [&[SEQUENCE, length(&body)], &*body].concat()
        };
        assert_eq!(common_name(&subject(&attribute)), Some("a"));
        assert_eq!(common_name(&subject(&[&*attribute, &*attribute].concat())), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            common_name(&bytes);
        }

        #[test]
        fn no_flipped_byte_panics(at in 0_usize..200, to in any::<u8>()) {
            let mut der = certificate(&[(DnType::CommonName, "n")]);
            der[at] = to;
            common_name(&der);
        }
    }
}
