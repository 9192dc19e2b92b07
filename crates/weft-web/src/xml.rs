//! Reading XML while it streams by, in bounded memory. No document type is read and no entity is known but the five of
//! XML itself, so that nothing expands.

use std::sync::atomic::{AtomicU64, Ordering};

use quick_xml::NsReader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;
use quick_xml::name::{Namespace, ResolveResult};
use tokio::io::{AsyncWriteExt, BufReader, DuplexStream};
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
/// `Damaged` when it is no XML, is cut short, is too large or too deep, or when the visitor says so; those of the body.
pub(crate) async fn read_xml(url: &str, body: Flow, visitor: &mut impl Visitor) -> Result<()> {
    let (writer, reader) = tokio::io::duplex(PIPE_BYTES);
    let progress = AtomicU64::new(0);
    let damaged = |why: String| RemoteError::Damaged { detail: format!("{url}: {why}") };
    let feeding = feed(body, writer, &progress);
    let (fed, parsed) = tokio::join!(feeding, parse(reader, &progress, visitor));
    // A body that broke off is the better word for a document that ends too early.
    match fed {
        Ok(()) => parsed.map_err(damaged),
        Err(Unfed::Body(error)) => Err(error),
        Err(Unfed::TooLarge(why)) => Err(damaged(why.to_owned())),
    }
}

/// Why the document was not handed on to its end.
enum Unfed {
    Body(RemoteError),
    TooLarge(&'static str),
}

async fn feed(mut body: Flow, mut writer: DuplexStream, progress: &AtomicU64) -> std::result::Result<(), Unfed> {
    let mut written = 0;
    while let Some(bytes) = body.next().await.transpose().map_err(Unfed::Body)? {
        for chunk in bytes.chunks(PIPE_BYTES) {
            if written - progress.load(Ordering::Relaxed).min(written) > TOKEN_BYTES_MAX {
                return Err(Unfed::TooLarge("a part of the XML is too long"));
            }
            written += chunk.len() as u64;
            if written > BYTES_MAX {
                return Err(Unfed::TooLarge("the XML is too long"));
            }
            if writer.write_all(chunk).await.is_err() {
                // The reader has given up and says why.
                return Ok(());
            }
        }
    }
    Ok(())
}

async fn parse(
    reader: DuplexStream,
    progress: &AtomicU64,
    visitor: &mut impl Visitor,
) -> std::result::Result<(), String> {
    let mut reader = NsReader::from_reader(BufReader::new(reader));
    reader.config_mut().expand_empty_elements = true;
    let (mut buffer, mut text, mut depth, mut roots) = (Vec::new(), String::new(), 0, 0);
    loop {
        buffer.clear();
        let read = reader.read_resolved_event_into_async(&mut buffer).await;
        let (namespace, event) = read.map_err(|e| format!("this is no XML: {e}"))?;
        match event {
            Event::Start(start) => {
                roots += usize::from(depth == 0);
                depth += 1;
                if roots > 1 {
                    return Err("the XML has more than one root".to_owned());
                }
                if depth > DEPTH_MAX {
                    return Err(format!("the XML is more than {DEPTH_MAX} elements deep"));
                }
                text.clear();
                let namespace = match namespace {
                    ResolveResult::Bound(Namespace(namespace)) => namespace,
                    ResolveResult::Unbound | ResolveResult::Unknown(_) => "",
                };
                visitor.start(namespace, start.local_name().into_inner())?;
            }
            Event::End(_) => {
                depth -= 1;
                visitor.end(&text)?;
                text.clear();
            }
            Event::Text(more) => text.push_str(&more.xml10_content()),
            Event::CData(more) => text.push_str(&more.xml10_content()),
            Event::GeneralRef(name) => match name.resolve_char_ref() {
                Ok(Some(character)) => text.push(character),
                Ok(None) => match resolve_predefined_entity(&name) {
                    Some(plain) => text.push_str(plain),
                    None => return Err(format!("the XML has an entity that XML does not know: {:.40}", &*name)),
                },
                Err(e) => return Err(format!("the XML has a character that cannot be: {e}")),
            },
            Event::DocType(_) => return Err("the XML has a document type, which listings have no use for".to_owned()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof if depth == 0 && roots == 1 => return Ok(()),
            Event::Eof => return Err("the XML ends too early".to_owned()),
        }
        progress.store(reader.buffer_position(), Ordering::Relaxed);
    }
}

/// Bytes on their way from the connection to the parser.
const PIPE_BYTES: usize = 64 << 10;
/// Longest document: a million names of a server that says much about each.
const BYTES_MAX: u64 = 1 << 30;
/// Longest tag or text: names and tags have some hundred bytes.
const TOKEN_BYTES_MAX: u64 = 256 << 10;
/// Deepest nesting: a list needs six.
const DEPTH_MAX: usize = 32;
