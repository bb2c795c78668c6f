//! Compose interpolation: `$NAME`, `${NAME}`, `${NAME:-default}` and its kin, `$$`.

use crate::value::Value;

/// Deepest nesting of `${A:-${B:-…}}`.
const DEPTH_MAX: usize = 16;

/// Why a variable's value cannot be told.
const UNRESOLVED: &str = "has no default and is not in the .env file beside the compose file";

/// Where a variable's value comes from; `None` where it is not set.
pub(crate) type Lookup<'a> = dyn Fn(&str) -> Option<Value> + 'a;

/// Replaces the variables in `template`. One that is not set and has no default becomes an unknown part with the
/// identity `${NAME}`. The error is a message about the template, without its text.
pub(crate) fn interpolate(template: &str, lookup: &Lookup<'_>) -> Result<Value, &'static str> {
    interpolate_at(template, lookup, 0)
}

fn interpolate_at(template: &str, lookup: &Lookup<'_>, depth: usize) -> Result<Value, &'static str> {
    if depth > DEPTH_MAX {
        return Err("${…} is nested too deep");
    }
    let mut value = Value::default();
    let mut rest = template;
    while let Some(start) = rest.find('$') {
        value.push_text(&rest[..start]);
        let after = &rest[start + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            value.push_text("$");
            rest = tail;
        } else if let Some(inner) = after.strip_prefix('{') {
            let end = closing_brace(inner).ok_or("${ without its }")?;
            value.push(expression(&inner[..end], lookup, depth)?);
            rest = &inner[end + 1..];
        } else {
            let end = name_end(after);
            match &after[..end] {
                "" => value.push_text("$"),
                name => value.push(plain(name, lookup)),
            }
            rest = &after[end..];
        }
    }
    value.push_text(rest);
    Ok(value)
}

/// The part between the braces.
fn expression(inner: &str, lookup: &Lookup<'_>, depth: usize) -> Result<Value, &'static str> {
    let end = name_end(inner);
    let (name, operation) = inner.split_at(end);
    if name.is_empty() {
        return Err("${…} without the name of a variable");
    }
    let (counts_empty, operation) = match operation.strip_prefix(':') {
        Some(operation) => (true, operation),
        None => (false, operation),
    };
    let Some(operator) = operation.chars().next() else {
        return if counts_empty { Err("${NAME:} without an operator") } else { Ok(plain(name, lookup)) };
    };
    let argument = || interpolate_at(&operation[1..], lookup, depth + 1);
    let found = lookup(name).filter(|value| !(counts_empty && value.known().as_deref() == Some("")));
    let mut value = match (operator, found) {
        ('-' | '?', Some(found)) if counts_empty && found.known().is_none() => {
            // Whether it is empty cannot be told, so neither can whether the argument is used.
            Value::unknown(format!("${{{inner}}}"), UNRESOLVED)
        }
        ('-' | '?', Some(found)) => found,
        ('-', None) | ('+', Some(_)) => argument()?,
        ('?', None) => unresolved(name),
        ('+', None) => Value::default(),
        _ => return Err("${NAME…} with an operator that compose does not have"),
    };
    value.inputs.insert(name.to_owned());
    Ok(value)
}

fn plain(name: &str, lookup: &Lookup<'_>) -> Value {
    let mut value = lookup(name).unwrap_or_else(|| unresolved(name));
    value.inputs.insert(name.to_owned());
    value
}

fn unresolved(name: &str) -> Value {
    Value::unknown(format!("${{{name}}}"), UNRESOLVED)
}

fn name_end(text: &str) -> usize {
    let allowed =
        |(at, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || (at > 0 && c.is_ascii_digit());
    text.char_indices().find(|&next| !allowed(next)).map_or(text.len(), |(at, _)| at)
}

/// The brace that closes an expression whose opening one is already taken.
fn closing_brace(text: &str) -> Option<usize> {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        match c {
            '}' if open == 0 => return Some(at),
            '}' => open -= 1,
            '{' if text[..at].ends_with('$') => open += 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::interpolate;
    use crate::value::Value;

    fn shown(template: &str) -> String {
        let lookup = |name: &str| match name {
            "SET" => Some(Value::of("60")),
            "EMPTY" => Some(Value::of("")),
            _ => None,
        };
        interpolate(template, &lookup).map_or_else(|message| format!("! {message}"), |value| value.shown())
    }

    #[test]
    fn every_form_of_compose_interpolation_is_resolved() {
        for (template, expected) in [
            ("30", "\"30\""),
            ("$SET", "\"60\""),
            ("${SET}d", "\"60d\""),
            ("${SET:-30}", "\"60\""),
            ("${EMPTY:-30}", "\"30\""),
            ("${EMPTY-30}", "\"\""),
            ("${NONE:-30}", "\"30\""),
            ("${NONE-30}", "\"30\""),
            ("${NONE:-${SET}}", "\"60\""),
            ("${NONE:-${OTHER:-7}}", "\"7\""),
            ("${SET:+1}${NONE:+2}${EMPTY+3}", "\"13\""),
            ("${SET:?no}", "\"60\""),
            ("${NONE}", "${NONE}"),
            ("$NONE", "${NONE}"),
            ("${NONE:?say it}", "${NONE}"),
            ("$$SET $5 $", "\"$SET $5 $\""),
        ] {
            assert_eq!(shown(template), expected, "{template}");
        }
    }

    #[test]
    fn a_broken_expression_is_refused() {
        for template in ["${SET", "${}", "${SET/a/b}", "${SET:}", &"${A:-".repeat(40)] {
            assert!(shown(template).starts_with('!'), "{template}");
        }
        let deep = format!("{}30{}", "${A:-".repeat(40), "}".repeat(40));
        assert_eq!(shown(&deep), "! ${…} is nested too deep");
    }

    #[test]
    fn the_variables_asked_for_are_remembered() {
        let value = interpolate("${A:-${B-1}}", &|_| None).unwrap();
        assert_eq!(value.inputs.iter().map(String::as_str).collect::<Vec<_>>(), ["A", "B"]);
    }
}
