//! Private files and their checksums.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file that only its owner can read. Samples and the server's messages are not for all users.
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file =
        File::options().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

/// Replaces such a file as a whole: a crash leaves the old or the new one. The new one has the extension `new` meanwhile.
///
/// # Errors
/// The file cannot be written or renamed.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    write_private(&new, bytes)?;
    std::fs::rename(new, path)
}

/// Computes CRC-32C (Castagnoli) bit by bit. Inputs are 8 bytes per second and a state at each start, so a table
/// would not pay.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc: u32, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
