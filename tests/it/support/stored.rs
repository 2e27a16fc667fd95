//! The store's file under the hands of somebody who may write to it: what stands in it of one
//! draft, and how to alter it while the guard is stopped.

use rusqlite::{Connection, types::Value};

use serde_json::{Value as Json, json};

use super::guard::Guard;
use super::people::Draft;

/// One value of the draft in the store: where it stands, and what it is.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) table: String,
    pub(crate) column: String,
    /// The column and value by which its row is found.
    pub(crate) key: (String, Value),
    pub(crate) value: Value,
}

impl Cell {
    /// Writes another value; `false` if the table's own rules refuse it.
    pub(crate) fn write(&self, store: &Connection, value: &Value) -> bool {
        let Self { table, column, key, .. } = self;
        let write = format!("UPDATE \"{table}\" SET \"{column}\" = ?2 WHERE \"{}\" = ?1", key.0);
        store.execute(&write, rusqlite::params![key.1, value]).is_ok_and(|rows| rows == 1)
    }
}

fn names(store: &Connection, sql: &str) -> Vec<String> {
    let mut select = store.prepare(sql).expect("a query");
    let rows = select.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|name| name.expect("a name")).collect()
}

/// Every value of every row that belongs to the draft: rows that name its id (or the random part
/// of it), and rows of other tables with the same row number.
pub(crate) fn cells_of(store: &Connection, draft: &str) -> Vec<Cell> {
    let random_part = draft.rsplit('_').next().unwrap_or_default();
    let tables = names(store, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'");
    let columns: Vec<(String, Vec<String>)> = tables
        .into_iter()
        .map(|table| {
            let columns = names(store, &format!("SELECT name FROM pragma_table_info('{table}')"));
            (table, columns)
        })
        .collect();
    let named = columns.iter().find_map(|(table, columns)| {
        columns.iter().find_map(|column| {
            let sql = format!("SELECT rowid, \"{column}\" FROM \"{table}\" WHERE \"{column}\" IN (?1, ?2)");
            let found: Result<(i64, Value), _> =
                store.query_row(&sql, [draft, random_part], |row| Ok((row.get(0)?, row.get(1)?)));
            found.ok()
        })
    });
    let (number, _) = named.expect("the draft stands in some table");
    let mut cells = Vec::new();
    for (table, columns) in columns {
        let key_column = columns.first().cloned().unwrap_or_default();
        for column in columns.iter().filter(|column| **column != key_column) {
            let sql = format!("SELECT \"{column}\" FROM \"{table}\" WHERE \"{key_column}\" = ?1");
            if let Ok(value) = store.query_row(&sql, [number], |row| row.get(0)) {
                let key = (key_column.clone(), Value::Integer(number));
                cells.push(Cell { table: table.clone(), column: column.clone(), key, value });
            }
        }
    }
    // Events are told from what happened, not asked about what may happen.
    cells.retain(|cell| cell.table != "events");
    assert!(cells.len() >= 8, "the draft's values: {cells:?}");
    cells
}

/// The store of a stopped guard, all of it in one file.
pub(crate) fn open(guard: &Guard) -> Connection {
    let store = Connection::open(guard.store_file()).expect("the stopped guard's store");
    store.pragma_update(None, "journal_mode", "DELETE").expect("one file");
    store
}

/// Puts the store back as it was and forgets the journal: each round is a guard of its own.
pub(crate) fn put_back(guard: &Guard, pristine: &[u8]) {
    for file in ["countersign.db-wal", "countersign.db-shm"] {
        let _ = std::fs::remove_file(guard.folder().join(file));
    }
    std::fs::write(guard.store_file(), pristine).expect("put back");
    let _ = std::fs::remove_dir_all(guard.folder().join("journal"));
}

/// Writes the draft's status and control data, consistent with each other.
#[track_caller]
pub(crate) fn forge(store: &Connection, draft: &Draft, status: &str, change: impl Fn(&mut Json)) {
    let mut written = 0;
    for cell in cells_of(store, &draft.id) {
        let Value::Text(text) = &cell.value else { continue };
        let forged = if text.starts_with('{') {
            let mut control: Json = serde_json::from_str(text).expect("control data");
            control["state"] = json!({"status": status});
            change(&mut control);
            control.to_string()
        } else if cell.column == "status" {
            status.to_owned()
        } else {
            continue;
        };
        written += u32::from(cell.write(store, &Value::Text(forged)));
    }
    assert_eq!(written, 2, "status and control data");
}
