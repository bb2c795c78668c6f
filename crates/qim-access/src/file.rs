//! The file of tokens: one JSON object a line; lines that are empty or begin with `#` say nothing.
//!
//! A fault names line and field and quotes no value: what stands in the wrong place may be the token itself.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::Hash;

use qim_core::TenantId;
use serde_json::{Map, Value};

use crate::grant::{Grant, Tenants, validate_token_id};
use crate::right::{Right, Rights};
use crate::token::TokenDigest;

const FIELDS: [&str; 4] = ["id", "sha256", "tenants", "rights"];

/// All tokens there are, with what each of them allows. No two have the same name or digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFile {
    grants: Vec<Grant>,
}

/// All that is wrong with a file of tokens; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFaults(Vec<FileFault>);

/// What is wrong in one place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// Counted from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// Field and what is allowed, without any value.
    pub problem: String,
}

impl TokenFile {
    /// Takes the content of a file: all of it, or nothing. One without any token is a fault, too: it is more likely half
    /// written than meant.
    pub fn parse(text: &str) -> Result<Self, FileFaults> {
        let mut faults = Vec::new();
        let mut grants = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let says_something = !line.trim().is_empty() && !line.starts_with('#');
            if says_something {
                let mut entry = Entry { line: index + 1, faults: &mut faults };
                grants.extend(entry.grant(line).map(|grant| (index + 1, grant)));
            }
        }
        note_repeated(&grants, "id", |grant| &grant.id, &mut faults);
        note_repeated(&grants, "sha256", |grant| &grant.digest, &mut faults);
        if grants.is_empty() && faults.is_empty() {
            faults.push(FileFault { line: 0, problem: "holds no token".to_owned() });
        }
        faults.sort_by_key(|fault| fault.line);
        let grants = grants.into_iter().map(|(_, grant)| grant).collect();
        if faults.is_empty() { Ok(Self { grants }) } else { Err(FileFaults(faults)) }
    }

    /// One for each token.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }
}

fn note_repeated<K: Eq + Hash>(
    grants: &[(usize, Grant)],
    field: &str,
    key: impl Fn(&Grant) -> &K,
    faults: &mut Vec<FileFault>,
) {
    let mut seen = HashSet::new();
    for (line, grant) in grants {
        if !seen.insert(key(grant)) {
            let problem = format!("{field} is that of an earlier line");
            faults.push(FileFault { line: *line, problem });
        }
    }
}

/// One line that is being read.
struct Entry<'a> {
    line: usize,
    faults: &'a mut Vec<FileFault>,
}

impl Entry<'_> {
    fn fault(&mut self, problem: impl fmt::Display) {
        self.faults.push(FileFault { line: self.line, problem: problem.to_string() });
    }

    fn grant(&mut self, line: &str) -> Option<Grant> {
        let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
            self.fault("is not one JSON object");
            return None;
        };
        if fields.keys().any(|name| !FIELDS.contains(&name.as_str())) {
            self.fault(format!("has a field other than {}", FIELDS.join(", ")));
            return None;
        }
        let (id, digest) = (self.id(&fields), self.digest(&fields));
        let (tenants, rights) = (self.tenants(&fields), self.rights(&fields));
        Some(Grant { id: id?, digest: digest?, tenants: tenants?, rights: rights? })
    }

    fn id(&mut self, fields: &Map<String, Value>) -> Option<String> {
        let id = fields.get("id").and_then(Value::as_str).unwrap_or_default();
        validate_token_id(id).map_err(|error| self.fault(format!("id {error}"))).ok()?;
        Some(id.to_owned())
    }

    fn digest(&mut self, fields: &Map<String, Value>) -> Option<TokenDigest> {
        let digest = fields.get("sha256").and_then(Value::as_str).and_then(TokenDigest::from_hex);
        if digest.is_none() {
            self.fault("sha256 is not 64 lower-case hexadecimal digits");
        }
        digest
    }

    fn tenants(&mut self, fields: &Map<String, Value>) -> Option<Tenants> {
        if fields.get("tenants").and_then(Value::as_str) == Some("*") {
            return Some(Tenants::All);
        }
        let names = self.texts(fields, "tenants", "is neither \"*\" nor a list of at least one tenant")?;
        let mut tenants = BTreeSet::new();
        for (index, name) in names.into_iter().enumerate() {
            // It would be a tenant of that name, which nobody means.
            if name.is_empty() || name == "*" {
                self.fault(format!("tenants[{index}] names no tenant; all tenants are \"tenants\": \"*\""));
                return None;
            }
            match TenantId::new(name) {
                Ok(tenant) => drop(tenants.insert(tenant)),
                Err(error) => {
                    self.fault(format!("tenants[{index}] {error}"));
                    return None;
                }
            }
        }
        Some(Tenants::Some(tenants))
    }

    fn rights(&mut self, fields: &Map<String, Value>) -> Option<Rights> {
        let names = self.texts(fields, "rights", "is not a list of at least one right")?;
        let mut rights = Vec::new();
        for (index, name) in names.into_iter().enumerate() {
            match name.parse::<Right>() {
                Ok(right) => rights.push(right),
                Err(error) => {
                    self.fault(format!("rights[{index}] {error}"));
                    return None;
                }
            }
        }
        Some(rights.into_iter().collect())
    }

    fn texts<'a>(
        &mut self,
        fields: &'a Map<String, Value>,
        field: &str,
        otherwise: &str,
    ) -> Option<Vec<&'a str>> {
        let list = fields.get(field).and_then(Value::as_array).filter(|list| !list.is_empty());
        let texts = list.and_then(|list| list.iter().map(Value::as_str).collect::<Option<Vec<_>>>());
        if texts.is_none() {
            self.fault(format!("{field} {otherwise}"));
        }
        texts
    }
}

