//! Reading what servers print: anchors, cells, sizes.

use percent_encoding::percent_decode_str;
use weft_remote::Figure;

use crate::name::{listed_path, name_of};

/// An anchor in a line: where it leads, what it says, what follows it.
pub(super) struct Anchor<'a> {
    pub href: String,
    pub text: String,
    pub rest: &'a str,
}

impl<'a> Anchor<'a> {
    /// The first anchor in `line` that holds text and not only a picture, or the room for one.
    pub fn first(mut line: &'a str) -> Option<Anchor<'a>> {
        for _ in 0..ANCHORS_MAX {
            let (_, after) = line.split_once("<a href=\"")?;
            let (href, after) = after.split_once("\">")?;
            let (text, rest) = after.split_once("</a>")?;
            let is_room = decode_entities(text).trim().is_empty() && rest.contains(&format!("<a href=\"{href}\">"));
            if !text.starts_with("<img") && !is_room {
                return Some(Anchor { href: decode_entities(href), text: decode_entities(text), rest });
            }
            line = rest;
        }
        None
    }

    /// The segment that it names in its own directory and whether that is a directory; `None` when it leads
    /// elsewhere or says another name than it leads to. Servers cut long names in the text and mark that.
    pub fn own_segment(&self) -> Option<(String, bool)> {
        let (segment, is_dir) = own_segment(&self.href)?;
        let name: String = percent_decode_str(&segment).decode_utf8_lossy().into_owned();
        let said = self.text.trim();
        let said = said.strip_suffix(['/', '@']).unwrap_or(said);
        let cut = said.strip_suffix("..>").or_else(|| said.strip_suffix("..")).filter(|cut| name.starts_with(*cut));
        // Bytes that are not UTF-8 may have been printed in another encoding.
        let unreadable = said.contains(char::REPLACEMENT_CHARACTER) || name.contains(char::REPLACEMENT_CHARACTER);
        (said == name.trim() || self.text.trim() == name.trim() || cut.is_some() || unreadable)
            .then_some((segment, is_dir))
    }

    /// Whether it leads to the parent directory.
    pub fn is_parent(&self) -> bool {
        let said = self.text.trim();
        let is_named =
            said == PARENT || said.strip_suffix("..>").is_some_and(|cut| !cut.is_empty() && PARENT.starts_with(cut));
        // A file may have that name as well.
        matches!(self.href.as_str(), ".." | "../") || (is_named && own_segment(&self.href).is_none())
    }
}

/// The canonical segment of a link that stays in its directory, and whether it ends in a slash.
pub(super) fn own_segment(href: &str) -> Option<(String, bool)> {
    let bare = href.strip_prefix("./");
    let (segment, is_dir) = match bare.unwrap_or(href).strip_suffix('/') {
        Some(segment) => (segment, true),
        None => (bare.unwrap_or(href), false),
    };
    // A colon before any slash would start a scheme, which is why servers put `./` before such names.
    let foreign = segment.contains(['/', '?', '#', '\\', char::REPLACEMENT_CHARACTER])
        || (bare.is_none() && segment.contains(':'));
    if segment.is_empty() || foreign || segment.chars().any(char::is_control) {
        return None;
    }
    name_of(segment, None)?;
    Some((listed_path(segment), is_dir))
}

/// Links written as whole paths: all that are no parent must lie in one directory, whichever it is.
#[derive(Default)]
pub(super) struct Siblings {
    dir: Option<String>,
}

impl Siblings {
    /// The segment that a link names, and whether it ends in a slash; `None` when it leads to another directory than the
    /// links before, or says another name than it leads to.
    pub fn own_segment(&mut self, href: &str, text: &str) -> Option<(String, bool)> {
        let href = decode_entities(href);
        let path = href.split('?').next()?;
        let (bare, slash) = path.strip_suffix('/').map_or((path, ""), |bare| (bare, "/"));
        let (dir, segment) = bare.rsplit_once('/')?;
        if !(dir.is_empty() || dir.starts_with('/') && !dir.starts_with("//")) {
            return None;
        }
        if *self.dir.get_or_insert_with(|| dir.to_owned()) != dir {
            return None;
        }
        Anchor { href: format!("./{segment}{slash}"), text: decode_entities(text), rest: "" }.own_segment()
    }
}

/// What stands between the first `<title>` and its end, if the page repeats it as a heading of this level.
pub(super) fn title_and_heading<'a>(page: &'a str, heading: &str) -> Option<(&'a str, &'a str)> {
    let (_, after) = page.split_once("<title>")?;
    let (title, after) = after.split_once("</title>")?;
    let (_, after) = after.split_once(&format!("<{heading}>{title}</{heading}>"))?;
    Some((title, after))
}

/// A size as servers print it: plain digits are exact; `1.2K` is rounded, in steps of 1024; `-` is unknown. `None`
/// when it is no size.
pub(super) fn size(text: &str) -> Option<Figure<u64>> {
    let text = text.trim();
    if text == "-" {
        return Some(Figure::Unknown);
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Some(text.parse().map_or(Figure::Unknown, exact_size));
    }
    let (number, power) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 1),
        (at, 'M') => (&text[..at], 2),
        (at, 'G') => (&text[..at], 3),
        (at, 'T') => (&text[..at], 4),
        (at, 'P') => (&text[..at], 5),
        _ => return None,
    };
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return None;
    }
    let number: f64 = number.parse().ok()?;
    // The cast saturates.
    Some(Figure::Rounded((number * 1024f64.powi(power)) as u64))
}

