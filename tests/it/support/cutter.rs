//! A wire to a Redis server that breaks where a test says: after the server has carried a command
//! out, and before anybody hears of it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use super::redis::Redis;

/// What breaks next.
#[derive(Debug, Default)]
struct Cut {
    /// Commands that hold these bytes.
    needle: Vec<u8>,
    left: usize,
    made: usize,
}

/// Listens on a free port of the loopback and passes everything on, until it is told to cut.
#[derive(Debug)]
pub(crate) struct Cutter {
    address: SocketAddr,
    cut: Arc<Mutex<Cut>>,
}

impl Cutter {
    /// In front of this server.
    pub(crate) fn before(redis: &Redis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let cut = Arc::<Mutex<Cut>>::default();
        let (port, shared) = (redis.port(), Arc::clone(&cut));
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                thread::spawn(move || pass(client, port, &shared));
            }
        });
        Self { address, cut }
    }

    /// For `store.url`.
    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The next `times` commands that hold `needle` reach the server; instead of its answers their
    /// connections end.
    pub(crate) fn cut_answers_to(&self, needle: &str, times: usize) {
        *self.cut.lock().unwrap() = Cut { needle: needle.as_bytes().to_vec(), left: times, made: 0 };
    }

    /// How many connections were cut since then.
    pub(crate) fn cuts(&self) -> usize {
        self.cut.lock().unwrap().made
    }
}

impl Cut {
    fn is_due(&mut self, bytes: &[u8]) -> bool {
        let due = self.left > 0 && bytes.windows(self.needle.len()).any(|piece| piece == self.needle);
        self.left -= usize::from(due);
        // Counted before the client can see it.
        self.made += usize::from(due);
        due
    }
}

/// Passes a connection on, both ways. Commands are small here, so that each comes in one piece.
fn pass(mut client: TcpStream, port: u16, cut: &Mutex<Cut>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)) else { return };
    let (Ok(mut from_server), Ok(mut to_client)) = (server.try_clone(), client.try_clone()) else { return };
    let silent = Arc::new(Mutex::new(false));
    let heard = Arc::clone(&silent);
    let answers = thread::spawn(move || {
        let mut bytes = [0_u8; 64 * 1024];
        while let Ok(got @ 1..) = from_server.read(&mut bytes) {
            if *heard.lock().unwrap() || to_client.write_all(&bytes[..got]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_server.shutdown(Shutdown::Both);
    });
    let mut bytes = [0_u8; 64 * 1024];
    while let Ok(got @ 1..) = client.read(&mut bytes) {
        if cut.lock().unwrap().is_due(&bytes[..got]) {
            // The server's next answer is the sign that it has carried the command out.
            *silent.lock().unwrap() = true;
            let _ = server.write_all(&bytes[..got]);
            let _ = answers.join();
            return;
        }
        if server.write_all(&bytes[..got]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Both);
}
