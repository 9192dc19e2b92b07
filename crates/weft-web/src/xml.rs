//! Reading XML while it streams by, in bounded memory. No document type is read and no entity is known but the five of
//! XML itself, so that nothing expands.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{PrefixDeclaration, QName};
use quick_xml::{Error, Reader};
use weft_remote::{RemoteError, Result};

use crate::flow::Flow;

/// Takes what stands in a document, in its order.
pub(crate) trait Visitor: Send {
    /// An element begins.
    ///
    /// # Errors
    /// Why the document is no good.
    fn start(&mut self, namespace: &str, name: &str) -> std::result::Result<(), String>;

    /// The element that began last and has not ended ends. `text` is what was written in it, if it holds nothing else.
    ///
    /// # Errors
    /// Why the document is no good.
    fn end(&mut self, text: &str) -> std::result::Result<(), String>;
}

/// Reads a document to its end.
///
/// # Errors
/// `Damaged` when it is no XML, is too large or too deep, or when the visitor says so; those of the body.
pub(crate) async fn read_xml(url: &str, mut body: Flow, visitor: &mut impl Visitor) -> Result<()> {
    let damaged = |why: String| RemoteError::Damaged { detail: format!("{url}: {why}") };
    let mut document = Document::new(visitor);
    let mut bytes_read = 0;
    while let Some(bytes) = body.next().await.transpose()? {
        bytes_read += bytes.len() as u64;
        if bytes_read > BYTES_MAX {
            return Err(damaged("the XML is too long".to_owned()));
        }
        for chunk in bytes.chunks(CHUNK_BYTES) {
            document.feed(chunk).map_err(damaged)?;
        }
    }
    document.finish().map_err(damaged)
}

/// Reads a document in pieces of any size.
struct Document<'a, V> {
    visitor: &'a mut V,
    /// What has come and is not read: at most one tag, comment or section that is not whole, and the text before it.
    pending: Vec<u8>,
    /// The names of the elements that are open.
    open: Vec<String>,
    /// The namespaces that are declared: the depth of the element, the prefix, the name.
    namespaces: Vec<(usize, String, String)>,
    text: String,
    roots: usize,
}

impl<'a, V: Visitor> Document<'a, V> {
    fn new(visitor: &'a mut V) -> Document<'a, V> {
        let (pending, open, namespaces) = (Vec::new(), Vec::new(), Vec::new());
        Document { visitor, pending, open, namespaces, text: String::new(), roots: 0 }
    }

    fn feed(&mut self, bytes: &[u8]) -> std::result::Result<(), String> {
        self.pending.extend_from_slice(bytes);
        // Whatever is whole ends in this byte.
        if let Some(end) = self.pending.iter().rposition(|byte| *byte == b'>') {
            self.read(end + 1, false)?;
        }
        match self.pending.len() + self.text.len() > TOKEN_BYTES_MAX {
            true => Err("a part of the XML is too long".to_owned()),
            false => Ok(()),
        }
    }

    fn finish(mut self) -> std::result::Result<(), String> {
        self.read(self.pending.len(), true)?;
        match self.open.is_empty() && self.roots == 1 {
            true => Ok(()),
            false => Err("the XML ends too early".to_owned()),
        }
    }

    /// Reads what is whole in the first `end` bytes of what is pending.
    fn read(&mut self, end: usize, last: bool) -> std::result::Result<(), String> {
        let pending = std::mem::take(&mut self.pending);
        let mut reader = Reader::from_reader(&pending[..end]);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        // Elements that began in an earlier piece end here: they are checked below.
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        let mut done = 0;
        loop {
            match reader.read_event() {
                Ok(Event::Eof) => break,
                Ok(event) => self.take(event)?,
                // It may be whole when more has come.
                Err(Error::Syntax(_)) if !last => break,
                Err(e) => return Err(format!("this is no XML: {e}")),
            }
            done = usize::try_from(reader.buffer_position()).unwrap_or(end);
        }
        self.pending = pending;
        self.pending.drain(..done);
        Ok(())
    }

    fn take(&mut self, event: Event<'_>) -> std::result::Result<(), String> {
        match event {
            Event::Start(start) => self.start(&start)?,
            Event::End(end) => {
                if self.open.pop().as_deref() != Some(end.name().0) {
                    return Err("this is no XML: its elements do not end where they should".to_owned());
                }
                let depth = self.open.len();
                self.namespaces.retain(|(at, ..)| *at <= depth);
                self.visitor.end(&self.text)?;
                self.text.clear();
            }
            Event::Text(more) => self.text.push_str(&more.xml10_content()),
            Event::CData(more) => self.text.push_str(&more.xml10_content()),
            Event::GeneralRef(name) => self.text.push_str(&referred(&name)?),
            Event::DocType(_) => return Err("the XML has a document type, which listings have no use for".to_owned()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::Eof => {}
        }
        Ok(())
    }

    fn start(&mut self, start: &BytesStart<'_>) -> std::result::Result<(), String> {
        self.roots += usize::from(self.open.is_empty());
        if self.roots > 1 {
            return Err("the XML has more than one root".to_owned());
        }
        self.open.push(start.name().0.to_owned());
        if self.open.len() > DEPTH_MAX {
            return Err(format!("the XML is more than {DEPTH_MAX} elements deep"));
        }
        if start.attributes_raw().contains("xmlns") {
            self.declare(start)?;
        }
        self.text.clear();
        let namespace = namespace_of(&self.namespaces, start.name());
        self.visitor.start(namespace, start.local_name().into_inner())
    }

    /// Takes the declarations of namespaces (Namespaces in XML 1.0, section 3).
    fn declare(&mut self, start: &BytesStart<'_>) -> std::result::Result<(), String> {
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|e| format!("this is no XML: {e}"))?;
            let prefix = match attribute.key.as_namespace_binding() {
                Some(PrefixDeclaration::Default) => "",
                Some(PrefixDeclaration::Named(prefix)) => prefix,
                None => continue,
            };
            self.namespaces.push((self.open.len(), prefix.to_owned(), attribute.value.into_owned()));
            if self.namespaces.len() > NAMESPACES_MAX {
                return Err("the XML has too many namespaces".to_owned());
            }
        }
        Ok(())
    }
}