impl FileFaults {
    /// In the order of the file.
    pub fn faults(&self) -> &[FileFault] {
        &self.0
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.problem),
            line => write!(f, "line {line}: {}", self.problem),
        }
    }
}

impl fmt::Display for FileFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&told.join("; "))
    }
}

impl std::error::Error for FileFaults {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Token;

    fn grant(id: &str, tenants: Tenants) -> Grant {
        let digest = Token::generate().unwrap().digest();
        let rights = [Right::Append, Right::Pull].into_iter().collect();
        Grant { id: id.to_owned(), digest, tenants, rights }
    }

    #[test]
    fn lines_are_read_as_they_were_made_and_others_may_stand_between() {
        let some = Tenants::Some(["a", "default"].map(|name| TenantId::new(name).unwrap()).into());
        let (one, other) = (grant("one", Tenants::All), grant("other", some));
        let text = format!("# who and why\n\n{}\r\n{}", one.to_line(), other.to_line());
        assert_eq!(TokenFile::parse(&text).unwrap().grants(), [one, other]);
    }

    fn told(line: &str) -> String {
        TokenFile::parse(line).unwrap_err().to_string()
    }

    #[test]
    fn each_bad_field_is_named_with_its_line_and_no_value_is_quoted() {
        let good = grant("good", Tenants::All).to_line();
        let secret = Token::generate().unwrap();
        let of = |field: &str, value: Value| {
            let mut entry: Map<String, Value> = serde_json::from_str(&good).unwrap();
            entry.insert(field.to_owned(), value);
            format!("# first\n{}", Value::Object(entry))
        };
        for (field, value) in [
            ("id", Value::Null),
            ("id", secret.reveal().into()),
            ("sha256", secret.reveal().into()),
            ("tenants", secret.reveal().into()),
            ("tenants", Vec::<Value>::new().into()),
            ("tenants[0]", vec!["*"].into()),
            ("rights", "append".into()),
            ("rights", Vec::<Value>::new().into()),
        ] {
            let told = told(&of(field.trim_end_matches("[0]"), value));
            assert!(told.starts_with(&format!("line 2: {field} ")), "{told}");
            assert!(!told.contains(secret.reveal()), "{told}");
        }
        assert!(
            told(&of("rights", vec!["pull", secret.reveal()].into()))
                .starts_with("line 2: rights[1] is none of")
        );
        assert!(told(&of("expires", 1.into())).starts_with("line 2: has a field other than"));
        assert_eq!(told(secret.reveal()), "line 1: is not one JSON object");
    }

    #[test]
    fn all_faults_are_told_at_once_and_one_of_them_makes_the_whole_file_bad() {
        let (good, other) = (grant("good", Tenants::All), grant("other", Tenants::All));
        let bad = r#"{"id":"","sha256":"","tenants":[],"rights":[]}"#;
        let twice = Grant { id: "good".to_owned(), ..other.clone() };
        let text = [good.to_line(), bad.to_owned(), other.to_line(), twice.to_line()].join("\n");
        let faults = TokenFile::parse(&text).unwrap_err();
        let lines: Vec<usize> = faults.faults().iter().map(|fault| fault.line).collect();
        assert_eq!(lines, [2, 2, 2, 2, 4, 4], "{faults}");
    }

    #[test]
    fn a_file_without_a_token_is_a_fault() {
        for empty in ["", "\n\n", "# nothing\n"] {
            assert_eq!(told(empty), "holds no token");
        }
    }
}
