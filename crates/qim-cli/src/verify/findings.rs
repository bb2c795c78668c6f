use std::collections::BTreeMap;

/// How many are told one by one.
const TOLD_MAX: usize = 20;

/// What a comparison gave. Each record of the file counts once as compared, missing or expired; those that are
/// different are among the compared ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Findings {
    pub(crate) compared: u64,
    pub(crate) missing: u64,
    pub(crate) different: u64,
    pub(crate) expired: u64,
    /// The first ones of the file that are missing or different, by line.
    first: BTreeMap<u32, String>,
}

impl Findings {
    /// Keeps what is wrong with a line, if it is among the first.
    pub(crate) fn tell(&mut self, line: u32, text: String) {
        self.first.insert(line, text);
        if self.first.len() > TOLD_MAX {
            self.first.pop_last();
        }
    }

    /// Lines and what is wrong with them, in the order of the file.
    pub(crate) fn first(&self) -> impl Iterator<Item = (u32, &str)> {
        self.first.iter().map(|(line, text)| (*line, text.as_str()))
    }

    /// How many are wrong and not among the first.
    pub(crate) fn untold(&self) -> u64 {
        (self.missing + self.different).saturating_sub(self.first.len() as u64)
    }

    /// All records that have been decided.
    pub(crate) fn total(&self) -> u64 {
        self.compared + self.missing + self.expired
    }

    /// Adds those of other records.
    pub(crate) fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.missing += other.missing;
        self.different += other.different;
        self.expired += other.expired;
        other.first.into_iter().for_each(|(line, text)| self.tell(line, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_of_the_file_are_told_and_the_others_counted() {
        let mut all = Findings::default();
        for line in (1..=50).rev() {
            let mut one = Findings { missing: 1, ..Findings::default() };
            one.tell(line, "is missing".to_owned());
            all.add(one);
        }
        assert_eq!(all.first().map(|(line, _)| line).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
        assert_eq!((all.untold(), all.total()), (30, 50));
    }
}
