//! Reads and parses a file on a thread of its own, some lines ahead of whoever takes them.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Stdin};
use std::path::Path;

use qim_core::TenantId;
use tokio::sync::mpsc;

use super::Entry;
use crate::failure::Failure;

/// What is read at once; the lines in it are handed on together.
const READ_BYTES: usize = 64 << 10;
/// How many such chunks wait to be taken.
const CHUNKS_AHEAD: usize = 8;
/// A longer line is refused unread: no message that a server takes needs so much.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Where lines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source(String);

impl Source {
    /// `-` is standard input.
    pub(crate) fn new(path: &Path) -> Self {
        Self(path.display().to_string())
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 == "-" { "stdin" } else { &self.0 })
    }
}

/// One line, not blank.
#[derive(Debug)]
pub(crate) struct ParsedLine {
    /// Counts from 1.
    pub(crate) number: u64,
    /// Where the next line starts.
    pub(crate) end: u64,
    /// What it says, or what is wrong with it.
    pub(crate) entry: Result<Entry, String>,
}

/// The lines of a file, in chunks, as they are read.
#[derive(Debug)]
pub(crate) struct Input {
    chunks: mpsc::Receiver<io::Result<Vec<ParsedLine>>>,
    source: Source,
    /// The length of the file, where it has one.
    pub(crate) bytes: Option<u64>,
}

impl Input {
    /// Opens the file and starts to read it.
    pub(crate) fn open(path: &Path, tenant: TenantId) -> Result<Self, Failure> {
        let source = Source::new(path);
        let unreadable = |error: io::Error| Failure::Usage(format!("cannot read {source}: {error}"));
        let (file, bytes) = if path.as_os_str() == "-" {
            (Reader::Stdin(io::stdin()), None)
        } else {
            let file = File::open(path).map_err(unreadable)?;
            let metadata = file.metadata().map_err(unreadable)?;
            if metadata.is_dir() {
                return Err(unreadable(io::ErrorKind::IsADirectory.into()));
            }
            (Reader::File(file), metadata.is_file().then_some(metadata.len()))
        };
        let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
        std::thread::Builder::new()
            .name("ndjson".to_owned())
            .spawn(move || read_all(BufReader::with_capacity(READ_BYTES, file), &tenant, &sender))
            .map_err(unreadable)?;
        Ok(Self { chunks, source, bytes })
    }

    /// The next lines; `None` at the end.
    pub(crate) async fn next_chunk(&mut self) -> Result<Option<Vec<ParsedLine>>, Failure> {
        let chunk = self.chunks.recv().await.transpose();
        chunk.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", self.source)))
    }
}

enum Reader {
    File(File),
    Stdin(Stdin),
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Stdin(stdin) => stdin.lock().read(buffer),
        }
    }
}

/// Ends with the file, with an error, or when nobody takes the lines any more.
fn read_all(
    mut file: BufReader<impl Read>,
    tenant: &TenantId,
    sender: &mpsc::Sender<io::Result<Vec<ParsedLine>>>,
) {
    let (mut line, mut number, mut end) = (Vec::new(), 0, 0);
    let mut chunk = Vec::new();
    loop {
        // To have the next line whole may take a slow pipe's time; what is parsed does not wait with it.
        let next_is_here = file.buffer().contains(&b'\n');
        if !next_is_here && !chunk.is_empty() && sender.blocking_send(Ok(std::mem::take(&mut chunk))).is_err()
        {
            return;
        }
        let read = match next_line(&mut file, &mut line) {
            Ok(Some(read)) => read,
            Ok(None) => {
                return assert!(chunk.is_empty(), "the last lines are handed on before the end is seen");
            }
            Err(error) => {
                // Nobody may be left to hear of it.
                let _ = sender.blocking_send(Err(error));
                return;
            }
        };
        number += 1;
        end += read;
        if read > LINE_BYTES_MAX as u64 {
            let entry = Err(format!("is longer than {LINE_BYTES_MAX} bytes"));
            chunk.push(ParsedLine { number, end, entry });
        } else if !line.trim_ascii().is_empty() {
            chunk.push(ParsedLine { number, end, entry: Entry::parse(&line, tenant) });
        }
    }
}

/// Reads a line into `line`, and of one that is too long only as much as shows that it is. Answers how many bytes were
/// passed; `None` at the end of the file.
fn next_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<u64>> {
    line.clear();
    let mut passed = 0;
    loop {
        let buffer = match file.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok((passed > 0).then_some(passed));
        }
        let newline = buffer.iter().position(|byte| *byte == b'\n');
        let taken = newline.map_or(buffer.len(), |at| at + 1);
        if line.len() <= LINE_BYTES_MAX {
            line.extend_from_slice(&buffer[..taken]);
        }
        file.consume(taken);
        passed += taken as u64;
        if newline.is_some() {
            return Ok(Some(passed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(id: u32) -> String {
        format!(r#"{{"conversation":"c","sender":"s","client_msg_id":"{id}","body":"b","age_ms":1}}"#)
    }

    async fn lines_of(content: &[u8]) -> Vec<ParsedLine> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, content).unwrap();
        let mut input = Input::open(&path, TenantId::default()).unwrap();
        assert_eq!(input.bytes, Some(content.len() as u64));
        let mut lines = Vec::new();
        while let Some(chunk) = input.next_chunk().await.unwrap() {
            lines.extend(chunk);
        }
        lines
    }

    #[tokio::test]
    async fn lines_are_numbered_with_the_blank_ones_counted_and_passed_over() {
        let content = format!("\n{}\r\n   \nnonsense\n{}", good(1), good(2));
        let lines = lines_of(content.as_bytes()).await;
        let seen: Vec<_> = lines.iter().map(|line| (line.number, line.entry.is_ok())).collect();
        assert_eq!(seen, [(2, true), (4, false), (5, true)]);
        assert_eq!(lines[2].end, content.len() as u64);
    }

    #[tokio::test]
    async fn a_file_longer_than_what_is_read_at_once_comes_whole_and_in_order() {
        let content: String = (0..5000).map(|id| good(id) + "\n").collect();
        let lines = lines_of(content.as_bytes()).await;
        let ids: Vec<_> = lines.into_iter().map(|line| line.entry.unwrap().message.client_msg_id).collect();
        assert_eq!(ids, (0..5000).map(|id| id.to_string()).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_the_next_one_is_read() {
        let content = format!("{}\n{}\n", "x".repeat(LINE_BYTES_MAX + READ_BYTES * 3), good(1));
        let lines = lines_of(content.as_bytes()).await;
        assert!(lines[0].entry.as_ref().unwrap_err().starts_with("is longer than"));
        assert!(lines[1].entry.is_ok());
        assert_eq!(lines[1].number, 2);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_a_usage_error() {
        for path in ["/does/not/exist", "/"] {
            let failure = Input::open(Path::new(path), TenantId::default()).unwrap_err();
            assert_eq!(failure.exit_status(), 2, "{path}");
        }
    }
}
