//! `zoo serve`: show runs in a browser on this machine.

mod address;
mod folders;
mod index;

use crate::context::Context;
use crate::{Exit, Failure};
use folders::Folders;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use tiny_http::{Header, Method, Request, Response, Server};
use tracing::{debug, info, warn};
use zoo_pages::Link;
use zoo_train::report::compare;
use zoo_train::{RunRecord, TrainError, served_report};

/// Show the runs below a folder in a browser: live curves, comparisons, and the page of each run.
///
/// Listens on 127.0.0.1 only and writes nothing. Pages reload every two seconds, so you can watch a training. Press
/// Ctrl-C to stop.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zoo serve                       show the runs below ./runs
  zoo serve runs/digits --port 8080
  zoo serve --port 0              use any free port; the address is printed")]
pub struct Args {
    /// Folder to search for runs
    #[arg(value_name = "DIR", default_value = "runs")]
    folder: PathBuf,
    /// Port; 0 uses any free port
    #[arg(long, value_name = "N", default_value_t = 6543)]
    port: u16,
}

#[derive(Serialize)]
struct Report<'a> {
    address: &'a str,
}

/// The port of HTTP that browsers omit.
const DEFAULT_PORT: u16 = 80;

/// The script of the pages, which reloads them.
const SCRIPT: &str = include_str!("serve/live.js");

/// Answers requests until the process ends.
pub(super) fn run(args: &Args, context: &mut Context) -> Result<Exit, Failure> {
    if !args.folder.is_dir() {
        return Err(Failure::Usage(format!("{}: no such folder; name a folder with runs", args.folder.display())));
    }
    let refused =
        |error| Failure::Usage(format!("cannot listen on port {}: {error}; choose another with --port", args.port));
    let server = Server::http(("127.0.0.1", args.port)).map_err(refused)?;
    let port = server.server_addr().to_ip().map_or(args.port, |address| address.port());
    let address = format!("http://127.0.0.1:{port}/");
    context.show(&Report { address: &address }, |out| Ok(writeln!(out, "{address}")?))?;
    context.out.flush()?;
    info!("showing the runs below {}; press Ctrl-C to stop", args.folder.display());
    let mut site = Site { folders: Folders::new(&args.folder), port };
    for request in server.incoming_requests() {
        let answer = site.answer(&request);
        debug!("{} {}: {}", request.method(), request.url(), answer.status);
        if let Err(error) = request.respond(answer.response()) {
            debug!("the browser closed the connection: {error}");
        }
    }
    Ok(Exit::Pass)
}

struct Answer {
    status: u16,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn page(body: String) -> Self {
        Self { status: 200, kind: "text/html; charset=utf-8", body }
    }

    fn refusal(status: u16, text: &str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n") }
    }

    fn response(self) -> Response<std::io::Cursor<Vec<u8>>> {
        let headers = [
            ("Content-Type", self.kind),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "SAMEORIGIN"),
        ];
        let headers = headers.into_iter().filter_map(|(name, value)| Header::from_bytes(name, value).ok());
        headers.fold(Response::from_string(self.body).with_status_code(self.status), Response::with_header)
    }
}

struct Site {
    folders: Folders,
    port: u16,
}

impl Site {
    fn answer(&mut self, request: &Request) -> Answer {
        if !matches!(request.method(), Method::Get | Method::Head) {
            return Answer::refusal(405, "read only");
        }
        if !self.is_meant(request) {
            return Answer::refusal(403, "only for browsers on this machine");
        }
        let (path, query) = request.url().split_once('?').unwrap_or((request.url(), ""));
        let wanted: Vec<String> = form_urlencoded::parse(query.as_bytes())
            .filter(|(key, _)| key == "run")
            .map(|(_, value)| value.into_owned())
            .collect();
        let page = match (path, wanted.as_slice()) {
            ("/", _) => self.index(),
            ("/run", [run]) => self.run(run),
            ("/compare", [_, ..]) => self.comparison(&wanted),
            ("/compare", []) => return Answer::refusal(400, "tick the runs to compare"),
            ("/live.js", _) => {
                return Answer { status: 200, kind: "text/javascript; charset=utf-8", body: SCRIPT.into() };
            }
            _ => return Answer::refusal(404, "no such page"),
        };
        match page {
            Ok(Some(page)) => Answer::page(page),
            Ok(None) => Answer::refusal(404, "no such run"),
            Err(failure) => {
                warn!("{path}: {failure}");
                Answer::refusal(500, &failure.to_string())
            }
        }
    }

    /// Whether the request names a host of this machine. Names of other sites can resolve to it too (DNS rebinding).
    fn is_meant(&self, request: &Request) -> bool {
        let host = request.headers().iter().find(|header| header.field.equiv("Host"));
        host.is_some_and(|host| is_own(host.value.as_str(), self.port))
    }

    fn index(&mut self) -> Result<Option<String>, Failure> {
        let rows = self.folders.rows();
        index::page(self.folders.root(), &rows).map(Some)
    }

    fn run(&self, run: &str) -> Result<Option<String>, Failure> {
        let Some(folder) = self.folders.find(run) else { return Ok(None) };
        Ok(Some(served_report(&folder, vec![all_runs()])?))
    }

    fn comparison(&self, wanted: &[String]) -> Result<Option<String>, Failure> {
        let folders: Option<Vec<PathBuf>> = wanted.iter().map(|run| self.folders.find(run)).collect();
        let Some(folders) = folders else { return Ok(None) };
        let records = folders.iter().map(|folder| RunRecord::read(folder)).collect::<Result<Vec<_>, TrainError>>()?;
        let mut links = vec![all_runs()];
        links.extend(wanted.iter().map(|run| Link { text: run.clone(), href: address::href("/run", run) }));
        Ok(Some(compare(&records)?.page(&records, links)?))
    }
}

/// Whether the header `Host` names this machine and this port. Browsers omit the default port.
fn is_own(host: &str, port: u16) -> bool {
    ["127.0.0.1", "localhost"].iter().any(|name| match host.strip_prefix(name) {
        Some("") => port == DEFAULT_PORT,
        Some(rest) => rest == format!(":{port}"),
        None => false,
    })
}

fn all_runs() -> Link {
    Link { text: "all runs".to_owned(), href: "/".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_meant() {
        for name in ["127.0.0.1", "localhost"] {
            assert!(is_own(&format!("{name}:6543"), 6543) && !is_own(&format!("{name}:6543"), 80));
            assert!(is_own(name, 80) && is_own(&format!("{name}:80"), 80) && !is_own(name, 6543));
        }
        for other in ["example.com", "example.com:80", "localhost.example.com", "127.0.0.1.example.com:80", ""] {
            assert!(!is_own(other, 80), "{other}");
        }
    }
}
