//! Env files: `NAME=value` lines, with compose's quoting or taken as they stand.

use std::collections::BTreeMap;

use crate::environment::SHARED;
use crate::report::Problem;
use crate::template::{self, Lookup};
use crate::value::Value;

/// How the text after the `=` is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Syntax {
    /// Compose: quotes, escapes, trailing comments, interpolation.
    Compose,
    /// `format: raw` in compose, `envs` in kustomize: everything after the `=`, as it stands.
    Raw,
}

/// One line (or a quoted value over several) of an env file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) text: Text,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    /// To be interpolated.
    Template(String),
    Verbatim(String),
    /// The name alone: the caller's value is passed on.
    Inherited,
}

/// What an env file says; lines that cannot be read are problems, which never repeat what the line holds.
#[derive(Debug, Default)]
pub(crate) struct EnvFile {
    pub(crate) assignments: Vec<Assignment>,
    pub(crate) problems: Vec<Problem>,
}

pub(crate) fn parse(text: &str, syntax: Syntax) -> EnvFile {
    let mut file = EnvFile::default();
    let mut lines = text.trim_start_matches('\u{feff}').lines().zip(1..);
    while let Some((content, line)) = lines.next() {
        let content = content.trim_start();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let more = || lines.next().map(|(more, _)| more);
        match assignment(content, syntax, more) {
            Ok((name, text)) => {
                if SHARED.contains(&name.as_str()) && file.assignments.iter().any(|it| it.name == name) {
                    file.problems.push(Problem::new(line, format!("duplicate {name}")));
                }
                file.assignments.push(Assignment { name, line, text });
            }
            Err(message) => file.problems.push(Problem::new(line, message)),
        }
    }
    file
}

/// Every variable of the file with its line: the last assignment wins. A variable in a value is looked up with
/// `outer` first, then among the lines before.
pub(crate) fn evaluate(
    file: &EnvFile,
    outer: &Lookup<'_>,
) -> (BTreeMap<String, (Value, usize)>, Vec<Problem>) {
    let mut values: BTreeMap<String, (Value, usize)> = BTreeMap::new();
    let mut problems = Vec::new();
    for Assignment { name, line, text } in &file.assignments {
        let value = match text {
            Text::Verbatim(text) => Value::of(text),
            Text::Inherited => outer(name).unwrap_or_else(|| Value::passed_through(name)),
            Text::Template(template) => {
                let lookup =
                    |name: &str| outer(name).or_else(|| values.get(name).map(|(value, _)| value.clone()));
                template::interpolate(template, &lookup).unwrap_or_else(|message| {
                    problems.push(Problem::new(*line, format!("{name}: {message}")));
                    Value::unknown(format!("{name} at line {line}"), "is not a valid expression")
                })
            }
        };
        values.insert(name.clone(), (value, *line));
    }
    (values, problems)
}

fn assignment<'a>(
    line: &'a str,
    syntax: Syntax,
    more: impl FnMut() -> Option<&'a str>,
) -> Result<(String, Text), &'static str> {
    let line = match line.strip_prefix("export") {
        Some(rest) if syntax == Syntax::Compose && rest.starts_with([' ', '\t']) => rest.trim_start(),
        _ => line,
    };
    let (name, text) = match line.split_once('=') {
        Some((name, text)) => (name, Some(text)),
        None => (line, None),
    };
    let name = if syntax == Syntax::Compose { name.trim_end() } else { name };
    if !is_name(name) {
        return Err("not a NAME=value line");
    }
    let text = match (text, syntax) {
        (None, _) => Text::Inherited,
        (Some(text), Syntax::Raw) => Text::Verbatim(text.to_owned()),
        (Some(text), Syntax::Compose) => compose_text(text.trim_start(), more)?,
    };
    Ok((name.to_owned(), text))
}

pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'))
}

