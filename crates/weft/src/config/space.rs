//! What the cache may hold, as the configuration writes it.

pub use weft_vfs::Class;

/// The keys of `[cache]` about space; `None` is no bound, and the default class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceSettings {
    /// The class of trees without one of their own.
    pub class: Option<Class>,
    /// Most bytes in all.
    pub max: Option<u64>,
    /// Most bytes of class scratch.
    pub scratch_max: Option<u64>,
    /// Most bytes of each host.
    pub max_per_host: Option<u64>,
    /// Bytes of the disk that are left free.
    pub keep_free: Option<u64>,
}

impl SpaceSettings {
    /// These settings where they say something, otherwise those `below`.
    pub(super) fn over(self, below: SpaceSettings) -> SpaceSettings {
        SpaceSettings {
            class: self.class.or(below.class),
            max: self.max.or(below.max),
            scratch_max: self.scratch_max.or(below.scratch_max),
            max_per_host: self.max_per_host.or(below.max_per_host),
            keep_free: self.keep_free.or(below.keep_free),
        }
    }
}

/// Reads `pinned`, `kept` or `scratch`.
///
/// # Errors
/// A sentence that says what is allowed.
pub fn parse_class(text: &str) -> Result<Class, String> {
    let found = WORDS.into_iter().find(|(word, _)| *word == text);
    found.map(|(_, class)| class).ok_or_else(|| format!("`{text}` is no class: write pinned, kept or scratch"))
}

/// Writes a class as [`parse_class`] reads it.
pub fn show_class(class: Class) -> &'static str {
    WORDS.into_iter().find(|(_, other)| *other == class).map_or("kept", |(word, _)| word)
}

const WORDS: [(&str, Class); 3] = [("pinned", Class::Pinned), ("kept", Class::Kept), ("scratch", Class::Scratch)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_read_and_written_alike() {
        for (word, class) in WORDS {
            assert_eq!((parse_class(word), show_class(class)), (Ok(class), word));
        }
        assert!(parse_class("keep").is_err());
    }
}
