//! Bodies of a fake on their way.

use std::collections::VecDeque;

use bytes::Bytes;

use super::fault::Fault;
use super::{Fake, tree};
use crate::{Body, Known, Piece, RemoteError, Result, Span, Version};

/// A body that is being read: the content as it was when the body was made.
struct Running {
    fake: Fake,
    number: u64,
    rest: Bytes,
    delivered: u64,
    piece_bytes: usize,
    faults: VecDeque<Fault>,
    /// Delivered after the bytes.
    known: Option<Known>,
    ended: bool,
}

/// What a body is made of.
pub(super) struct Content {
    pub(super) number: u64,
    pub(super) version: Version,
    pub(super) bytes: Bytes,
    /// Whether the length is announced.
    pub(super) announced: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) known: Option<Known>,
}

impl Fake {
    /// A body over `span`; the whole content where the fake has no ranges.
    pub(super) fn body(&self, content: Content, span: Span) -> Body {
        let terms = self.terms();
        let length = content.bytes.len() as u64;
        let (start, end) = match (terms.ranges, span.length) {
            (false, _) => (0, length),
            (true, None) => (span.start.min(length), length),
            (true, Some(wanted)) => (span.start.min(length), span.start.saturating_add(wanted).min(length)),
        };
        let rest = content.bytes.slice(start as usize..end.max(start) as usize);
        let running = Running {
            fake: self.clone(),
            number: content.number,
            rest,
            delivered: 0,
            piece_bytes: terms.piece_bytes.max(1),
            faults: VecDeque::from(content.faults),
            known: content.known,
            ended: false,
        };
        Body {
            file: tree::file_id(content.number),
            version: content.version,
            start,
            file_length: content.announced.then_some(length),
            resumable: terms.ranges,
            stream: Box::pin(futures_util::stream::unfold(running, async |mut running| {
                let piece = running.next().await?;
                Some((piece, running))
            })),
        }
    }
}

impl Running {
    async fn next(&mut self) -> Option<Result<Piece>> {
        if self.ended {
            return None;
        }
        while let Some(after) = self.faults.front().map(after)
            && after <= self.delivered
        {
            let fault = self.faults.pop_front().expect("the loop has just seen it");
            if let Err(error) = self.strike(fault).await {
                self.ended = true;
                return Some(Err(error));
            }
        }
        if self.rest.is_empty() {
            self.ended = true;
            return self.known.take().map(|known| Ok(Piece::Known(known)));
        }
        let until_fault = self.faults.front().map(|fault| after(fault) - self.delivered);
        let take = self.piece_bytes.min(self.rest.len()).min(until_fault.unwrap_or(u64::MAX) as usize);
        let piece = self.rest.split_to(take);
        self.delivered += take as u64;
        self.fake.shared.counts.lock().content_bytes += take as u64;
        Some(Ok(Piece::Bytes(piece)))
    }

    async fn strike(&self, fault: Fault) -> Result<()> {
        let detail = format!("fake:{} after {} bytes", self.number, self.delivered);
        match fault {
            Fault::Stall { gate, .. } => gate.pass().await,
            Fault::Outdated { .. } => return Err(RemoteError::VersionChanged { detail }),
            Fault::CutShort { .. } => return Err(RemoteError::CutShort { detail }),
            Fault::ChangeUnderReader { to, .. } => {
                let mut tree = self.fake.shared.tree.lock();
                if tree.node(self.number).is_some() {
                    tree.set(self.number, to);
                }
                drop(tree);
                self.fake.broken(self.number);
                return Err(RemoteError::VersionChanged { detail });
            }
            Fault::Delay(_) | Fault::Error(_) | Fault::Disappear => {}
        }
        Ok(())
    }
}

/// After how many bytes a fault strikes.
fn after(fault: &Fault) -> u64 {
    match fault {
        Fault::Stall { after, .. }
        | Fault::ChangeUnderReader { after, .. }
        | Fault::Outdated { after }
        | Fault::CutShort { after } => *after,
        Fault::Delay(_) | Fault::Error(_) | Fault::Disappear => 0,
    }
}
