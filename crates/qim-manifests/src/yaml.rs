//! A YAML stream as trees that know their lines, with anchors and merge keys resolved.
//!
//! Built on the parser's events rather than on a ready-made tree, because a tree no longer shows duplicate keys, the
//! line of a merged key, or whether a scalar stood in quotes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use crate::report::Problem;

/// Deepest nesting: several times what a manifest has, and little enough to recurse over.
const DEPTH_MAX: usize = 64;
/// Nodes in one file, merged keys counted each time: stops alias bombs.
const NODES_MAX: usize = 200_000;

/// A value and the line (from 1) where it begins.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) content: Content,
}

#[derive(Debug)]
pub(crate) enum Content {
    /// `plain`: without quotes and without a tag, so that `30` is a number and nothing is null.
    Scalar {
        text: String,
        plain: bool,
    },
    Sequence(Vec<Rc<Node>>),
    Mapping(Vec<Entry>),
}

/// A key of a mapping; `line` is where the key stands, for a merged one that of the anchor's mapping.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) line: usize,
    pub(crate) value: Rc<Node>,
}

impl Node {
    /// The value of `key`; `None` where this is no mapping, or the value is null.
    pub(crate) fn get(&self, key: &str) -> Option<&Rc<Node>> {
        self.entry(key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value below a path of keys.
    pub(crate) fn at(&self, path: &[&str]) -> Option<&Rc<Node>> {
        let (first, rest) = path.split_first()?;
        let value = self.get(first)?;
        if rest.is_empty() { Some(value) } else { value.at(rest) }
    }

    /// Nothing where this is no mapping.
    pub(crate) fn entries(&self) -> &[Entry] {
        if let Content::Mapping(entries) = &self.content { entries } else { &[] }
    }

    /// Nothing where this is no sequence.
    pub(crate) fn items(&self) -> &[Rc<Node>] {
        if let Content::Sequence(items) = &self.content { items } else { &[] }
    }

    /// The text of a scalar, whatever its type.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Content::Scalar { text, .. } = &self.content { Some(text) } else { None }
    }

    /// The text below `key`.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.text_of(key) == Some("true")
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.content, Content::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub(crate) fn is_mapping(&self) -> bool {
        matches!(self.content, Content::Mapping(_))
    }

    /// Whether YAML reads this as a number or a truth value, which Kubernetes refuses where it wants a string.
    pub(crate) fn is_number_or_bool(&self) -> bool {
        let Content::Scalar { text, plain: true } = &self.content else { return false };
        let unsigned = text.trim_start_matches(['+', '-']);
        let number = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            && (unsigned.parse::<f64>().is_ok()
                || ["0x", "0o", "0b"].iter().any(|prefix| unsigned.starts_with(prefix)));
        number || matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "yes" | "no" | "on" | "off")
    }
}

/// What a file holds: its documents, and what is wrong with it. A malformed file has no documents.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) documents: Vec<Rc<Node>>,
    pub(crate) problems: Vec<Problem>,
}

pub(crate) fn parse(text: &str) -> Stream {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text.trim_start_matches('\u{feff}'));
    while let Some(event) = parser.next_event() {
        let outcome = match event {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                Err(Problem::new(error.marker().line(), format!("malformed YAML: {}", error.info())))
            }
        };
        if let Err(problem) = outcome {
            builder.problems.push(problem);
            return Stream { documents: Vec::new(), problems: builder.problems };
        }
    }
    Stream { documents: builder.documents, problems: builder.problems }
}

enum Frame {
    Sequence { anchor: usize, line: usize, items: Vec<Rc<Node>> },
    Mapping { anchor: usize, line: usize, mapping: MappingFrame },
}

#[derive(Default)]
struct MappingFrame {
    entries: Vec<Entry>,
    key: Option<Key>,
    seen: BTreeSet<String>,
    merged: Vec<Entry>,
}

struct Key {
    text: String,
    line: usize,
    is_merge: bool,
}

