//! Between browser and `zoo serve`: gives the frame in which pages are opened, and files; all else it passes on.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

/// The page with the frame, and the script that looks at what is in it.
const FRAME: &str = include_str!("frame.html");

pub struct Server {
    port: u16,
}

impl Server {
    /// Answers from now on: files of `folder`, and what `zoo serve` answers on `behind`.
    pub fn start(folder: PathBuf, behind: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let folder = folder.clone();
                std::thread::spawn(move || answer(stream, folder, behind));
            }
        });
        Self { port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

fn answer(mut stream: TcpStream, folder: PathBuf, behind: u16) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 2 {
        line.clear();
    }
    let target = first.split(' ').nth(1).unwrap_or("/").to_owned();
    let path = target.split('?').next().unwrap_or_default();
    if path == "/frame" {
        give(&mut stream, FRAME.as_bytes());
    } else if path == "/favicon.ico" {
        give(&mut stream, b"");
    } else if path == "/interrupt" {
        // As if the training had gone on, and been stopped.
        let log = folder.join("runs/digits/seed-0/events.jsonl");
        let text = fs::read_to_string(&log).unwrap();
        fs::write(&log, text + "{\"event\":\"interrupted\",\"step\":7}\n").unwrap();
        give(&mut stream, b"done");
    } else if let Some(file) = path.strip_prefix("/file/") {
        give(&mut stream, &fs::read(folder.join(file)).unwrap());
    } else {
        let mut zoo = TcpStream::connect(("127.0.0.1", behind)).unwrap();
        write!(zoo, "GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{behind}\r\nConnection: close\r\n\r\n").unwrap();
        let mut all = Vec::new();
        zoo.read_to_end(&mut all).unwrap();
        let _ = stream.write_all(&all);
    }
}

fn give(stream: &mut TcpStream, body: &[u8]) {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\nContent-Length: ";
    let _ = stream.write_all(format!("{head}{}\r\n\r\n", body.len()).as_bytes());
    let _ = stream.write_all(body);
}
