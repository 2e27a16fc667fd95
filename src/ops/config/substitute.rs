//! Where `${env:…}` and `${file:…}` get their values: this machine.

use std::io::Read as _;
use std::path::PathBuf;

use crate::policy::read::Substitutions;

/// Longest file that is read for a value, in bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// This machine's environment and files; relative paths are relative to a folder.
#[derive(Debug, Clone)]
pub struct Machine {
    folder: PathBuf,
    fixed: Vec<(String, String)>,
}

impl Machine {
    /// Relative paths are relative to `folder`.
    #[must_use]
    pub const fn at(folder: PathBuf) -> Self {
        Self { folder, fixed: Vec::new() }
    }

    /// Adds a variable that wins over the environment's.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.fixed.push((name.to_owned(), value.into()));
        self
    }
}

impl Substitutions for Machine {
    fn env(&self, name: &str) -> Result<String, String> {
        if let Some((_, value)) = self.fixed.iter().find(|(known, _)| known == name) {
            return Ok(value.clone());
        }
        match std::env::var(name) {
            Ok(value) => Ok(value),
            Err(std::env::VarError::NotPresent) => Err("is not set".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => Err("is not UTF-8".to_owned()),
        }
    }

    fn file(&self, path: &str) -> Result<String, String> {
        let unreadable = |error: std::io::Error| format!("cannot be read: {error}");
        let path = self.folder.join(path);
        // A pipe or a device would keep a reload waiting for ever.
        if !std::fs::metadata(&path).map_err(unreadable)?.is_file() {
            return Err("is no regular file".to_owned());
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(format!("has more than {FILE_BYTES_MAX} bytes"));
        }
        String::from_utf8(bytes).map_err(|_| "is not UTF-8".to_owned())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_relative_to_the_folder_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "s3cret\n").unwrap();
        std::fs::write(folder.path().join("long"), vec![b'x'; 70_000]).unwrap();
        std::fs::write(folder.path().join("odd"), [0xff]).unwrap();
        let machine = Machine::at(folder.path().to_owned());
        assert_eq!(machine.file("secret").unwrap(), "s3cret\n");
        assert!(machine.file("long").unwrap_err().contains("more than"));
        assert!(machine.file("odd").unwrap_err().contains("UTF-8"));
        assert!(machine.file("missing").unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn fixed_values_win() {
        let machine = Machine::at(".".into()).with("PATH", "/fixed");
        assert_eq!(machine.env("PATH").unwrap(), "/fixed");
        assert_eq!(machine.env("COUNTERSIGN_NO_SUCH_VARIABLE").unwrap_err(), "is not set");
    }
}
