#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::base::chance::SeededChance;
use crate::base::digest::Digest;
use crate::base::id::StepId;
use crate::base::time::ManualClock;
use crate::draft::outcome::{Evidence, Failure};
use crate::draft::state::Verdict;

const ROOMY: u64 = 1 << 20;

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)))
}

fn open(folder: &Path, bytes_max: u64) -> Result<FileJournal, OpenError> {
    FileJournal::open(folder, bytes_max, clock(), &SeededChance::new(7))
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

fn draft(number: u128) -> DraftId {
    format!("dr_a_{}", ulid::Ulid::from(number)).parse().unwrap()
}

fn step_id(step: u8) -> StepId {
    StepId::from_bytes([step; 16])
}

fn settle(number: u128, step: u8, response_bytes: usize) -> Settle {
    Settle {
        id: draft(number),
        step: step_id(step),
        epoch: 3,
        verdict: Verdict::Failed,
        failure: Some(Failure::Refused),
        receipt: None,
        response: Some((0..response_bytes).map(|n| u8::try_from(n % 256).unwrap()).collect()),
        evidence: Evidence {
            at: at(5),
            source: "attempt".to_owned(),
            text: "line\nbreak \"quoted\" ü".to_owned(),
            upstream_status: Some(409),
        },
        mac: Digest::of(&[step]),
    }
}

/// Everything of an outcome, to compare.
fn whole(settles: &[Settle]) -> Vec<Kept> {
    settles.iter().map(Kept::from).collect()
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|kind| kind == "log"));
    found.sort();
    found
}

fn bytes_of(folder: &Path) -> u64 {
    segments(folder).iter().map(|path| fs::metadata(path).unwrap().len()).sum()
}

fn copy_of(folder: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[tokio::test]
async fn p3_an_attempt_is_new_once_and_after_a_restart_too() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    assert_eq!(journal.attempt(&draft(1), 1, 2, at(0)).await, Ok(Logged::New));
    for (epoch, attempt) in [(1, 2), (9, 2), (1, 1), (9, 1), (2, 3)] {
        assert_eq!(journal.attempt(&draft(1), epoch, attempt, at(0)).await, Ok(Logged::Already));
    }
    drop(journal);
    let journal = open(folder.path(), ROOMY).unwrap();
    assert_eq!(journal.attempt(&draft(1), 5, 2, at(0)).await, Ok(Logged::Already));
    assert_eq!(journal.attempt(&draft(1), 5, 3, at(0)).await, Ok(Logged::Already));
    assert_eq!(journal.attempt(&draft(2), 1, 1, at(0)).await, Ok(Logged::New));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p3_of_many_equal_attempts_at_once_one_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(open(folder.path(), ROOMY).unwrap());
    for number in 0..20 {
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let journal = Arc::clone(&journal);
            callers.spawn(async move { journal.attempt(&draft(number), 1, 1, at(0)).await.unwrap() });
        }
        let answers = callers.join_all().await;
        assert_eq!(answers.iter().filter(|answer| **answer == Logged::New).count(), 1);
    }
}

#[tokio::test]
async fn p8_outcomes_wait_until_they_are_taken_also_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second, again) = (settle(1, 1, 300), settle(2, 2, 0), settle(1, 3, 10));
    let mut bare = settle(3, 4, 0);
    (bare.response, bare.failure, bare.verdict) = (None, None, Verdict::Unverifiable);
    let journal = open(folder.path(), ROOMY).unwrap();
    for outcome in [&first, &second, &first, &again, &bare] {
        journal.keep(outcome).await.unwrap();
    }
    let expected = whole(&[first, second.clone(), again.clone(), bare.clone()]);
    assert_eq!(whole(&journal.waiting().await), expected);
    drop(journal);
    let journal = open(folder.path(), ROOMY).unwrap();
    assert_eq!(whole(&journal.waiting().await), expected, "whole and oldest first");
    journal.taken(&draft(1), step_id(1)).await.unwrap();
    journal.taken(&draft(99), step_id(1)).await.unwrap();
    journal.taken(&draft(2), step_id(1)).await.unwrap();
    let left = whole(&[second.clone(), again.clone(), bare.clone()]);
    assert_eq!(whole(&journal.waiting().await), left, "two of one draft waited, and one was taken");
    drop(journal);
    let journal = open(folder.path(), ROOMY).unwrap();
    assert_eq!(whole(&journal.waiting().await), left, "over a restart as well");
    journal.taken(&draft(1), step_id(3)).await.unwrap();
    // One that was taken may wait anew.
    journal.keep(&again).await.unwrap();
    drop(journal);
    let journal = open(folder.path(), ROOMY).unwrap();
    assert_eq!(whole(&journal.waiting().await), whole(&[second, bare, again]));
}

