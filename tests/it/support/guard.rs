//! The real guard as a child process on a folder of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::process::{Resource, Rlimit, prlimit};
use serde_json::Value;
use tempfile::TempDir;

use super::config::{Setup, tokens};
use super::metrics::Metrics;
use super::people::{Agent, App, Approver};
use super::upstream::Upstream;
use super::wait::{eventually, until, within};
use super::wire::{Request, Response, exchange, try_exchange};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_countersign");

/// A running guard. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Guard {
    setup: Setup,
    folder: TempDir,
    running: Running,
    /// What earlier processes on this folder printed.
    printed_before: String,
}

#[derive(Debug)]
struct Running {
    child: Child,
    agent: SocketAddr,
    control: SocketAddr,
    console_link: Option<String>,
    stdout: Capture,
    stderr: Capture,
}

/// How a process ended and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// What it says about the reason: the `error` of the JSON on standard output, or the lines of
    /// standard error that tell of an error.
    pub(crate) fn error(&self) -> String {
        let on_stdout = self.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let told = on_stdout.filter_map(|line| line.get("error").map(ToString::to_string));
        let lines = self.stderr.lines().filter(|line| line.contains("error")).map(str::to_owned);
        told.chain(lines).collect::<Vec<_>>().join("\n")
    }

    /// Standard output and standard error.
    pub(crate) fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl Guard {
    /// The usual guard in front of `upstream`.
    #[track_caller]
    pub(crate) fn over(upstream: &Upstream) -> Self {
        Setup::over(upstream).start()
    }

    #[track_caller]
    pub(super) fn start(setup: Setup) -> Self {
        match Self::try_start(setup) {
            Ok(guard) => guard,
            Err(ended) => panic!("the guard ended before it was ready ({}):\n{}", ended.status, ended.said()),
        }
    }

    #[track_caller]
    pub(super) fn try_start(setup: Setup) -> Result<Self, Ended> {
        let folder = TempDir::new().expect("a temporary folder");
        setup.write_to(folder.path());
        let running = launch(&setup, folder.path(), setup.point.as_deref())?;
        Ok(Self { setup, folder, running, printed_before: String::new() })
    }

    #[track_caller]
    pub(super) fn start_in_vain(setup: Setup) -> Ended {
        let folder = TempDir::new().expect("a temporary folder");
        setup.write_to(folder.path());
        run_to_end(command(&setup, folder.path(), None))
    }

    // People.

    /// `desk-bot`, working for owner `u-17` in session `s-1`.
    pub(crate) fn agent(&self) -> Agent {
        self.agent_with(tokens::DESK_BOT)
    }

    pub(crate) fn agent_with(&self, token: &str) -> Agent {
        Agent::new(self.running.agent, Some(token))
    }

    /// The same agent at the control listener, where it may ask for tasks.
    pub(crate) fn tasker(&self) -> Agent {
        self.tasker_with(tokens::DESK_BOT)
    }

    pub(crate) fn tasker_with(&self, token: &str) -> Agent {
        Agent::new(self.running.control, Some(token))
    }

    /// Somebody without any credential, for guards without `identity:`.
    pub(crate) fn anyone(&self) -> Agent {
        Agent::new(self.running.agent, None)
    }

    /// `alice`, who may decide everything of her tenant.
    pub(crate) fn approver(&self) -> Approver {
        self.approver_with(tokens::ALICE)
    }

    pub(crate) fn approver_with(&self, token: &str) -> Approver {
        Approver::new(self.running.control, token)
    }

    /// The product's own backend.
    pub(crate) fn app(&self) -> App {
        App::new(self.running.control, tokens::WEB)
    }

    // Addresses and what is there without a credential.

    pub(crate) fn agent_address(&self) -> SocketAddr {
        self.running.agent
    }

    pub(crate) fn control_address(&self) -> SocketAddr {
        self.running.control
    }

    pub(crate) fn control_url(&self) -> String {
        format!("http://{}", self.running.control)
    }

    pub(crate) fn console_link(&self) -> Option<&str> {
        self.running.console_link.as_deref()
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics::parse(&self.control_get("/metrics").must_be(200).text())
    }

    /// A GET on the control listener without a credential.
    pub(crate) fn control_get(&self, path: &str) -> Response {
        exchange(self.running.control, &Request::get(path))
    }

    /// The draft as `alice` sees it.
    #[track_caller]
    pub(crate) fn draft(&self, id: &str) -> Value {
        self.approver().show(id).must_be(200).json()
    }

    /// Waits until the draft has this status and gives it.
    #[track_caller]
    pub(crate) fn draft_when(&self, id: &str, status: &str) -> Value {
        eventually(&format!("{id} is {status}"), || {
            let answer = try_exchange(self.running.control, &self.approver().show_request(id)).ok().flatten()?;
            let draft: Value = serde_json::from_slice(&answer.body).ok()?;
            (draft["status"] == status).then_some(draft)
        })
    }

    // The process.

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.running.child.id()).expect("a pid"))
    }

    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("the guard takes signals");
    }

    /// SIGKILL: no last words.
    pub(crate) fn crash(&mut self) {
        self.running.child.kill().expect("the guard can be killed");
        self.running.child.wait().expect("a killed guard is reaped");
        self.keep_words();
    }

    /// SIGTERM, and waits for the end.
    #[track_caller]
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let status = eventually("the guard ends after SIGTERM", || self.running.child.try_wait().expect("a child"));
        self.keep_words();
        status
    }

    /// SIGTERM without waiting.
    pub(crate) fn ask_to_stop(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// The exit status, once the process has ended by itself.
    pub(crate) fn exit_status(&mut self) -> Option<ExitStatus> {
        self.running.child.try_wait().expect("a child")
    }

    /// SIGSTOP.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.pid());
        until("the guard is stopped", || {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            text.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T'))
        });
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    /// SIGHUP: read the policies again.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Starts a new process on the same folder; the old one must have ended.
    #[track_caller]
    pub(crate) fn start_again(&mut self) {
        self.start_again_stopping_at(None);
    }

    #[track_caller]
    pub(crate) fn start_again_stopping_at(&mut self, point: Option<&str>) {
        let _ = std::fs::remove_file(self.point_file());
        self.running = match launch(&self.setup, self.folder.path(), point) {
            Ok(running) => running,
            Err(ended) => panic!("the guard does not start again ({}):\n{}", ended.status, ended.said()),
        };
    }

    #[track_caller]
    pub(crate) fn crash_and_restart(&mut self) {
        self.crash();
        self.start_again();
    }

    #[track_caller]
    pub(crate) fn must_be_alive(&mut self) {
        if let Some(status) = self.exit_status() {
            panic!("the guard ended ({status}):\n{}", self.printed());
        }
        self.control_get("/healthz").must_be(200);
    }

    /// Resident memory, KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a running guard");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("KiB")
    }

    /// The guard's files can grow no further, as on a full disk.
    pub(crate) fn fill_disk(&self) {
        self.limit_files(Some(0));
    }

    /// No file of the guard grows beyond this many bytes: the longer ones fail, the short ones do not.
    pub(crate) fn limit_file_size(&self, bytes: u64) {
        self.limit_files(Some(bytes));
    }

    /// Room again.
    pub(crate) fn free_disk(&self) {
        self.limit_files(None);
    }

    fn limit_files(&self, current: Option<u64>) {
        let pid = rustix::process::Pid::from_raw(self.pid().as_raw());
        prlimit(pid, Resource::Fsize, Rlimit { current, maximum: None }).expect("the limit can be set");
    }

    /// Everything that all processes on this folder printed, logs and answers.
    pub(crate) fn printed(&self) -> String {
        format!("{}{}{}", self.printed_before, self.running.stdout.text(), self.running.stderr.text())
    }

    fn keep_words(&mut self) {
        self.running.stdout.join();
        self.running.stderr.join();
        self.printed_before = self.printed();
        self.running.stdout.clear();
        self.running.stderr.clear();
    }

    // Files of the folder.

    pub(crate) fn write_policy(&self, file: &str, yaml: &str) {
        std::fs::write(self.folder().join("policies").join(file), yaml).expect("a policy file");
    }

    pub(crate) fn store_file(&self) -> PathBuf {
        self.folder().join("countersign.db")
    }

    fn point_file(&self) -> PathBuf {
        self.folder().join("point")
    }

    /// Waits until the guard stands at its stopping point.
    #[track_caller]
    pub(crate) fn wait_at_point(&self) {
        until("the guard stands at its stopping point", || self.point_file().exists());
    }

    /// Lets the guard go on from its stopping point.
    pub(crate) fn go_on(&self) {
        std::fs::remove_file(self.point_file()).expect("the guard stands at its stopping point");
    }

    /// Lets the guard go on if it stands there again.
    pub(crate) fn let_go(&self) {
        let _ = std::fs::remove_file(self.point_file());
    }

    // The command line.

    /// Runs the command line on this guard's folder.
    #[track_caller]
    pub(crate) fn cli(&self, args: &[&str]) -> Ended {
        let mut command = Command::new(BINARY);
        command.args(args).current_dir(self.folder());
        run_to_end(command)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.running.child.kill();
        let _ = self.running.child.wait();
        if thread::panicking() {
            let words = self.printed();
            let from = words.len().saturating_sub(6000);
            let from = (from..words.len()).find(|at| words.is_char_boundary(*at)).unwrap_or(0);
            println!("--- the guard's last words ---\n{}", &words[from..]);
        }
    }
}

