//! The file: creating it, locking it, its schema, and telling whether it is still the one that
//! was opened.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::base::time::Timestamp;

/// Marks the file as ours (`file(1)` and the first check of an opener read it): "CtSg".
const APPLICATION_ID: i32 = 0x4374_5367;

/// The schema that this version writes. 2: outcomes and refusals carry MACs.
const SCHEMA_VERSION: i32 = 2;

/// How long an opener waits for a lock that a dying process still holds.
const LOCK_WAIT: Duration = Duration::from_millis(500);

/// Prepared statements kept; more than the store has.
const STATEMENTS: usize = 64;

/// Why a file cannot be the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has the lock.
    #[error("another guard holds {path}: stop it first, or give this one a file of its own (one guard per file; the command line talks to the running guard over HTTP)", path = .0.display())]
    Held(PathBuf),
    /// Written by a version from before the first release: its outcomes carry no MAC, so nothing
    /// could tell them from forged ones.
    #[error("{path} has schema {found} of a version before the first release, whose outcomes cannot be verified; it was left as it is: move it and the journal folder away, and start with a new store, or finish its drafts with the version that wrote it", path = .path.display())]
    Older {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: i32,
    },
    /// Written by a newer version.
    #[error("{path} has schema {found}, this version knows up to {known}: start the newer version again", path = .path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: i32,
        /// The newest that this version knows.
        known: i32,
    },
    /// Not a store of this program.
    #[error("{path} is not a store of this program and was left as it is: choose another path", path = .0.display())]
    Foreign(PathBuf),
    /// The file cannot be created or reached.
    #[error("cannot open {path}: {error}; the folder must exist and be writable", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// SQLite cannot use it.
    #[error("cannot use {path} as a store: {error}", path = .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's words.
        error: rusqlite::Error,
    },
}

/// The file that was opened, by its identity on the file system.
pub(super) struct DbFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl DbFile {
    /// Whether the file still stands at its path. Commits to a file that was moved or deleted
    /// would be lost with the process.
    pub(super) fn in_place(&self) -> Result<(), String> {
        let path = self.path.display();
        match fs::metadata(&self.path) {
            Ok(found) if found.dev() == self.device && found.ino() == self.inode => Ok(()),
            Ok(_) => Err(format!("{path} is not the file that was opened; put that one back or restart")),
            Err(error) => Err(format!("{path} is gone ({error}); put it back or restart")),
        }
    }

    /// Opens the same file again, after an error that made the connection unusable.
    pub(super) fn reopen(&self) -> Result<Connection, String> {
        self.in_place()?;
        let connection = connect(&self.path).map_err(|error| error.to_string())?;
        // An error may have hit any write: take the lock now, and let recovery read the log.
        connection.execute_batch("BEGIN IMMEDIATE; COMMIT").map_err(|error| error.to_string())?;
        Ok(connection)
    }
}

/// Opens or creates the file, takes its lock and brings its schema.
pub(super) fn open(path: &Path) -> Result<(DbFile, Connection), OpenError> {
    let io = |error| OpenError::Io { path: path.to_owned(), error };
    let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    match created {
        // Closed before SQLite opens it: closing any handle of a file drops all the locks that
        // this process has on it. Nothing in a guard may open the file beside SQLite.
        Ok(file) => drop(file),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(io(error)),
    }
    let real = fs::canonicalize(path).map_err(io)?;
    let found = fs::metadata(&real).map_err(io)?;
    let connection = connect(&real).map_err(|error| refused(path, error))?;
    prepare(path, &connection)?;
    // The names of the file and of its log must survive a power cut as well.
    let folder = real.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
    Ok((DbFile { path: real, device: found.dev(), inode: found.ino() }, connection))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // Else SQLite plans a statement with a bound LIMIT anew each time it runs.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // The lock mode comes before WAL, so that the log's index lives in this process's memory and
    // no other process can ever read or write beside it.
    connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0))?;
    connection.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA trusted_schema = OFF;
         PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -2048;",
    )?;
    // The log is carried into the file at 16 MiB and not at SQLite's 4: index pages that many holds
    // change are then carried over once, and a log that size is read again in well under a second.
    connection.query_row("PRAGMA wal_autocheckpoint = 4096", [], |_| Ok(()))?;
    connection.query_row("PRAGMA journal_size_limit = 16777216", [], |_| Ok(()))?;
    Ok(connection)
}

fn prepare(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let failed = |error| refused(path, error);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i32>(0)).map_err(failed);
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if application == 0 && version == 0 && tables == 0 {
        connection.execute_batch(SCHEMA).map_err(failed)?;
        connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
        connection.pragma_update(None, "user_version", SCHEMA_VERSION).map_err(failed)?;
    } else if application != APPLICATION_ID || version < 1 {
        return Err(OpenError::Foreign(path.to_owned()));
    } else if version < SCHEMA_VERSION {
        return Err(OpenError::Older { path: path.to_owned(), found: version });
    } else if version > SCHEMA_VERSION {
        return Err(OpenError::Newer { path: path.to_owned(), found: version, known: SCHEMA_VERSION });
    }
    connection.execute_batch("COMMIT").map_err(failed)
}

/// The highest time that a commit has seen.
pub(super) fn seen(connection: &Connection) -> Option<Timestamp> {
    let value = connection.query_row("SELECT value FROM meta WHERE name = 'clock'", [], |row| row.get::<_, i64>(0));
    value.ok().map(Timestamp::from_millis)
}

fn refused(path: &Path, error: rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenError::Held(path.to_owned()),
        Some(ErrorCode::NotADatabase) => OpenError::Foreign(path.to_owned()),
        _ => OpenError::Sqlite { path: path.to_owned(), error },
    }
}

/// `control` is the row as JSON and the truth of it; the columns beside it are what queries find
/// rows by, and a load compares them with `control`. Sealed bytes and responses stand apart, so
/// that a change of a row does not write them again.
const SCHEMA: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE drafts (
    n INTEGER PRIMARY KEY,
    ulid TEXT NOT NULL UNIQUE,
    status TEXT NOT NULL,
    tenant TEXT NOT NULL,
    owner BLOB NOT NULL,
    initiator TEXT NOT NULL,
    tool TEXT NOT NULL,
    risk TEXT NOT NULL,
    token BLOB NOT NULL UNIQUE,
    join_key BLOB NOT NULL,
    caller_key BLOB,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    lease_until INTEGER,
    ended_at INTEGER,
    control TEXT NOT NULL
) STRICT;
CREATE INDEX drafts_join ON drafts (join_key, n);
CREATE UNIQUE INDEX drafts_caller ON drafts (caller_key) WHERE caller_key IS NOT NULL;
CREATE INDEX drafts_status ON drafts (status, ulid);
CREATE INDEX drafts_owner ON drafts (owner, created_at);
CREATE INDEX drafts_open ON drafts (owner, expires_at) WHERE status = 'pending';
CREATE INDEX drafts_expiry ON drafts (expires_at, created_at) WHERE status = 'pending';
CREATE INDEX drafts_lease ON drafts (lease_until) WHERE status IN ('running', 'verifying');
CREATE INDEX drafts_ended ON drafts (ended_at) WHERE ended_at IS NOT NULL AND status <> 'unverifiable';
CREATE TABLE sealed (n INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE responses (n INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;
CREATE TABLE events (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL) STRICT;
";