#[test]
fn a_second_process_is_refused_and_the_next_one_knows_the_dead() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("a/b");
    let first = open(&folder, ROOMY).unwrap();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(first.own_dead().is_empty());
    let (name, count) = first.node().as_str().split_once('.').unwrap();
    assert_eq!((name.len(), count), (32, "1"));
    let said = open(&folder, ROOMY).unwrap_err().to_string();
    assert!(said.contains("in use by another guard") && said.contains("a folder of its own"), "{said}");
    let first = {
        let node = first.node().clone();
        drop(first);
        node
    };
    for count in 2..=70_usize {
        let journal = open(&folder, ROOMY).unwrap();
        assert_eq!(journal.node().as_str(), format!("{}.{count}", first.as_str().split_once('.').unwrap().0));
        assert_eq!(journal.own_dead().len(), (count - 1).min(64));
        assert_eq!(journal.own_dead().contains(&first), count <= 65);
        assert!(!journal.own_dead().contains(journal.node()));
    }
}

#[tokio::test]
async fn a_crash_in_the_last_line_loses_that_line_alone() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    journal.attempt(&draft(1), 1, 1, at(0)).await.unwrap();
    journal.keep(&settle(1, 1, 20)).await.unwrap();
    let before = bytes_of(folder.path());
    journal.attempt(&draft(2), 1, 1, at(0)).await.unwrap();
    drop(journal);
    let after = bytes_of(folder.path());
    let zeros = |bytes: u64| vec![0; usize::try_from(bytes).unwrap()];
    for cut in before..after {
        // A short file, a file of full length whose end never reached the disk, and noise.
        for tail in [Vec::new(), zeros(after - cut), b"x\n\n0123456789abcdef []\nx".to_vec()] {
            let copy = copy_of(folder.path());
            let segment = segments(copy.path()).pop().unwrap();
            let mut bytes = fs::read(&segment).unwrap();
            bytes.truncate(usize::try_from(cut).unwrap());
            bytes.extend_from_slice(&tail);
            fs::write(&segment, &bytes).unwrap();
            let journal = open(copy.path(), ROOMY).unwrap();
            assert_eq!(fs::metadata(&segment).unwrap().len(), before, "the torn end is cut off");
            assert_eq!(journal.attempt(&draft(1), 1, 1, at(0)).await, Ok(Logged::Already));
            assert_eq!(journal.waiting().await.len(), 1);
            assert_eq!(journal.attempt(&draft(2), 1, 1, at(0)).await, Ok(Logged::New));
            drop(journal);
            let journal = open(copy.path(), ROOMY).unwrap();
            assert_eq!(journal.attempt(&draft(2), 1, 1, at(0)).await, Ok(Logged::Already));
        }
    }
}

#[tokio::test]
async fn a_crash_in_the_first_line_of_a_segment_is_no_damage() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    journal.attempt(&draft(1), 1, 1, at(0)).await.unwrap();
    drop(journal);
    for torn in ["", "0123", "0123456789abcdef [{}]\n"] {
        fs::write(folder.path().join("0000000007.log"), torn).unwrap();
        let journal = open(folder.path(), ROOMY).unwrap();
        assert_eq!(journal.attempt(&draft(1), 1, 1, at(0)).await, Ok(Logged::Already));
        assert_eq!(fs::metadata(folder.path().join("0000000007.log")).unwrap().len(), 0);
    }
}

