//! `events.jsonl`: one [`Event`] per line, as JSON, in chronological order.
//!
//! Every line is written immediately, so a killed process leaves at most one incomplete line. A resumed run removes
//! events after its checkpoint and an incomplete last line, then appends. After a power failure, lines shortly before
//! the checkpoint may be missing.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use zoo_datasets::{atomic, files};

use crate::event::{Event, ListenError, Listener};

/// Limit of the length of a line.
const LONGEST: u64 = 1 << 24;

/// Appends events to a file.
pub struct EventLog {
    path: PathBuf,
    file: File,
}

impl EventLog {
    /// Creates a new file.
    ///
    /// # Errors
    /// The file already exists or cannot be created.
    pub fn create(path: PathBuf) -> Result<Self, ListenError> {
        let file = File::create_new(&path).map_err(ListenError::at(&path))?;
        Ok(Self { path, file })
    }

    /// Continues a file after the checkpoint at `step`, whose last evaluation was after `evaluated` steps. Also returns
    /// the events that were kept.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn resume(path: PathBuf, step: u64, evaluated: u64) -> Result<(Self, Vec<Event>), ListenError> {
        let (events, left_out) = lines(&path).map_err(ListenError::at(&path))?;
        if left_out {
            let aside = path.with_extension("jsonl.set-aside");
            fs::copy(&path, &aside).map_err(ListenError::at(&aside))?;
        }
        let kept: Vec<Event> = events.into_iter().filter(|event| stays(event, step, evaluated)).collect();
        let rewrite = |out: &mut dyn Write| kept.iter().try_for_each(|event| out.write_all(&line(event)?));
        atomic::replace(&path, rewrite).map_err(ListenError::at(&path))?;
        let file = OpenOptions::new().append(true).open(&path).map_err(ListenError::at(&path))?;
        Ok((Self { path, file }, kept))
    }
}

impl Listener for EventLog {
    fn hear(&mut self, event: &Event) -> Result<(), ListenError> {
        let write = |line: Vec<u8>| self.file.write_all(&line);
        line(event).and_then(write).map_err(|source| ListenError { path: self.path.clone(), source })
    }
}

/// The events of a file; none if there is no such file. Lines that are not events are skipped with a warning, except an
/// incomplete last line.
///
/// # Errors
/// A file that cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    Ok(lines(path)?.0)
}

/// The events, and whether lines were skipped.
fn lines(path: &Path) -> io::Result<(Vec<Event>, bool)> {
    let file = match files::open(path) {
        Ok((file, _)) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Default::default());
        }
        Err(error) => return Err(error),
    };
    let mut file = BufReader::new(file);
    let (mut events, mut line) = (Vec::new(), Vec::new());
    let (mut first_wrong, mut wrong) = (None, 0u64);
    for number in 1u64.. {
        line.clear();
        if (&mut file).take(LONGEST).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(event) if line.ends_with(b"\n") => events.push(event),
            // The incomplete end after a crash.
            _ if !line.ends_with(b"\n") && file.fill_buf()?.is_empty() => break,
            _ => {
                first_wrong = first_wrong.or(Some(number));
                wrong += 1;
            }
        }
    }
    if let Some(first) = first_wrong {
        tracing::warn!("{}:{first}: not an event of a run; {wrong} such lines are ignored", path.display());
    }
    Ok((events, first_wrong.is_some()))
}

/// Whether an event belongs to the training up to `step`, with evaluations up to that after `last` steps: a
/// resumed run repeats an evaluation that its checkpoint does not contain. The end event of an interrupted run does not
/// belong to it; a run that is resumed from step 0 has no earlier events.
fn stays(event: &Event, step: u64, last: u64) -> bool {
    match event {
        Event::Started(started) => step > 0 && started.resumed_at.is_none_or(|at| at <= step),
        Event::Step(done) => done.step <= step,
        Event::Evaluated(evaluated) => evaluated.step <= last,
        Event::Checkpointed { step: at, .. } => *at <= step,
        Event::Golden(_) | Event::Device(_) | Event::Cost(_) | Event::Memory(_) => step > 0,
        Event::Interrupted { .. } | Event::Failed { .. } | Event::Result(_) | Event::Verdict(_) => false,
    }
}

fn line(event: &Event) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::StepDone;

    fn step(step: u64) -> Event {
        let loss = 1.0 / step as f64;
        Event::Step(StepDone {
            step,
            epoch: 0.0,
            loss,
            components: vec![],
            gradient_norm: None,
            lr: 0.1,
            loss_scale: None,
            skipped: false,
            images_per_s: 1.0,
            seconds: 0.0,
        })
    }

    #[test]
    fn a_resumed_log_goes_on_where_the_checkpoint_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::create(path.clone()).unwrap();
        for number in 1..=4 {
            log.hear(&step(number)).unwrap();
        }
        log.hear(&Event::Interrupted { step: 4 }).unwrap();
        // A line truncated by a crash.
        log.file.write_all(b"{\"event\":\"step\",\"st").unwrap();
        let (mut log, kept) = EventLog::resume(path.clone(), 2, 0).unwrap();
        assert_eq!(kept, [step(1), step(2)]);
        log.hear(&step(3)).unwrap();
        assert_eq!(read(&path).unwrap(), [step(1), step(2), step(3)]);
    }

    #[test]
    fn a_line_that_is_no_event_takes_no_other_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::create(path.clone()).unwrap();
        log.hear(&step(1)).unwrap();
        log.file.write_all(b"{\"evont\":1}\n\n\xff\n").unwrap();
        log.hear(&step(2)).unwrap();
        assert_eq!(read(&path).unwrap(), [step(1), step(2)]);
        let before = fs::read(&path).unwrap();
        let (_, kept) = EventLog::resume(path.clone(), 2, 0).unwrap();
        assert_eq!(kept, [step(1), step(2)]);
        assert_eq!(fs::read(path.with_extension("jsonl.set-aside")).unwrap(), before);
    }

    #[test]
    fn nothing_overwrites_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        drop(EventLog::create(path.clone()).unwrap());
        assert!(EventLog::create(path).is_err());
        assert_eq!(read(&dir.path().join("absent")).unwrap(), []);
    }
}