fn compose_text<'a>(text: &'a str, more: impl FnMut() -> Option<&'a str>) -> Result<Text, &'static str> {
    if let Some(quoted) = text.strip_prefix('\'') {
        return Ok(Text::Verbatim(quoted_text('\'', quoted, more)?.replace("\\'", "'")));
    }
    if let Some(quoted) = text.strip_prefix('"') {
        return Ok(Text::Template(unescaped(&quoted_text('"', quoted, more)?)));
    }
    if text.starts_with('#') {
        return Ok(Text::Template(String::new()));
    }
    let end = text.find(" #").or_else(|| text.find("\t#")).unwrap_or(text.len());
    Ok(Text::Template(text[..end].trim_end().to_owned()))
}

/// What stands before the closing quote, which may be some lines further down.
fn quoted_text<'a>(
    quote: char,
    first: &'a str,
    mut more: impl FnMut() -> Option<&'a str>,
) -> Result<String, &'static str> {
    let mut text = String::new();
    let mut line = first;
    loop {
        let mut escaped = false;
        let end = line.char_indices().find(|&(_, c)| {
            let closes = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        if let Some((end, _)) = end {
            let after = line[end + 1..].trim_start();
            let only_comment = after.is_empty() || after.starts_with('#');
            text.push_str(&line[..end]);
            return if only_comment { Ok(text) } else { Err("text after the closing quote") };
        }
        text.push_str(line);
        text.push('\n');
        line = more().ok_or("a quote without its end")?;
    }
}

/// The escapes of a value in double quotes; `\$` becomes `$$`, which interpolation turns into a plain `$`.
fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('t') => plain.push('\t'),
            Some('$') => plain.push_str("$$"),
            Some(other @ ('"' | '\\' | '\'')) => plain.push(other),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::{EnvFile, Syntax, Text, evaluate, parse};

    fn texts(file: &EnvFile) -> Vec<(&str, &str, usize)> {
        let text = |text| match text {
            &Text::Template(ref text) | &Text::Verbatim(ref text) => text.as_str(),
            Text::Inherited => "(inherited)",
        };
        file.assignments.iter().map(|a| (a.name.as_str(), text(&a.text), a.line)).collect()
    }

    #[test]
    fn compose_quoting_is_read() {
        let file = parse(
            "# comment\n\nA=1\nexport B = two words # not this\nC='a \\'b\\' $X' # c\nD=\"x\\ty\\\"z\"\nE=a#b\nF=\nG\n\
             H=\"one\ntwo\"\nI= # nothing\n",
            Syntax::Compose,
        );
        assert_eq!(file.problems, []);
        let expected = [
            ("A", "1", 3),
            ("B", "two words", 4),
            ("C", "a 'b' $X", 5),
            ("D", "x\ty\"z", 6),
            ("E", "a#b", 7),
            ("F", "", 8),
            ("G", "(inherited)", 9),
            ("H", "one\ntwo", 10),
            ("I", "", 12),
        ];
        assert_eq!(texts(&file), expected);
    }

    #[test]
    fn a_raw_file_is_taken_as_it_stands() {
        let file = parse("A=\"30\" # all of it\n  B= 30 \n", Syntax::Raw);
        assert_eq!(texts(&file), [("A", "\"30\" # all of it", 1), ("B", " 30 ", 2)]);
    }

    #[test]
    fn a_line_that_cannot_be_read_is_named_and_not_repeated() {
        let file = parse("A=1\nsecret text\nB=\"x\" y\nC='open\n", Syntax::Compose);
        let problems: Vec<_> = file.problems.iter().map(|p| (p.line, p.message.as_str())).collect();
        let expected = [
            (2, "not a NAME=value line"),
            (3, "text after the closing quote"),
            (4, "a quote without its end"),
        ];
        assert_eq!(problems, expected);
    }

    #[test]
    fn a_value_sees_the_lines_before_and_the_last_assignment_wins() {
        let (values, problems) = evaluate(&parse("A=1\nB=${A}0\nA=2\n", Syntax::Compose), &|_| None);
        assert_eq!(problems, []);
        assert_eq!((values["B"].0.shown(), values["B"].1), ("\"10\"".to_owned(), 2));
        assert_eq!((values["A"].0.shown(), values["A"].1), ("\"2\"".to_owned(), 3));
    }
}
