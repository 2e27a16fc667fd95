//! Which files of a folder are policies: `*.yaml` and `*.yml`, not `*.test.yaml`, nothing hidden,
//! sorted by name.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::policy::load::Source as SourceFile;
use crate::policy::yaml::FILE_BYTES_MAX;

/// How many policy files a folder may have.
const FILES_MAX: usize = 1_000;

/// The policies cannot be read from the disk.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The system said no.
    #[error("{path} cannot be read: {source}")]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// A policy file is not text.
    #[error("{path} is not UTF-8")]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// There is nothing in it.
    #[error(
        "{path} has no policy file\nhint: put one .yaml file for each service into it; docs/policies.md has the shortest one"
    )]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// There is too much in it.
    #[error("{path} has more than {FILES_MAX} policy files")]
    TooMany {
        /// The folder.
        path: PathBuf,
    },
}

/// Reads every policy file of a folder.
///
/// # Errors
///
/// [`FolderError`], also for a folder without policy files.
pub fn read_folder(folder: &Path) -> Result<Vec<SourceFile>, FolderError> {
    let paths = policy_paths(folder)?;
    if paths.is_empty() {
        return Err(FolderError::Empty { path: folder.to_owned() });
    }
    paths.iter().map(|path| read_file(path)).collect()
}

/// Reads folders and files as they were named; a file that was named counts whatever its name.
///
/// # Errors
///
/// [`FolderError`].
pub fn read_files(named: &[PathBuf]) -> Result<Vec<SourceFile>, FolderError> {
    let mut files = Vec::new();
    for path in named {
        if path.is_dir() {
            files.extend(read_folder(path)?);
        } else {
            files.push(read_file(path)?);
        }
    }
    Ok(files)
}

fn policy_paths(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    let unreadable = |source| FolderError::Unreadable { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        // Through links: mounted configuration is links to files that are swapped as a whole.
        if is_policy_name(&name.to_string_lossy()) && !entry.path().is_dir() {
            paths.push(entry.path());
        }
        if paths.len() > FILES_MAX {
            return Err(FolderError::TooMany { path: folder.to_owned() });
        }
    }
    paths.sort();
    Ok(paths)
}

fn is_policy_name(name: &str) -> bool {
    let stem = name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml"));
    stem.is_some_and(|stem| !stem.is_empty() && !stem.ends_with(".test") && !name.starts_with('.'))
}

fn read_file(path: &Path) -> Result<SourceFile, FolderError> {
    let unreadable = |source| FolderError::Unreadable { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    // One byte over the bound is enough for the reader to refuse the file with its own words.
    // A pipe or a device would keep a reload waiting for ever.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(unreadable(std::io::Error::other("is no regular file")));
    }
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        // A long file may be cut inside a character; its length is the mistake to report.
        Err(error) if error.as_bytes().len() > FILE_BYTES_MAX => "#".repeat(FILE_BYTES_MAX + 1),
        Err(_) => return Err(FolderError::NotText { path: path.to_owned() }),
    };
    Ok(SourceFile { name: path.display().to_string(), text })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_policy_files_count_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yml", "c.test.yaml", ".hidden.yaml", "notes.txt", "x.yaml.bak", ".yaml", "d.test.yml"]
        {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        std::fs::create_dir(folder.path().join("folder.yaml")).unwrap();
        std::os::unix::fs::symlink("b.yaml", folder.path().join("z.yaml")).unwrap();
        let files = read_folder(folder.path()).unwrap();
        let texts: Vec<&str> = files.iter().map(|file| file.text.as_str()).collect();
        assert_eq!(texts, ["a.yml", "b.yaml", "b.yaml"]);
    }

    #[test]
    fn missing_empty_and_unreadable_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(read_folder(folder.path()), Err(FolderError::Empty { .. })));
        assert!(matches!(read_folder(&folder.path().join("no")), Err(FolderError::Unreadable { .. })));
        std::fs::write(folder.path().join("a.yaml"), [0xff, 0xfe]).unwrap();
        assert!(matches!(read_folder(folder.path()), Err(FolderError::NotText { .. })));
        std::fs::remove_dir_all(folder.path()).unwrap();
        std::fs::create_dir(folder.path()).unwrap();
        std::os::unix::fs::symlink("/dev/null", folder.path().join("endless.yaml")).unwrap();
        let refused = read_folder(folder.path()).unwrap_err();
        assert!(matches!(&refused, FolderError::Unreadable { .. }), "a pipe would be waited for: {refused}");
        std::os::unix::fs::symlink("/nowhere/at/all", folder.path().join("0.yaml")).unwrap();
        assert!(matches!(read_folder(folder.path()), Err(FolderError::Unreadable { .. })));
    }

    #[test]
    fn a_file_over_the_bound_is_read_no_further() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.yaml"), vec![0xff; 3 * FILE_BYTES_MAX]).unwrap();
        assert_eq!(read_folder(folder.path()).unwrap()[0].text.len(), FILE_BYTES_MAX + 1);
    }
}
