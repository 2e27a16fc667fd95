//! The processes of the bench: started from this executable, pinned, and measured from outside.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// A process that serves, and where.
pub(crate) struct Child {
    pub(crate) address: String,
    process: std::process::Child,
}

/// This executable again, on one processor where `taskset` is there.
pub(crate) fn again(processor: usize) -> Command {
    let this = std::env::current_exe().unwrap();
    let taskset = Command::new("taskset").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if taskset.is_ok_and(|status| status.success()) {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(processor.to_string()).arg(this);
        command
    } else {
        Command::new(this)
    }
}

impl Child {
    /// Starts `role`, which prints its address as its first line.
    pub(crate) fn start(role: &str, args: &[&str], processor: usize) -> Self {
        let mut process = again(processor)
            .args(["--role", role])
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the process starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { address: line.trim().to_owned(), process }
    }

    /// Processor time of all its threads so far.
    pub(crate) fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let nanos = tasks.filter_map(|task| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(nanos.sum())
    }

    /// Resident memory.
    pub(crate) fn rss_mib(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
        line.split_whitespace().next().unwrap_or("0").parse::<f64>().unwrap_or(0.0) / 1024.0
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
