//! Small volumes in memory, and contents that tell what they are.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weft_segment::device::{Device, MemoryDevice};
use weft_segment::{Class, Hints, Options, Packer, Shape, Volume};

/// Length of a small volume: some 70 segments of 64 KiB.
pub const VOLUME_BYTES: usize = 6 << 20;

/// The shape of a small volume.
pub const SHAPE: Shape = Shape { segment_bytes: 64 << 10, objects_max: Some(2000), uuid: Some(7) };

/// Everything in the order of the calls; nothing is kept in the buffer, so that reads go to the device.
pub fn options() -> Options {
    Options {
        buffer_bytes: 0,
        group_bytes: 1 << 20,
        age: Duration::from_secs(3600),
        packer: Packer::Caller,
        ..Options::default()
    }
}

/// An empty volume.
pub fn formatted() -> Vec<u8> {
    let device = MemoryDevice::new(VOLUME_BYTES);
    Volume::format(&device, &SHAPE).unwrap();
    device.image()
}

/// Opens what a device holds.
pub fn open<D: Device + 'static>(device: &Arc<D>, options: Options) -> Volume {
    Volume::open_on(Arc::clone(device) as Arc<dyn Device>, options).unwrap()
}

/// A new volume in memory.
pub fn new_volume(options: Options) -> (Arc<MemoryDevice>, Volume) {
    let device = Arc::new(MemoryDevice::of(formatted()));
    let volume = open(&device, options);
    (device, volume)
}

/// A content that follows from a number.
pub fn content(number: u64, length: usize) -> Bytes {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let bytes = (0..length).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    });
    bytes.collect::<Vec<u8>>().into()
}

/// The key of a number.
pub fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// Puts an object without hints.
pub fn put(volume: &Volume, number: u64, bytes: Bytes, class: Class) {
    volume.put(&key(number), &number.to_le_bytes(), bytes, Hints::default(), class).unwrap();
}

/// The content of a key; its attributes are compared.
pub fn get(volume: &Volume, number: u64) -> Option<Bytes> {
    let held = volume.get(&key(number)).unwrap()?;
    assert_eq!(held.attributes[..], number.to_le_bytes());
    Some(held.content)
}
