//! The same reads on a model of a disk that turns 7200 times in a minute, by the model's own clock.

use std::sync::Arc;

use anyhow::{Result, ensure};
use weft_segment::device::{Device, MemoryDevice, Rotating};
use weft_segment::{Affinity, Class, Hints, Options, Packer, Shape, Volume};

use super::Scale;
use super::pages::{Object, pages, source};
use crate::book::Book;
use crate::random::Random;
use crate::report::{Bound, Section, Unit};

/// Measures the table: once, for the model's clock does not depend on luck.
pub fn measure(scale: Scale) -> Result<Section> {
    let pages = pages(scale.pages.min(PAGES_MAX));
    let mut book = Book::default();
    let (together, alone) = (filled(&pages, true)?, filled(&pages, false)?);
    for (who, image, buffer_bytes) in [("weft", together, 16 << 20), ("an object at a time", alone, 0)] {
        let disk = Arc::new(Rotating::new(MemoryDevice::of(image), DISK_BYTES));
        let options = Options { buffer_bytes, packer: Packer::Caller, ..Options::default() };
        let volume = Volume::open_on(Arc::clone(&disk) as Arc<dyn Device>, options)?;
        let (start, requests) = (disk.clock(), disk.requests());
        let mut order: Vec<&Vec<Object>> = pages.iter().collect();
        Random::new(5).shuffle(&mut order);
        let mut objects = 0.0;
        for object in order.iter().copied().flatten() {
            let held = volume.get(&object.key())?;
            ensure!(held.is_some_and(|held| held.content.len() == object.length), "object {} differs", object.number);
            objects += 1.0;
        }
        book.note(who, "page", (disk.clock() - start).as_secs_f64() / order.len() as f64);
        book.note(who, "reads", (disk.requests() - requests) as f64 / objects);
    }
    let rows = [
        // The target is against ext4 on such a disk, which is another table: none is shown.
        book.compare("time of a page", Unit::Seconds, "page", ("an object at a time", "page"), None),
        book.alone("reads for each object", Unit::Each, "reads", Some(Bound::AtMost(0.3))),
    ];
    let notes = vec![format!(
        "{} pages on the first part of a disk of 250 GB, read in no order. Beside: the same store with objects in the \
         order in which they came, reading each alone. The paper (simulated disk of 2003): latency of the disk down by 18 to 77 percent.",
        pages.len()
    )];
    Ok(Section {
        title: "On a model of a disk that turns".to_owned(),
        rows: rows.into_iter().flatten().collect(),
        notes,
    })
}

/// A volume whose objects came as interleaved visitors would bring them.
fn filled(pages: &[Vec<Object>], told: bool) -> Result<Vec<u8>> {
    let bytes: usize = pages.iter().flatten().map(|object| object.length).sum();
    let device = Arc::new(MemoryDevice::new(bytes / 4 * 5 + (64 << 20)));
    Volume::format(&*device, &Shape::default())?;
    let options = Options { packer: Packer::Caller, ..Options::default() };
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, options)?;
    let source = source();
    for visitors in pages.chunks(VISITORS) {
        for page in visitors.iter().filter(|_| told) {
            let keys: Vec<[u8; 16]> = page.iter().map(|object| object.key()).collect();
            volume.hint(Affinity::Told, &keys.iter().map(|key| &key[..]).collect::<Vec<_>>());
        }
        for at in 0..visitors.iter().map(Vec::len).max().unwrap_or(0) {
            for object in visitors.iter().filter_map(|page| page.get(at)) {
                volume.put(&object.key(), b"", object.content(&source), Hints::default(), Class::Cache)?;
            }
        }
    }
    drop(volume);
    Ok(device.image())
}

/// The model needs memory for all of them, three times.
const PAGES_MAX: usize = 1200;
const VISITORS: usize = 8;
const DISK_BYTES: u64 = 250_000_000_000;