#[tokio::test]
async fn damage_before_the_end_is_an_error_that_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    journal.attempt(&draft(1), 1, 1, at(0)).await.unwrap();
    let good = usize::try_from(bytes_of(folder.path())).unwrap();
    journal.attempt(&draft(2), 1, 1, at(0)).await.unwrap();
    drop(journal);
    let segment = segments(folder.path()).pop().unwrap();
    let intact = fs::read(&segment).unwrap();
    for byte in 0..good {
        let mut damaged = intact.clone();
        damaged[byte] ^= 1;
        fs::write(&segment, &damaged).unwrap();
        let said = open(folder.path(), ROOMY).unwrap_err();
        assert!(matches!(said, OpenError::Damaged { .. }), "byte {byte}: {said}");
        let said = said.to_string();
        // What is at stake comes before the way out of last resort.
        let place = |words: &str| said.find(words).unwrap_or_else(|| panic!("{words}: {said}"));
        assert!(place("do not delete it") < place("keep a copy") && place("keep a copy") < place("an empty one"));
        assert!(place("never with one from a backup") < place("an empty one"));
        assert_eq!(fs::read(&segment).unwrap(), damaged);
    }
    fs::write(&segment, &intact).unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    assert!(journal.node().as_str().ends_with(".2"), "refused starts are not counted");
}

#[tokio::test]
async fn another_version_is_an_error_and_not_a_torn_end() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path(), ROOMY).unwrap());
    for record in [
        r#"{"record":"begin","version":1,"node":"x.1","at":"2026-01-01T00:00:00.000Z","afresh":false}"#,
        r#"{"record":"other"}"#,
        r#"{"record":"taken","id":"dr_a_01ARZ3NDEKTSV4RRFFQ69G5FAV"}"#,
        r#"{"record":"taken","id":"dr_a_01ARZ3NDEKTSV4RRFFQ69G5FAV","step":"x"}"#,
    ] {
        fs::write(folder.path().join("0000000001.log"), super::super::line::join([record])).unwrap();
        let said = open(folder.path(), ROOMY).unwrap_err();
        assert!(matches!(said, OpenError::OtherVersion { at: 0, .. }), "{record}: {said}");
    }
    fs::remove_file(folder.path().join("0000000001.log")).unwrap();
    fs::write(folder.path().join("node.json"), "{").unwrap();
    assert!(matches!(open(folder.path(), ROOMY).unwrap_err(), OpenError::Damaged { .. }));
}

#[tokio::test]
async fn trimming_forgets_old_attempts_and_gives_room_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    let outcome = settle(5_000, 1, 100);
    journal.keep(&outcome).await.unwrap();
    for number in 0..1_000 {
        journal.attempt(&draft(number), 1, 1, at(i64::try_from(number).unwrap())).await.unwrap();
    }
    let before = bytes_of(folder.path());
    assert!(before > 100_000);
    journal.trim(at(990)).await.unwrap();
    assert!(bytes_of(folder.path()) < 3_000, "{}", bytes_of(folder.path()));
    assert_eq!(segments(folder.path()).len(), 1);
    assert_eq!(journal.attempt(&draft(7), 1, 2, at(2_000)).await, Ok(Logged::New), "the segment goes on");
    drop(journal);
    let journal = open(folder.path(), ROOMY).unwrap();
    assert_eq!(journal.attempt(&draft(990), 1, 1, at(0)).await, Ok(Logged::Already));
    assert_eq!(journal.attempt(&draft(7), 1, 2, at(0)).await, Ok(Logged::Already));
    assert_eq!(journal.attempt(&draft(989), 1, 1, at(0)).await, Ok(Logged::New));
    assert_eq!(whole(&journal.waiting().await), whole(&[outcome]), "what waits is never trimmed");
}

