//! Files with the secrets of an imported configuration. Only their owner reads them.

use anyhow::{Context, bail};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Permissions of a file.
const MODE: u32 = 0o600;
/// Most bytes of an existing file that may have the same secret.
const BYTES_MAX: u64 = 64 << 10;

/// Secrets by the names of their files, until they are written.
#[derive(Default)]
pub(super) struct SecretFiles(Vec<(&'static str, String)>);

/// The folder of written files.
pub(super) struct Written(PathBuf);

impl SecretFiles {
    pub(super) fn add(&mut self, name: &'static str, secret: &str) {
        self.0.push((name, format!("{secret}\n")));
    }

    /// Writes all files into a folder.
    ///
    /// # Errors
    /// A file exists with another content or is readable for others, or cannot be written.
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<Written> {
        if self.0.is_empty() {
            return Ok(Written(dir.to_owned()));
        }
        let shown = || format!("--secrets {}", dir.display());
        let dir = dir.canonicalize().with_context(shown)?;
        if dir.to_str().is_none() {
            bail!("{}: a configuration file cannot have this path", shown());
        }
        for (name, secret) in &self.0 {
            let path = dir.join(name);
            write(&path, secret).with_context(|| path.display().to_string())?;
        }
        Ok(Written(dir))
    }
}

impl Written {
    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

/// Writes a new file. A second import finds its own file, and leaves it.
fn write(path: &Path, secret: &str) -> anyhow::Result<()> {
    let new = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path);
    let mut file = match new {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let metadata = std::fs::symlink_metadata(path)?;
            let is_private = metadata.is_file() && metadata.mode() & 0o077 == 0;
            let old = config::read_small(path, BYTES_MAX).ok();
            if !is_private || old.as_deref() != Some(secret.as_bytes()) {
                bail!(
                    "the file exists and is not overwritten; move it, or choose another folder with --secrets"
                );
            }
            return Ok(());
        }
        file => file?,
    };
    file.write_all(secret.as_bytes())?;
    file.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_private_and_no_file_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = SecretFiles::default();
        files.add("password", "secret");
        let written = files.write(dir.path()).unwrap();
        let path = dir.path().canonicalize().unwrap().join("password");
        assert_eq!(written.path("password"), path.display().to_string());
        assert_eq!(std::fs::read(&path).unwrap(), b"secret\n");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, MODE);
        files.write(dir.path()).unwrap();
        let mut others = SecretFiles::default();
        others.add("password", "another");
        let error = others.write(dir.path()).err().unwrap();
        assert!(format!("{error:#}").contains("is not overwritten"), "{error:#}");
        assert_eq!(std::fs::read(&path).unwrap(), b"secret\n");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(files.write(dir.path()).is_err());
        assert!(!dir.path().join("nowhere").try_exists().unwrap());
        assert!(files.write(&dir.path().join("missing")).is_err());
    }
}
