//! `/proc/self/mounts`: the mounted file systems (fstab(5), proc_pid_mounts(5);
//! fs/proc_namespace.c, Linux 6.18).
//!
//! ```text
//! /dev/vda / ext4 rw,relatime,discard 0 0
//! tmpfs /dev/shm tmpfs rw,relatime,size=24684084k 0 0
//! nfs1:/home /home nfs4 rw,relatime,vers=4.2,hard 0 0
//! /dev/sdb1 /mnt/two\040words xfs rw,relatime 0 0
//! ```
//!
//! Blanks, tabs, line ends, backslashes and `#` in a field are written as a backslash and three octal
//! digits. The list is that of the mount namespace of the process that opens the file, in the order of
//! mounting: of two lines with one mount point, the later one covers the earlier.

use crate::parse::{ParseError, whole_lines};

/// A line of `/proc/self/mounts`, its fields as they are written there: see [`unescape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount<'a> {
    /// The mounted device: a block device, an exported directory, or any word.
    pub device: &'a [u8],
    /// The mount point.
    pub path: &'a [u8],
    /// The file system's type: `ext4`, `nfs4`, `fuse.sshfs`.
    pub kind: &'a [u8],
    /// The mount options: `rw,relatime`.
    pub options: &'a [u8],
}

/// The mounts, in their order.
///
/// # Errors
/// The text is truncated; then, line by line: one has fewer than four fields, or a place without its `/`.
pub fn mounts(
    text: &[u8],
) -> Result<impl Iterator<Item = Result<Mount<'_>, ParseError>>, ParseError> {
    Ok(whole_lines(text)?.map(|line| {
        // Split at single blanks: a device may have an empty name.
        let mut fields = line.splitn(5, |byte| *byte == b' ');
        let mut field = || fields.next().ok_or(ParseError::at(line));
        let mount = Mount { device: field()?, path: field()?, kind: field()?, options: field()? };
        if mount.path.starts_with(b"/") { Ok(mount) } else { Err(ParseError::at(line)) }
    }))
}

/// A field with its octal escapes resolved.
pub fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        match (first, octal(tail)) {
            (b'\\', Some((byte, tail))) => {
                out.push(byte);
                rest = tail;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

fn octal(text: &[u8]) -> Option<(u8, &[u8])> {
    let (digits, tail) = text.split_at_checked(3)?;
    let value = digits.iter().try_fold(0_u16, |value, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 8)?;
        Some(value * 8 + u16::from(digit))
    })?;
    Some((u8::try_from(value).ok()?, tail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"/dev/vda / ext4 rw,relatime,discard 0 0\n\
        nfs1:/home /home nfs4 rw,hard 0 0\n\
        /dev/sdb1 /mnt/two\\040words xfs rw,relatime 0 0\n";

    fn all(text: &[u8]) -> Result<Vec<Mount<'_>>, ParseError> {
        mounts(text)?.collect()
    }

    #[test]
    fn lines_and_escapes() {
        let mounts = all(TEXT).unwrap();
        assert_eq!(
            mounts[0],
            Mount {
                device: b"/dev/vda",
                path: b"/",
                kind: b"ext4",
                options: b"rw,relatime,discard",
            }
        );
        assert_eq!(mounts[1].kind, b"nfs4");
        let nameless = all(b" /mnt tmpfs rw 0 0\n").unwrap()[0];
        assert_eq!(nameless, Mount { device: b"", path: b"/mnt", kind: b"tmpfs", options: b"rw" });
        assert_eq!(unescape(mounts[2].path), b"/mnt/two words");
        assert_eq!(unescape(br"a\011b\012c\134d\043e\303\251"), "a\tb\nc\\d#e\u{e9}".as_bytes());
        for kept in [&br"\04"[..], br"\", br"\08x", br"\777", b""] {
            assert_eq!(unescape(kept), kept);
        }
    }

    #[test]
    fn every_truncated_text_is_rejected_or_lacks_whole_lines() {
        for cut in 0..TEXT.len() {
            let lines = cut == 0 || TEXT[..cut].ends_with(b"\n");
            assert_eq!(all(&TEXT[..cut]).is_ok(), lines, "{cut}");
        }
        for text in
            ["/dev/vda\n", "/dev/vda /\n", "/dev/vda / ext4\n", "/dev/vda none swap sw 0 0\n"]
        {
            assert!(all(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            all(&bytes).ok();
            unescape(&bytes);
        }
    }
}
