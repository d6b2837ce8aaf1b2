//! Pinned certificates: the fingerprints that `jobmeter poll --pin` wrote. The description files stay as they are.

use super::description::{Description, Rare, Target, TlsVerification};
use config::{PollerConfig, SecretFileError, read_secret_file};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file in the state folder.
const FILE: &str = "poller-pins";
/// The first line of the file.
const HEAD: &str =
    "# HOST:PORT and the SHA-256 of its certificate; written by `jobmeter poll --pin`\n";

/// The SHA-256 of each target's certificate, by host and port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<String, [u8; 32]>);

/// Why the file of pinned certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PinsError {
    /// The file cannot be read, or other users could read or change it.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// A line is no pin.
    #[error("{}:{line}: a line is `HOST:PORT SHA256`", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
    },
}

/// The file of the pinned certificates: the setting, else a file in the state folder. `None` for a user without a home.
pub fn pins_file(config: &PollerConfig) -> Option<PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    let state = || config::state_dir(is_root, &delivery::environment).map(|dir| dir.join(FILE));
    config.polling.pins.clone().or_else(state)
}

impl Pins {
    /// Reads a file. A missing one has no pins.
    ///
    /// # Errors
    /// The file cannot be read, others could change it, or a line is no pin.
    pub fn read(path: &Path) -> Result<Self, PinsError> {
        let text = match read_secret_file(path) {
            Err(SecretFileError::Read { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::default());
            }
            read => read?,
        };
        let mut pins = BTreeMap::new();
        for (line, number) in text.lines().zip(1..) {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.split_once(' ').and_then(|(place, digits)| {
                Some((place.to_owned(), TlsVerification::digest(digits.trim())?))
            });
            let (place, digest) =
                parsed.ok_or_else(|| PinsError::Line { path: path.to_owned(), line: number })?;
            pins.insert(place, digest);
        }
        Ok(Self(pins))
    }

    /// Writes the file, which only this user can read and change.
    ///
    /// # Errors
    /// The operating system's.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = HEAD.to_owned();
        for (place, digest) in &self.0 {
            // Writing to a string does not fail.
            writeln!(text, "{place} {}", hexadecimal(digest)).ok();
        }
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        delivery::replace_private(path, text.as_bytes())
    }

    /// Pins a certificate, unless the target has one. Returns the pinned certificate if it is another.
    pub fn pin(&mut self, target: &Target, digest: [u8; 32]) -> Option<[u8; 32]> {
        let earlier = *self.0.entry(place(target)).or_insert(digest);
        (earlier != digest).then_some(earlier)
    }

    /// Verifies pinned targets by their fingerprints, unless their entries state another way.
    pub fn apply(&self, descriptions: &mut [Description]) {
        for one in descriptions.iter_mut().filter(|one| one.is_verified_by_roots()) {
            if let Some(digest) = self.0.get(&place(&one.target)) {
                let tls = TlsVerification::Fingerprint(Box::new(*digest));
                one.set_rare(Rare { tls, ..one.rare().clone() });
            }
        }
    }
}

/// The hexadecimal digits of a SHA-256.
pub fn hexadecimal(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn place(target: &Target) -> String {
    format!("{}:{}", target.host, target.port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptions::{Directory, read_text};
    use std::sync::Arc;

    fn descriptions() -> Vec<Description> {
        let mut directory = Directory::default();
        let text = "- {name: a, device_id: b, url: 'https://bmc-1/a#b'}\n\
             - {name: a, device_id: b, url: 'https://bmc-1/a#b', tls: {insecure: true}}\n\
             - {name: a, device_id: b, url: 'http://bmc-1:443/a#b'}\n\
             - {name: a, device_id: b, url: 'https://bmc-2/a#b'}\n";
        read_text(&Path::new("file").into(), text, &mut directory);
        directory.descriptions
    }

    #[test]
    fn a_pin_verifies_its_target_only_and_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state").join("pins");
        let mut pins = Pins::read(&path).unwrap();
        assert_eq!(pins, Pins::default());
        let mut all = descriptions();
        let target = Arc::clone(&all[0].target);
        assert_eq!(pins.pin(&target, [7; 32]), None);
        assert_eq!(pins.pin(&target, [8; 32]), Some([7; 32]), "another certificate");
        pins.write(&path).unwrap();
        let pins = Pins::read(&path).unwrap();
        pins.apply(&mut all);
        let tls: Vec<&TlsVerification> = all.iter().map(|one| &one.rare().tls).collect();
        let pinned = TlsVerification::Fingerprint(Box::new([7; 32]));
        let roots = TlsVerification::SystemRoots;
        assert_eq!(tls, [&pinned, &TlsVerification::Insecure, &roots, &roots]);
        for wrong in ["bmc-1:443", "bmc-1:443 07", "bmc-1:443 zz"] {
            delivery::write_private(&path, wrong.as_bytes()).unwrap();
            assert!(matches!(Pins::read(&path), Err(PinsError::Line { line: 1, .. })), "{wrong}");
        }
    }
}