#[derive(Default)]
struct Builder {
    documents: Vec<Rc<Node>>,
    problems: Vec<Problem>,
    stack: Vec<Frame>,
    anchors: BTreeMap<usize, Rc<Node>>,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Problem> {
        let line = span.start.line();
        match event {
            Event::DocumentStart(_) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                self.report_merge_tag(tag.as_deref(), line);
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let content = Content::Scalar { text: text.into_owned(), plain };
                self.complete(anchor, Rc::new(Node { line, content }))?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.report_merge_tag(tag.as_deref(), line);
                self.open(line, Frame::Sequence { anchor, line, items: Vec::new() })?;
            }
            Event::MappingStart(anchor, tag) => {
                self.report_merge_tag(tag.as_deref(), line);
                self.open(line, Frame::Mapping { anchor, line, mapping: MappingFrame::default() })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.close()?,
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| {
                    Problem::new(line, "malformed YAML: an alias without an anchor in its document")
                })?;
                self.complete(0, node)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    /// Compose's own tags change how files are laid over each other, which is not followed.
    fn report_merge_tag(&mut self, tag: Option<&Tag>, line: usize) {
        if let Some(tag) = tag.filter(|tag| matches!(tag.suffix.as_str(), "reset" | "override")) {
            let message = format!(
                "the tag !{} is not followed: check what `docker compose config` prints instead",
                tag.suffix
            );
            self.problems.push(Problem::new(line, message));
        }
    }

    fn open(&mut self, line: usize, frame: Frame) -> Result<(), Problem> {
        if self.stack.len() >= DEPTH_MAX {
            return Err(Problem::new(line, format!("nested more than {DEPTH_MAX} deep")));
        }
        self.stack.push(frame);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Problem> {
        match self.stack.pop() {
            Some(Frame::Sequence { anchor, line, items }) => {
                self.complete(anchor, Rc::new(Node { line, content: Content::Sequence(items) }))
            }
            Some(Frame::Mapping { anchor, line, mapping }) => {
                let MappingFrame { mut entries, merged, .. } = mapping;
                let mut own: BTreeSet<String> = entries.iter().map(|entry| entry.key.clone()).collect();
                for entry in merged {
                    if own.insert(entry.key.clone()) {
                        self.nodes += 1;
                        entries.push(entry);
                    }
                }
                self.complete(anchor, Rc::new(Node { line, content: Content::Mapping(entries) }))
            }
            None => Ok(()),
        }
    }

    /// A node is whole: it becomes an item, a key, a value or a document.
    fn complete(&mut self, anchor: usize, node: Rc<Node>) -> Result<(), Problem> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(Problem::new(node.line, format!("more than {NODES_MAX} values")));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        match self.stack.last_mut() {
            None => self.documents.push(node),
            Some(Frame::Sequence { items, .. }) => items.push(node),
            Some(Frame::Mapping { mapping, .. }) => {
                if let Some(problem) = mapping.take(node)? {
                    self.problems.push(problem);
                }
            }
        }
        Ok(())
    }
}

impl MappingFrame {
    /// The next key or value. A repeated key is a problem that does not stop the reading: the last value stays.
    fn take(&mut self, node: Rc<Node>) -> Result<Option<Problem>, Problem> {
        let Some(key) = self.key.take() else {
            let Content::Scalar { text, plain } = &node.content else {
                return Err(Problem::new(node.line, "malformed manifest: a key that is not plain text"));
            };
            let is_merge = *plain && text == "<<";
            self.key = Some(Key { text: text.clone(), line: node.line, is_merge });
            return Ok(None);
        };
        let repeated = !self.seen.insert(key.text.clone());
        let problem = repeated.then(|| Problem::new(key.line, format!("duplicate key {:?}", key.text)));
        if key.is_merge {
            self.merge(&node)?;
            return Ok(problem);
        }
        if repeated {
            self.entries.retain(|entry| entry.key != key.text);
        }
        self.entries.push(Entry { key: key.text, line: key.line, value: node });
        Ok(problem)
    }

    /// `<<: *one` or `<<: [*one, *two]`; where both have a key, the first has it.
    fn merge(&mut self, node: &Rc<Node>) -> Result<(), Problem> {
        let sources = if node.is_mapping() { std::slice::from_ref(node) } else { node.items() };
        if sources.is_empty() || !sources.iter().all(|source| source.is_mapping()) {
            return Err(Problem::new(node.line, "malformed YAML: << takes a mapping or a list of mappings"));
        }
        for source in sources {
            self.merged.extend_from_slice(source.entries());
            if self.merged.len() > NODES_MAX {
                return Err(Problem::new(node.line, format!("more than {NODES_MAX} values")));
            }
        }
        Ok(())
    }
}
