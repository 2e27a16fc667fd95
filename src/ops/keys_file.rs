//! The keys file: the roots of every key and the generated approver's token, on disk.
//!
//! Owns its format, its permissions (0600), and how it is made on the first run. Must never
//! print what it holds, and never replace a file that it cannot read: a guard with new keys
//! could verify none of the drafts that it holds.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use crate::base::chance::Chance;
use crate::base::secret::{Key, Secret};
use crate::draft::keys::{KeyId, KeySet};

use super::token;

/// A keys file longer than this is not one.
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// At most this many roots: the active one and those that older drafts were sealed with.
const ROOTS_MAX: usize = 32;

/// What the file holds, ready for use. `Debug` prints no key and no token.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Every derived key.
    pub keys: KeySet,
    /// The token of the generated approver `local`.
    pub local_token: Secret,
}

/// Why there are no keys. None of these texts repeats anything that stands in the file.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The operating system said no.
    #[error("the keys file {path} cannot be {what}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// `read` or `made`.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Others than its owner may read or write it.
    #[error(
        "the keys file {path} may be read by others (mode {mode:04o})\nhint: chmod 600 {path}, and make new keys if somebody may have read it"
    )]
    TooOpen {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is not a regular file.
    #[error("the keys file {path} is not a regular file")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be understood. It is left as it is.
    #[error(
        "the keys file {path} is damaged: {why}\nhint: put the file back from a backup. It was not replaced: with other keys no held draft could be confirmed"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, without contents.
        why: String,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    version: u32,
    /// The first one is active.
    keys: Vec<Root>,
    identity: String,
    local_approver_token: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Root {
    id: String,
    root: String,
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.keys.iter_mut().for_each(|key| key.root.zeroize());
        self.identity.zeroize();
        self.local_approver_token.zeroize();
    }
}

/// Reads the keys file, or makes it if there is none. Of two processes that make it at the same
/// moment one wins and both use the winner's.
///
/// # Errors
///
/// [`KeysError`]; an unreadable file is never replaced.
pub fn open_or_make(path: &Path, chance: &dyn Chance) -> Result<Keys, KeysError> {
    match fs::symlink_metadata(path) {
        Ok(_) => read(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make(path, chance)?;
            read(path)
        }
        Err(source) => Err(KeysError::Io { path: path.to_owned(), what: "read", source }),
    }
}

