//! The numbers of sources.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::index::Index;
use crate::{BindingId, Result, StoreError, key, value};

/// A source has the same number for ever.
#[derive(Debug)]
pub(crate) struct Bindings {
    /// By source. Held while a number is given out.
    numbers: Mutex<HashMap<String, BindingId>>,
}

impl Bindings {
    /// Those that an index knows.
    pub fn of(index: &Index) -> Result<Bindings> {
        let pairs = index.scan(key::BINDINGS, None, BINDINGS_MAX)?;
        let mut numbers = HashMap::new();
        for (key, value) in pairs {
            let source = std::str::from_utf8(&key[key::BINDINGS.len()..]).ok().map(str::to_owned);
            if let Some((source, binding)) = source.zip(value::decode(&key, &value).ok()) {
                index.remember(key, value);
                numbers.insert(source, binding);
            }
        }
        Ok(Bindings { numbers: Mutex::new(numbers) })
    }

    /// The number of a source, which gets one if it has none.
    ///
    /// # Errors
    /// `Index`, also when there are more sources than numbers are given out for.
    pub fn number_of(&self, source: &str, index: &Index) -> Result<BindingId> {
        let mut numbers = self.numbers.lock();
        if let Some(binding) = numbers.get(source) {
            return Ok(*binding);
        }
        if numbers.len() >= BINDINGS_MAX || source.len() > SOURCE_BYTES_MAX {
            return Err(StoreError::Index("too many sources, or too long a one".into()));
        }
        let last = numbers.values().max().map_or(0, |binding| binding.0);
        let binding = BindingId(last + 1);
        let key = key::binding(source);
        let value = value::encode(&key, &binding)?;
        index.apply_lasting(key, value)?;
        numbers.insert(source.into(), binding);
        Ok(binding)
    }
}

/// Most sources that get a number.
const BINDINGS_MAX: usize = 1 << 16;
/// Longest source.
const SOURCE_BYTES_MAX: usize = 16 << 10;
