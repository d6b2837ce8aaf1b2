//! Tests of the job file.

use super::*;
use jobs::{Filter, Limits, Users};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

const NOW: Timestamp = Timestamp(1_767_706_500_000_000);

struct Lab {
    dir: tempfile::TempDir,
    registry: Registry,
    file: JobFile,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("registry");
        let registry = Registry::open(&path, Limits::default(), Users::default).unwrap();
        let file = JobFile::new(dir.path().join("jobs.jsonl"));
        Self { dir, registry, file }
    }

    fn append(&self, name: &str, text: &str) {
        let mut options = File::options();
        let options = options.mode(0o644);
        let file = options.create(true).append(true).open(self.dir.path().join(name));
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Reads to the end of the file, and returns the numbers of the invalid lines.
    fn read(&mut self) -> Vec<u64> {
        let mut bad = Vec::new();
        loop {
            let round = self.file.round(&self.registry, NOW).unwrap();
            bad.extend(round.bad.into_iter().map(|(line, _)| line));
            if !round.more {
                return bad;
            }
        }
    }

    fn restart(&mut self) {
        self.file = JobFile::new(self.file.path.clone());
    }

    fn ids(&self) -> Vec<i64> {
        let listed = self.registry.list(&Filter::default()).unwrap();
        let mut ids: Vec<_> = listed.iter().map(|listed| listed.job.key.id.get()).collect();
        ids.sort_unstable();
        ids
    }

    fn moved(&self, from: &str, to: &str) {
        std::fs::rename(self.dir.path().join(from), self.dir.path().join(to)).unwrap();
    }
}

fn line(id: i64) -> String {
    format!("{{\"cluster\":\"site\",\"id\":{id},\"start\":{}}}\n", 1_767_706_000 + id)
}

#[test]
fn lines_are_taken_once_and_bad_ones_reported_by_number() {
    let mut lab = Lab::new();
    assert_eq!(lab.read(), [0; 0], "there is no file yet");
    lab.append("jobs.jsonl", &format!("{}no JSON\n\n{}{{\"clus", line(1), line(2)));
    assert_eq!((lab.read(), lab.ids()), (vec![2], vec![1, 2]));
    assert_eq!(lab.read(), [0; 0]);
    lab.restart();
    lab.append("jobs.jsonl", &format!("ter\":1}}\n{}", line(3)));
    assert_eq!((lab.read(), lab.ids()), (vec![5], vec![1, 2, 3]));
}

#[test]
fn a_file_that_was_moved_away_is_read_to_its_end() {
    for restarts in [false, true] {
        let mut lab = Lab::new();
        lab.append("jobs.jsonl", &line(1));
        assert_eq!(lab.read(), [0; 0]);
        lab.append("jobs.jsonl", &line(2));
        lab.moved("jobs.jsonl", "jobs.jsonl.1");
        if restarts {
            lab.restart();
        }
        assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2]));
        lab.append("jobs.jsonl.1", &format!("{}{{", line(3)));
        lab.append("jobs.jsonl", &line(4));
        assert_eq!((lab.read(), lab.ids()), (vec![4], vec![1, 2, 3, 4]));
        // Moved again, and read on after a restart of the server.
        lab.moved("jobs.jsonl", "jobs.jsonl.2");
        lab.append("jobs.jsonl", &line(5));
        lab.restart();
        assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2, 3, 4, 5]));
    }
}

#[test]
fn an_emptied_file_is_read_from_its_beginning() {
    let mut lab = Lab::new();
    lab.append("jobs.jsonl", &(line(1) + &line(2)));
    assert_eq!(lab.read(), [0; 0]);
    let path = lab.dir.path().join("jobs.jsonl");
    std::fs::write(&path, line(3)).unwrap();
    assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2, 3]));
    // Truncated, and grown past the previous read position before the next check.
    std::fs::write(&path, (4..9).map(line).collect::<String>()).unwrap();
    lab.restart();
    assert_eq!((lab.read(), lab.ids()), (vec![], (1..9).collect()));
}

#[test]
fn the_first_line_of_a_file_that_was_emptied_within_a_long_one_is_taken() {
    let mut lab = Lab::new();
    lab.append("jobs.jsonl", &line(1));
    lab.append("jobs.jsonl", &"x".repeat(PIECE_BYTES + 5));
    assert_eq!(lab.read(), [0; 0]);
    std::fs::write(lab.dir.path().join("jobs.jsonl"), line(2)).unwrap();
    assert_eq!((lab.read(), lab.ids()), (vec![], vec![1, 2]));
}

#[test]
fn a_file_that_others_can_write_is_not_taken() {
    let mut lab = Lab::new();
    lab.append("jobs.jsonl", &line(1));
    let path = lab.dir.path().join("jobs.jsonl");
    let mode = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    mode(0o646);
    let rejected = lab.file.round(&lab.registry, NOW).unwrap_err().to_string();
    assert!(rejected.contains("jobs.jsonl: other users can write it"), "{rejected}");
    mode(0o644);
    assert_eq!((lab.read(), lab.ids()), (vec![], vec![1]));
}

#[test]
fn a_line_without_end_does_not_stop_the_next() {
    let mut lab = Lab::new();
    lab.append("jobs.jsonl", &line(1));
    lab.append("jobs.jsonl", &"x".repeat(2 * PIECE_BYTES + 5));
    lab.append("jobs.jsonl", "\n");
    lab.append("jobs.jsonl", &line(2));
    assert_eq!((lab.read(), lab.ids()), (vec![2], vec![1, 2]));
}