#[tokio::test]
async fn a_crash_between_rewriting_and_removing_brings_nothing_back() {
    let folder = tempfile::tempdir().unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    journal.keep(&settle(1, 1, 80_000)).await.unwrap();
    journal.attempt(&draft(2), 1, 1, at(50)).await.unwrap();
    let old = segments(folder.path()).pop().unwrap();
    let content = fs::read(&old).unwrap();
    journal.taken(&draft(1), step_id(1)).await.unwrap();
    journal.trim(at(10)).await.unwrap();
    drop(journal);
    assert!(!old.exists());
    fs::write(&old, content).unwrap();
    fs::write(folder.path().join("0000000009.log.new"), "half").unwrap();
    let journal = open(folder.path(), ROOMY).unwrap();
    assert!(journal.waiting().await.is_empty(), "the taken outcome stays taken");
    assert_eq!(journal.attempt(&draft(2), 1, 1, at(0)).await, Ok(Logged::Already));
    assert!(!old.exists() && !folder.path().join("0000000009.log.new").exists());
}

#[tokio::test]
async fn p7_a_full_journal_refuses_attempts_first_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let bytes_max = 40_000;
    let journal = open(folder.path(), bytes_max).unwrap();
    let mut number = 0;
    let said = loop {
        match journal.attempt(&draft(number), 1, 1, at(i64::try_from(number).unwrap())).await {
            Ok(logged) => assert_eq!(logged, Logged::New),
            Err(error) => break error.to_string(),
        }
        number += 1;
    };
    assert!(said.contains("it is full") && said.contains("of 40000 bytes"), "{said}");
    assert!(bytes_of(folder.path()) <= bytes_max * 3 / 4);
    journal.keep(&settle(1, 1, 5_000)).await.unwrap();
    assert!(journal.keep(&settle(2, 2, 10_000)).await.is_err(), "outcomes too have an end");
    assert!(bytes_of(folder.path()) <= bytes_max);
    assert!(journal.attempt(&draft(number), 1, 1, at(0)).await.is_err());
    journal.taken(&draft(1), step_id(1)).await.unwrap();
    journal.trim(at(i64::try_from(number).unwrap() - 5)).await.unwrap();
    assert_eq!(
        journal.attempt(&draft(number), 1, 1, at(0)).await,
        Ok(Logged::New),
        "room is made when it is asked for"
    );
    assert!(bytes_of(folder.path()) < bytes_max / 4);
    assert_eq!(journal.attempt(&draft(number - 1), 1, 1, at(0)).await, Ok(Logged::Already));
}

#[tokio::test]
async fn many_starts_do_not_make_many_segments() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..60 {
        let journal = open(folder.path(), ROOMY).unwrap();
        journal.attempt(&draft(number), 1, 1, at(0)).await.unwrap();
        assert!(segments(folder.path()).len() <= SEGMENTS_MAX + 1);
    }
    let journal = open(folder.path(), ROOMY).unwrap();
    for number in 0..60 {
        assert_eq!(journal.attempt(&draft(number), 1, 1, at(0)).await, Ok(Logged::Already));
    }
}

// ---- a disk that fails -------------------------------------------------------------------------

/// 0: well; 1: takes half of what is written, then is full; 2: cannot sync.
#[derive(Clone, Default)]
struct Trouble(Arc<AtomicU8>);