/// Reads the keys file.
///
/// # Errors
///
/// [`KeysError`], also when there is none.
pub fn read(path: &Path) -> Result<Keys, KeysError> {
    let failed = |source| KeysError::Io { path: path.to_owned(), what: "read", source };
    let file = File::open(path).map_err(failed)?;
    // The opened file is asked, not the path, so that what is checked is what is read.
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(KeysError::NotAFile { path: path.to_owned() });
    }
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeysError::TooOpen { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(Vec::new());
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    let damaged = |why: String| KeysError::Damaged { path: path.to_owned(), why };
    if text.is_empty() {
        return Err(damaged("it is empty".to_owned()));
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(damaged(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(damaged)
}

fn parse(text: &[u8]) -> Result<Keys, String> {
    // The reader's own message may quote a key, so only the place is told.
    let disk: OnDisk = serde_json::from_slice(text).map_err(|error| {
        let kind = if error.is_eof() { "it ends too early" } else { "it is not the expected JSON" };
        format!("{kind} (line {}, column {})", error.line(), error.column())
    })?;
    if disk.version != 1 {
        return Err(format!("its version is {}, this program reads version 1", disk.version));
    }
    if disk.keys.len() > ROOTS_MAX {
        return Err(format!("it has more than {ROOTS_MAX} keys"));
    }
    let mut roots: Vec<(KeyId, Key)> = Vec::new();
    for (at, entry) in disk.keys.iter().enumerate() {
        let id = KeyId::new(&entry.id)
            .ok_or_else(|| format!("the id of key {} is not 1 to 16 characters of a-z, 0-9 and -", at + 1))?;
        if roots.iter().any(|(other, _)| *other == id) {
            return Err(format!("the key id {} stands in it twice", id.as_str()));
        }
        let root = key(&entry.root)
            .ok_or_else(|| format!("the root of key {} is not 64 lower-case hex digits", id.as_str()))?;
        roots.push((id, root));
    }
    let identity = key(&disk.identity).ok_or("identity is not 64 lower-case hex digits")?;
    if !(32..=255).contains(&disk.local_approver_token.len()) {
        return Err("local_approver_token is not 32 to 255 characters".to_owned());
    }
    let keys = KeySet::derive(&roots, &identity).ok_or("it has no key")?;
    Ok(Keys { keys, local_token: Secret::new(disk.local_approver_token.clone()) })
}

fn key(hex: &str) -> Option<Key> {
    let bytes = Zeroizing::new(HEXLOWER.decode(hex.as_bytes()).ok()?);
    <[u8; 32]>::try_from(bytes.as_slice()).ok().map(Key::new)
}

/// Writes a complete file under another name, makes it durable, and only then gives it its name,
/// so that a crash never leaves half a keys file and a file that exists is never written over.
fn make(path: &Path, chance: &dyn Chance) -> Result<(), KeysError> {
    let hex = || HEXLOWER.encode(&chance.bytes32());
    let disk = OnDisk {
        version: 1,
        keys: vec![Root { id: "k1".to_owned(), root: hex() }],
        identity: hex(),
        local_approver_token: token::new_token(chance).reveal().to_owned(),
    };
    let result = write_new(path, &disk, chance);
    result.map_err(|source| KeysError::Io { path: path.to_owned(), what: "made", source })
}

fn write_new(path: &Path, disk: &OnDisk, chance: &dyn Chance) -> std::io::Result<()> {
    let mut text = Zeroizing::new(serde_json::to_vec_pretty(disk)?);
    text.push(b'\n');
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    let draft = folder.join(format!(".{name}.{}", HEXLOWER.encode(&chance.bytes16())));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    let written = file.write_all(&text).and_then(|()| file.sync_all()).and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    match written {
        // Another process was faster; its file is the one.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        other => other?,
    }
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use crate::base::chance::SeededChance;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn made(seed: u64) -> (tempfile::TempDir, PathBuf, Keys) {
        let folder = folder();
        let path = folder.path().join("countersign.keys");
        let keys = open_or_make(&path, &SeededChance::new(seed)).unwrap();
        (folder, path, keys)
    }

    #[test]
    fn made_once_private_and_the_same_ever_after() {
        let (folder, path, first) = made(1);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let again = open_or_make(&path, &SeededChance::new(2)).unwrap();
        assert_eq!(first.keys.fingerprint(), again.keys.fingerprint());
        assert_eq!(first.local_token, again.local_token);
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "no draft of the file is left behind");
    }

    #[test]
    fn p10_a_file_that_others_may_read_is_refused() {
        let (_folder, path, _) = made(1);
        for mode in [0o640, 0o604, 0o660, 0o666, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = open_or_make(&path, &SeededChance::new(2)).unwrap_err();
            assert!(matches!(error, KeysError::TooOpen { .. }), "{mode:o}");
            assert!(error.to_string().contains("chmod 600"));
        }
    }

    #[test]
    fn every_truncation_is_an_error_and_replaces_nothing() {
        let (_folder, path, _) = made(1);
        let whole = fs::read(&path).unwrap();
        // The closing brace and newline aside, every prefix is damaged.
        for length in 0..whole.len() - 2 {
            fs::write(&path, &whole[..length]).unwrap();
            let error = open_or_make(&path, &SeededChance::new(2)).unwrap_err();
            assert!(matches!(error, KeysError::Damaged { .. }), "{length}: {error}");
            assert_eq!(fs::read(&path).unwrap(), &whole[..length], "{length}");
        }
    }

    #[test]
    fn wrong_contents_are_named_without_repeating_them() {
        let (_folder, path, _) = made(1);
        let whole = fs::read_to_string(&path).unwrap();
        let root = serde_json::from_str::<serde_json::Value>(&whole).unwrap()["keys"][0]["root"].to_string();
        let root = root.trim_matches('"').to_owned();
        let wrong = [
            whole.replace("\"version\": 1", "\"version\": 2"),
            whole.replace(&root, &root.to_uppercase()),
            whole.replace(&root, &root[1..]),
            whole.replace("\"k1\"", "\"K 1\""),
            whole.replace("\"root\"", "\"roots\""),
            whole.replace(&format!("\"{root}\""), "17"),
            whole.replace("csk_", ""),
            "[]".to_owned(),
            "\u{0}\u{1}".to_owned(),
            format!("{whole}x"),
        ];
        for text in wrong.iter().filter(|text| **text != whole) {
            fs::write(&path, text).unwrap();
            match open_or_make(&path, &SeededChance::new(2)) {
                Err(error @ KeysError::Damaged { .. }) => {
                    let text = error.to_string();
                    assert!(!text.contains(&root[2..20]), "{text}");
                }
                Ok(_) => assert!(text.contains("\"local_approver_token\": \""), "{text}"),
                Err(other) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn odd_places_are_errors() {
        let folder = folder();
        let chance = SeededChance::new(1);
        assert!(matches!(open_or_make(folder.path(), &chance), Err(KeysError::NotAFile { .. })));
        let nowhere = folder.path().join("missing/countersign.keys");
        assert!(matches!(open_or_make(&nowhere, &chance), Err(KeysError::Io { what: "made", .. })));
        let dangling = folder.path().join("dangling");
        std::os::unix::fs::symlink("/nowhere/at/all", &dangling).unwrap();
        assert!(matches!(open_or_make(&dangling, &chance), Err(KeysError::Io { what: "read", .. })));
    }

    #[test]
    fn rotated_keys_are_read_and_twins_refused() {
        let (_folder, path, first) = made(1);
        let mut disk: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let new = serde_json::json!({"id": "k2", "root": "ab".repeat(32)});
        disk["keys"].as_array_mut().unwrap().insert(0, new.clone());
        fs::write(&path, disk.to_string()).unwrap();
        let rotated = read(&path).unwrap();
        assert_eq!(rotated.keys.fingerprint(), first.keys.fingerprint(), "the identity root never rotates");
        disk["keys"].as_array_mut().unwrap().push(new);
        fs::write(&path, disk.to_string()).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn p10_debug_prints_nothing_secret() {
        let (_folder, _, keys) = made(1);
        let text = format!("{keys:?}");
        assert!(!text.contains(keys.local_token.reveal()), "{text}");
    }
}