/// A size that a list tells exactly, unless no file can have it.
pub(crate) fn exact_size(bytes: u64) -> Figure<u64> {
    if i64::try_from(bytes).is_ok() { Figure::Exact(bytes) } else { Figure::Unknown }
}

/// The text of a table cell.
pub(super) fn cell_text(cell: &str) -> String {
    let start = cell.find('>').map_or(0, |at| at + 1);
    decode_entities(cell[start..].split("</td>").next().unwrap_or_default()).replace('\u{a0}', " ").trim().to_owned()
}

/// Undoes the character references that servers and pages use in links and names.
pub(crate) fn decode_entities(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.char_indices().take(REFERENCE_MAX).find(|(_, c)| *c == ';').map(|(end, _)| end);
        match end.and_then(|end| Some((reference(&rest[1..end])?, end))) {
            Some((character, end)) => {
                plain.push(character);
                rest = &rest[end + 1..];
            }
            None => {
                plain.push('&');
                rest = &rest[1..];
            }
        }
    }
    plain.push_str(rest);
    plain
}

fn reference(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(hex) => u32::from_str_radix(hex, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let at = LATIN_1.iter().position(|latin| *latin == name)?;
            return char::from_u32(0xa0 + u32::try_from(at).ok()?);
        }
    })
}

/// The names of the characters from U+00A0 to U+00FF, in their order (HTML 4.01 section 24.2).
#[rustfmt::skip]
const LATIN_1: [&str; 96] = [
    "nbsp", "iexcl", "cent", "pound", "curren", "yen", "brvbar", "sect",
    "uml", "copy", "ordf", "laquo", "not", "shy", "reg", "macr",
    "deg", "plusmn", "sup2", "sup3", "acute", "micro", "para", "middot",
    "cedil", "sup1", "ordm", "raquo", "frac14", "frac12", "frac34", "iquest",
    "Agrave", "Aacute", "Acirc", "Atilde", "Auml", "Aring", "AElig", "Ccedil",
    "Egrave", "Eacute", "Ecirc", "Euml", "Igrave", "Iacute", "Icirc", "Iuml",
    "ETH", "Ntilde", "Ograve", "Oacute", "Ocirc", "Otilde", "Ouml", "times",
    "Oslash", "Ugrave", "Uacute", "Ucirc", "Uuml", "Yacute", "THORN", "szlig",
    "agrave", "aacute", "acirc", "atilde", "auml", "aring", "aelig", "ccedil",
    "egrave", "eacute", "ecirc", "euml", "igrave", "iacute", "icirc", "iuml",
    "eth", "ntilde", "ograve", "oacute", "ocirc", "otilde", "ouml", "divide",
    "oslash", "ugrave", "uacute", "ucirc", "uuml", "yacute", "thorn", "yuml",
];
/// What Apache and others call the directory above, unless names are cut to less.
const PARENT: &str = "Parent Directory";
/// Anchors looked at in one line.
const ANCHORS_MAX: usize = 3;
/// Longest character reference that is looked for.
const REFERENCE_MAX: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_say_how_exact_they_are() {
        for (text, figure) in [
            ("0", Some(Figure::Exact(0))),
            ("1023", Some(Figure::Exact(1023))),
            (" 1.5K ", Some(Figure::Rounded(1536))),
            ("2G", Some(Figure::Rounded(2 << 30))),
            ("-", Some(Figure::Unknown)),
            ("99999999999999999999999999", Some(Figure::Unknown)),
            ("9999999999999999999999999P", Some(Figure::Rounded(u64::MAX))),
            ("K", None),
            ("1.2.3K", None),
            ("-1K", None),
            ("infK", None),
            ("\u{e9}", None),
            ("", None),
        ] {
            assert_eq!(size(text), figure, "{text}");
        }
    }

    #[test]
    fn links_that_leave_the_directory_name_nothing_in_it() {
        for href in ["", "/", "/a", "../a", "a/b", "http://x/", "x:y", "?C=N", "#a", "%2e%2e/", "a\\b", "a\nb"] {
            assert_eq!(own_segment(href), None, "{href:?}");
        }
        assert_eq!(own_segment("./a:b/"), Some(("a:b".into(), true)));
        assert_eq!(own_segment("%c3%bc"), Some(("%C3%BC".into(), false)));
    }

    #[test]
    fn references_are_decoded_and_others_stay() {
        assert_eq!(decode_entities("a&amp;b&#38;c&#x26;d&unknown;&"), "a&b&c&d&unknown;&");
        assert_eq!(decode_entities("caf&eacute;&nbsp;&yuml;&szlig;"), "caf\u{e9}\u{a0}\u{ff}\u{df}");
        assert_eq!(decode_entities("&#99999999999;&#xD800;&amp"), "&#99999999999;&#xD800;&amp");
    }
}