/// `countersign run` on a folder.
fn command(setup: &Setup, folder: &Path, point: Option<&str>) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["run", "--json", "--config"]).arg(folder.join("countersign.yaml")).current_dir(folder);
    for (name, value) in &setup.env {
        command.env(name, value);
    }
    if let Some(point) = point {
        command.env("COUNTERSIGN_TEST_POINT", format!("{point}:{}", folder.join("point").display()));
    }
    command
}

#[track_caller]
fn launch(setup: &Setup, folder: &Path, point: Option<&str>) -> Result<Running, Ended> {
    let mut child = command(setup, folder, point)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the guard starts");
    let mut stdout = Capture::of(child.stdout.take().expect("piped"));
    let mut stderr = Capture::of(child.stderr.take().expect("piped"));
    let ready = within(Duration::from_secs(60), || {
        let ready = stdout.text().lines().find_map(ready_line);
        match ready {
            Some(ready) => Some(Ok(ready)),
            None => child.try_wait().expect("a child").map(Err),
        }
    });
    match ready {
        Some(Ok(ready)) => {
            let address = |member: &str| socket(ready[member].as_str().unwrap_or_default());
            let console_link = ready["console_link"].as_str().map(str::to_owned);
            Ok(Running { agent: address("agent"), control: address("control"), console_link, child, stdout, stderr })
        }
        Some(Err(status)) => {
            stdout.join();
            stderr.join();
            Err(Ended { status, stdout: stdout.text(), stderr: stderr.text() })
        }
        None => {
            let _ = child.kill();
            panic!("the guard never said that it is ready:\n{}{}", stdout.text(), stderr.text())
        }
    }
}