/// The namespace of an element; empty when it has none.
fn namespace_of<'n>(namespaces: &'n [(usize, String, String)], name: QName<'_>) -> &'n str {
    let prefix = name.prefix().map_or("", |prefix| prefix.into_inner());
    namespaces.iter().rev().find(|(_, declared, _)| declared == prefix).map_or("", |(.., namespace)| namespace)
}

/// What a reference stands for: a character by its number, or one of the five that XML knows.
fn referred(name: &BytesRef<'_>) -> std::result::Result<String, String> {
    match name.resolve_char_ref() {
        Ok(Some(character)) => Ok(character.to_string()),
        Ok(None) => match resolve_predefined_entity(name) {
            Some(plain) => Ok(plain.to_owned()),
            None => Err(format!("the XML has an entity that XML does not know: {:.40}", &**name)),
        },
        Err(e) => Err(format!("the XML has a character that cannot be: {e}")),
    }
}

/// Bytes read at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Longest document: a million names of a server that says much about each.
const BYTES_MAX: u64 = 1 << 30;
/// Longest tag or text: names and tags have some hundred bytes.
const TOKEN_BYTES_MAX: usize = 256 << 10;
/// Deepest nesting: a list needs six.
const DEPTH_MAX: usize = 32;
/// Most namespaces declared at a time.
const NAMESPACES_MAX: usize = 64;

/// Reads a document that is here, in pieces of `step` bytes.
#[cfg(test)]
pub(crate) fn read_pieces(xml: &[u8], step: usize, visitor: &mut impl Visitor) -> std::result::Result<(), String> {
    let mut document = Document::new(visitor);
    xml.chunks(step).try_for_each(|chunk| document.feed(chunk))?;
    document.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what it is told.
    #[derive(Default)]
    struct Told(Vec<String>);

    impl Visitor for Told {
        fn start(&mut self, namespace: &str, name: &str) -> std::result::Result<(), String> {
            self.0.push(format!("{namespace}{name}"));
            Ok(())
        }

        fn end(&mut self, text: &str) -> std::result::Result<(), String> {
            self.0.push(format!("/{text}"));
            Ok(())
        }
    }

    fn told(xml: &[u8], step: usize) -> std::result::Result<Vec<String>, String> {
        let mut told = Told::default();
        read_pieces(xml, step, &mut told)?;
        Ok(told.0)
    }

    #[test]
    fn pieces_of_any_size_tell_the_same() {
        let xml = "\u{feff}<?xml version=\"1.0\"?><!-- a > b --><p:a xmlns:p='P:' xmlns=\"D:\" x='>'><b>1 &lt; 2 > &#xe9;\u{fc}</b>\
            <c xmlns=\"C:\"/><d><![CDATA[<&]]>]]></d><p:e\n/></p:a>\n";
        let expected =
            ["P:a", "D:b", "/1 < 2 > \u{e9}\u{fc}", "C:c", "/", "D:d", "/<&]]>", "P:e", "/", "/"].map(str::to_owned);
        for step in [1, 2, 3, 7, 64, xml.len()] {
            assert_eq!(told(xml.as_bytes(), step).as_deref(), Ok(&expected[..]), "{step}");
        }
    }

    #[test]
    fn what_is_no_document_is_an_error_and_never_a_panic() {
        for xml in [
            "",
            " ",
            "text",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a><b></a></b>",
            "<a>&b;</a>",
            "<a",
            "<!DOCTYPE a><a/>",
            "<a><!--",
        ] {
            for step in [1, 100] {
                assert!(told(xml.as_bytes(), step).is_err(), "{xml}");
            }
        }
        let good = b"<a xmlns='x'><b c='d'>e&amp;<![CDATA[f]]><!-- g --></b></a>";
        for at in 0..good.len() {
            for byte in [0, b'<', b'>', b'&', b'"', 0xff] {
                let mut changed = good.to_vec();
                changed[at] = byte;
                let _ = told(&changed, 5);
            }
            assert!(told(&good[..at], 5).is_err());
        }
    }
}
