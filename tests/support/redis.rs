//! A real `redis-server` as a child process, in a folder of its own: started, stopped, killed,
//! paused and started again, as replicas and Sentinels too. Nothing sleeps: whoever waits, waits
//! for a condition with a deadline. A child ends with the test that started it.

// Each suite or bench that takes this file in uses a part of it, and fails by panicking.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "resp.rs"]
mod resp;
#[allow(clippy::duplicate_mod)]
#[path = "../it/support/wait.rs"]
mod wait;

use std::fs::File;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tempfile::TempDir;

pub(crate) use self::resp::{Connection, Reply};
use self::wait::{eventually, until, within};

/// How many ports are tried before a start is given up.
const PORTS_TRIED_MAX: usize = 50;

/// How long a start may take; a green run never waits this long.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// A server. It always listens on a Unix socket in its folder, by which this file asks and steers
/// it; on a TCP port where that was asked for.
pub(crate) struct Redis {
    folder: TempDir,
    port: Option<u16>,
    options: Vec<String>,
    child: Option<Child>,
}

/// A start that came to nothing.
enum Failed {
    /// Somebody else has the port.
    PortTaken,
    /// It ended, or never answered; with what it said.
    Ended(String),
}

impl Redis {
    /// On a Unix socket only. `options` are further arguments as `redis-server` takes them, such as
    /// `["--appendonly", "yes"]`; they count more than what this file sets, which is: nothing is
    /// kept on disk, and replicas are served at once.
    #[track_caller]
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::begin(options, std::iter::once(None))
    }

    /// On the loopback's TCP too, on a free port.
    #[track_caller]
    pub(crate) fn start_on_tcp(options: &[&str]) -> Self {
        Self::begin(options, free_ports().map(Some))
    }

    /// On TCP, on the first of these ports that is free.
    #[track_caller]
    pub(crate) fn start_on_one_of(ports: &[u16], options: &[&str]) -> Self {
        Self::begin(options, ports.iter().copied().map(Some))
    }

    /// A replica of `primary`, on TCP, in step when this returns.
    #[track_caller]
    pub(crate) fn replica_of(primary: &Self, options: &[&str]) -> Self {
        let port = primary.port().to_string();
        let mut own = vec!["--replicaof", "127.0.0.1", &port];
        let password = primary.password().map(str::to_owned);
        if let Some(password) = &password {
            own.extend(["--requirepass", password, "--masterauth", password]);
        }
        own.extend(options);
        let replica = Self::start_on_tcp(&own);
        until("the replica is in step", || replica.info("master_link_status").as_deref() == Some("up"));
        // WAIT counts it only from its first acknowledgement on.
        let online = format!("port={},state=online", replica.port());
        until("the primary counts the replica", || primary.command(&["INFO", "replication"]).text().contains(&online));
        replica
    }

    #[track_caller]
    fn begin(options: &[&str], ports: impl Iterator<Item = Option<u16>>) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut own: Vec<String> =
            ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"].map(str::to_owned).into();
        own.extend(["--repl-diskless-sync-delay", "0", "--enable-debug-command", "local"].map(str::to_owned));
        own.extend(options.iter().map(|&option| option.to_owned()));
        Self::begin_in(folder, own, ports)
    }

    #[track_caller]
    fn begin_in(folder: TempDir, options: Vec<String>, ports: impl Iterator<Item = Option<u16>>) -> Self {
        let mut redis = Self { folder, port: None, options, child: None };
        for port in ports.take(PORTS_TRIED_MAX) {
            redis.port = port;
            match redis.launch() {
                Ok(()) => return redis,
                Err(Failed::PortTaken) => {}
                Err(Failed::Ended(said)) => panic!("redis-server did not start:\n{said}"),
            }
        }
        panic!("redis-server found no free port:\n{}", redis.said());
    }

    /// Starts the process and waits until it answers, everywhere where it should.
    fn launch(&mut self) -> Result<(), Failed> {
        // A killed server leaves its socket behind; a connection to it says nothing of the new one.
        let _ = std::fs::remove_file(self.socket());
        let log = File::create(self.log()).expect("a log in the server's folder");
        let mut command = Command::new("redis-server");
        command.args(&self.options);
        command.arg("--port").arg(self.port.unwrap_or(0).to_string());
        command.arg("--unixsocket").arg(self.socket()).arg("--dir").arg(self.folder());
        command.current_dir(self.folder()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => panic!(
                "redis-server is missing. `./dev test` installs it where the distribution has it; else install \
                 Redis 7.0 or later and put redis-server on the PATH."
            ),
            _ => panic!("redis-server cannot be run: {error}"),
        });
        self.child = Some(child);
        let ready = within(PATIENCE, || match self.ended() {
            Some(status) => Some(Err(status)),
            None => self.answers().then_some(Ok(())),
        });
        let why = match ready {
            Some(Ok(())) => return Ok(()),
            Some(Err(status)) => format!("it ended with {status}"),
            None => format!("it did not answer within {PATIENCE:?}"),
        };
        self.kill();
        let said = self.said();
        if self.port.is_some() && said.contains("Address already in use") {
            return Err(Failed::PortTaken);
        }
        Err(Failed::Ended(format!("{why}\n{said}")))
    }

    /// Whether it has everything in memory and answers, by its socket and by its port, and whether
    /// it is this very process that does.
    fn answers(&self) -> bool {
        let own = self.pid().to_string();
        let ours = |connection: io::Result<Connection>| -> io::Result<bool> {
            let mut connection = self.signed_in(connection?)?;
            let info = connection.ask(&["INFO", "server"])?.text();
            Ok(field(&info, "process_id") == Some(&own) && connection.ask(&["PING"])?.text() == "PONG")
        };
        ours(Connection::unix(&self.socket())).unwrap_or(false)
            && self.port.is_none_or(|port| ours(Connection::tcp(port)).unwrap_or(false))
    }

    fn signed_in(&self, mut connection: Connection) -> io::Result<Connection> {
        if let Some(password) = self.password() {
            let answer = connection.ask(&["AUTH", password])?;
            if answer.is_error() {
                return Err(io::Error::other(answer.text()));
            }
        }
        Ok(connection)
    }

    // Where it is.

    /// The folder: the socket, the log, and what the server keeps.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder().join("redis.sock")
    }

    fn log(&self) -> PathBuf {
        self.folder().join("redis.log")
    }

    /// What the process printed since its last start.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The TCP port.
    #[track_caller]
    pub(crate) fn port(&self) -> u16 {
        self.port.expect("this server was started without TCP: Redis::start_on_tcp")
    }

    /// `redis://127.0.0.1:PORT` where it has a port, else `unix://SOCKET`; without a password.
    pub(crate) fn url(&self) -> String {
        match self.port {
            Some(port) => format!("redis://127.0.0.1:{port}"),
            None => format!("unix://{}", self.socket().display()),
        }
    }

    /// The password of the default user, if one was among the options.
    fn password(&self) -> Option<&str> {
        let at = self.options.iter().rposition(|option| option == "--requirepass")?;
        self.options.get(at + 1).map(String::as_str)
    }

    // What it says.

    /// A new connection by the socket, signed in where there is a password.
    #[track_caller]
    pub(crate) fn connect(&self) -> Connection {
        let connection = Connection::unix(&self.socket()).expect("redis-server listens on its socket");
        self.signed_in(connection).expect("redis-server lets its own tests in")
    }

    /// One command on a connection of its own, so not for WAIT, MULTI and SUBSCRIBE; an error of
    /// Redis fails the test.
    #[track_caller]
    pub(crate) fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        let answer = self.ask(words);
        let shown = || words.iter().map(|word| String::from_utf8_lossy(word.as_ref())).collect::<Vec<_>>().join(" ");
        assert!(!answer.is_error(), "{}: {}", shown(), answer.text());
        answer
    }

    /// One command on a connection of its own; an error of Redis is an answer.
    #[track_caller]
    pub(crate) fn ask<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        self.connect().ask(words).expect("redis-server answers")
    }

    /// A field of `INFO`.
    #[track_caller]
    pub(crate) fn info(&self, name: &str) -> Option<String> {
        field(&self.command(&["INFO", "everything"]).text(), name).map(str::to_owned)
    }

    /// A setting as `CONFIG GET` has it.
    #[track_caller]
    pub(crate) fn setting(&self, name: &str) -> String {
        self.command(&["CONFIG", "GET", name]).texts().into_iter().nth(1).expect("a setting of this server")
    }

    /// Waits for something that it says.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        until(what, || holds(self));
    }

    // The process.

    /// The process id.
    #[track_caller]
    pub(crate) fn pid(&self) -> Pid {
        let child = self.child.as_ref().expect("redis-server runs");
        Pid::from_raw(i32::try_from(child.id()).expect("a pid"))
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("a child")
    }

    #[track_caller]
    fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).expect("redis-server takes signals");
    }

    /// SIGTERM, and waits for the end: what is to be kept is on disk then.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::SIGCONT);
        self.signal(Signal::SIGTERM);
        until("redis-server ends after SIGTERM", || self.ended().is_some());
        self.child = None;
    }

    /// SIGKILL: what is not on disk is lost.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts it again: same folder, same port, same options. Ends it first where it still runs.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.kill();
        // Somebody else's connection may have the port for a moment.
        eventually("redis-server starts on its port again", || match self.launch() {
            Ok(()) => Some(()),
            Err(Failed::PortTaken) => None,
            Err(Failed::Ended(said)) => panic!("redis-server did not start again:\n{said}"),
        });
    }

    /// SIGSTOP: connections stay open and new ones are taken by the kernel, but nothing is answered.
    #[track_caller]
    pub(crate) fn pause(&self) {
        self.signal(Signal::SIGSTOP);
        let stands = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED));
        assert_eq!(stands, Ok(WaitStatus::Stopped(self.pid(), Signal::SIGSTOP)), "redis-server stands still");
    }

    /// SIGCONT, and waits until it answers again.
    #[track_caller]
    pub(crate) fn resume(&self) {
        self.signal(Signal::SIGCONT);
        until("redis-server answers again", || self.answers());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Sentinel that watches one primary under the name [`Sentinel::NAME`].
pub(crate) struct Sentinel(Redis);

impl Sentinel {
    /// The name of what it watches.
    pub(crate) const NAME: &str = "countersign";

    /// Watches `primary`; `quorum` Sentinels have to agree that it is gone. Returns when it knows
    /// `replicas` of them.
    #[track_caller]
    pub(crate) fn watch(primary: &Redis, quorum: usize, replicas: usize) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let (name, port) = (Self::NAME, primary.port());
        let mut lines = format!(
            "sentinel monitor {name} 127.0.0.1 {port} {quorum}\n\
             sentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 5000\n"
        );
        if let Some(password) = primary.password() {
            lines.push_str(&format!("sentinel auth-pass {name} {password}\n"));
        }
        // A Sentinel writes what it learns into its configuration, so it has to be a file.
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, lines).expect("a configuration");
        let options = [file.to_str().expect("a path of UTF-8"), "--sentinel", "--bind", "127.0.0.1"].map(str::to_owned);
        let sentinel = Self(Redis::begin_in(folder, options.into(), free_ports().map(Some)));
        sentinel.until_it_knows("num-slaves", replicas);
        sentinel
    }

    /// Waits until the Sentinel counts at least so many, by a field of `SENTINEL MASTER`:
    /// `num-slaves`, `num-other-sentinels`.
    #[track_caller]
    pub(crate) fn until_it_knows(&self, what: &str, count: usize) {
        until(&format!("the Sentinel's {what} is {count}"), || {
            let told = self.0.command(&["SENTINEL", "MASTER", Self::NAME]).texts();
            let known = told.chunks_exact(2).find(|pair| pair[0] == what);
            known.is_some_and(|pair| pair[1].parse().is_ok_and(|known: usize| known >= count))
        });
    }

    /// The port on which the Sentinel itself listens.
    #[track_caller]
    pub(crate) fn own_port(&self) -> u16 {
        self.0.port()
    }

    /// The port of the primary, as this Sentinel has it.
    #[track_caller]
    pub(crate) fn primary(&self) -> u16 {
        let told = self.0.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME]).texts();
        told.get(1).and_then(|port| port.parse().ok()).expect("an address")
    }

    /// Waits until the Sentinel has moved the primary to this port.
    #[track_caller]
    pub(crate) fn until_primary_is(&self, port: u16) {
        until(&format!("port {port} is the primary"), || self.primary() == port);
    }

    /// The Sentinel itself: its port, its process, its words.
    pub(crate) const fn server(&mut self) -> &mut Redis {
        &mut self.0
    }
}

/// Ports that are free now, in no order. They are below those that the system gives to outgoing
/// connections and to whoever asks for any port, so that a killed server finds its own free again.
fn free_ports() -> impl Iterator<Item = u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let given_from = range.split_whitespace().next().and_then(|from| from.parse().ok()).unwrap_or(32_768_u64);
    std::iter::repeat_with(move || {
        let room = given_from.saturating_sub(10_000);
        // The bus of a cluster takes the port that is 10,000 above.
        let port = if room < 1_000 { 0 } else { 10_000 + RandomState::new().build_hasher().finish() % room };
        TcpListener::bind(("127.0.0.1", u16::try_from(port).unwrap_or(0)))
    })
    .take(1_000)
    .filter_map(|bound| Some(bound.ok()?.local_addr().ok()?.port()))
}

/// The value of `name:` in an answer of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}