fn ready_line(line: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(line).ok()?;
    (value["ready"] == true).then_some(value)
}

fn socket(url: &str) -> SocketAddr {
    let text = url.strip_prefix("http://").unwrap_or(url).trim_end_matches('/');
    text.parse().unwrap_or_else(|_| panic!("not the address of a listener: {url:?}"))
}

/// Runs a command to its end; kills it when it takes too long.
#[track_caller]
pub(crate) fn run_to_end(mut command: Command) -> Ended {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    let mut stdout = Capture::of(child.stdout.take().expect("piped"));
    let mut stderr = Capture::of(child.stderr.take().expect("piped"));
    let Some(status) = within(Duration::from_secs(60), || child.try_wait().expect("a child")) else {
        let _ = child.kill();
        let _ = child.wait();
        panic!("the command did not end: {command:?}\n{}{}", stdout.text(), stderr.text());
    };
    stdout.join();
    stderr.join();
    Ended { status, stdout: stdout.text(), stderr: stderr.text() }
}

/// What a process prints, gathered by a thread so that it never blocks.
#[derive(Debug)]
struct Capture {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Capture {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut lines = BufReader::new(pipe);
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|got| got > 0) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap().clone()
    }

    fn clear(&self) {
        self.text.lock().unwrap().clear();
    }

    /// Waits until the process has closed its end.
    fn join(&mut self) {
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