impl Disk for Trouble {
    fn append(&mut self, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        if self.0.load(Ordering::SeqCst) == 1 {
            PlainDisk.append(file, &bytes[..bytes.len() / 2])?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        PlainDisk.append(file, bytes)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        if self.0.load(Ordering::SeqCst) == 2 {
            return Err(io::Error::other("input/output error"));
        }
        PlainDisk.sync(file)
    }
}

#[tokio::test]
async fn p7_a_disk_that_fails_refuses_and_heals_without_restart() {
    for trouble in [1, 2] {
        for start_in_trouble in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let disk = Trouble::default();
            let journal =
                FileJournal::open_on(Box::new(disk.clone()), folder.path(), ROOMY, clock(), &SeededChance::new(7));
            let journal = journal.unwrap();
            if !start_in_trouble {
                journal.attempt(&draft(1), 1, 1, at(0)).await.unwrap();
            }
            disk.0.store(trouble, Ordering::SeqCst);
            for _ in 0..5 {
                assert!(journal.attempt(&draft(2), 1, 1, at(0)).await.is_err());
                assert!(journal.keep(&settle(3, 3, 10)).await.is_err());
            }
            assert!(journal.waiting().await.is_empty());
            disk.0.store(0, Ordering::SeqCst);
            assert_eq!(journal.attempt(&draft(2), 1, 1, at(0)).await, Ok(Logged::New), "nothing was sent for it");
            journal.keep(&settle(3, 3, 10)).await.unwrap();
            drop(journal);
            let journal = open(folder.path(), ROOMY).unwrap();
            assert_eq!(journal.attempt(&draft(2), 1, 1, at(0)).await, Ok(Logged::Already));
            assert_eq!(journal.waiting().await.len(), 1);
            let first = journal.attempt(&draft(1), 1, 1, at(0)).await;
            assert_eq!(first, Ok(if start_in_trouble { Logged::New } else { Logged::Already }));
        }
    }
}

// ---- against a model ---------------------------------------------------------------------------

#[derive(Debug, Clone)]
enum Step {
    Attempt(u128, u32, i64),
    Keep(u128, u8),
    Taken(u128, u8),
    Trim(i64),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u128, 1..4_u32, 0..100_i64).prop_map(|(draft, attempt, at)| Step::Attempt(draft, attempt, at)),
        2 => (0..6_u128, 0..3_u8).prop_map(|(draft, step)| Step::Keep(draft, step)),
        2 => (0..6_u128, 0..3_u8).prop_map(|(draft, step)| Step::Taken(draft, step)),
        1 => (0..100_i64).prop_map(Step::Trim),
        1 => Just(Step::Reopen),
    ]
}

#[derive(Default)]
struct Model {
    attempts: BTreeMap<u128, i64>,
    waiting: Vec<(u128, u8)>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A trim before a restart may or may not outlive it: a forgotten attempt that comes back is
    /// refused once more, which sends nothing. Everything else is the same for ever.
    #[test]
    fn a_journal_does_what_its_model_does(steps in proptest::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let mut journal = open(folder.path(), ROOMY).unwrap();
            let mut model = Model::default();
            let mut forgotten: BTreeSet<u128> = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Attempt(number, attempt, millis) => {
                        let known = model.attempts.contains_key(&number);
                        let answer = journal.attempt(&draft(number), 1, attempt, at(millis)).await.unwrap();
                        if known {
                            prop_assert_eq!(answer, Logged::Already);
                        } else if !forgotten.contains(&number) {
                            prop_assert_eq!(answer, Logged::New);
                        }
                        if answer == Logged::New {
                            model.attempts.insert(number, millis);
                        }
                    }
                    Step::Keep(number, step) => {
                        journal.keep(&settle(number, step, 10)).await.unwrap();
                        if !model.waiting.contains(&(number, step)) {
                            model.waiting.push((number, step));
                        }
                    }
                    Step::Taken(number, step) => {
                        journal.taken(&draft(number), step_id(step)).await.unwrap();
                        model.waiting.retain(|kept| *kept != (number, step));
                    }
                    Step::Trim(millis) => {
                        journal.trim(at(millis)).await.unwrap();
                        forgotten.extend(model.attempts.extract_if(.., |_, at| *at < millis).map(|(number, _)| number));
                    }
                    Step::Reopen => {
                        drop(journal);
                        journal = open(folder.path(), ROOMY).unwrap();
                    }
                }
                let expected: Vec<_> = model.waiting.iter().map(|(number, step)| settle(*number, *step, 10)).collect();
                prop_assert_eq!(whole(&journal.waiting().await), whole(&expected));
            }
            Ok(())
        })?;
    }
}
