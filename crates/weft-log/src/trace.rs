//! What clients asked for, one request after the other.
//!
//! An object is a place in the list of its names; names take the memory, requests are short.

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Since 1970; of a workload that is made up, since its beginning.
    pub time_s: u64,
    /// Who asks.
    pub client: u32,
    /// For what.
    pub object: u32,
    /// Bytes of the content, where they are told.
    pub bytes: Option<u32>,
    /// The object that referred to it.
    pub referer: Option<u32>,
    /// What is done to it.
    pub act: Act,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// The object is read.
    Read,
    /// Another content takes its place.
    Replace,
}

/// Requests in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// Of the objects: a path, with the query where there is one.
    pub names: Vec<String>,
    /// In the order in which they came.
    pub requests: Vec<Request>,
}

impl Trace {
    /// The length of each object, the first that was told; `None` where none was.
    pub fn lengths(&self) -> Vec<Option<u32>> {
        let mut lengths = vec![None; self.names.len()];
        for request in &self.requests {
            let length: &mut Option<u32> = &mut lengths[request.object as usize];
            *length = length.or(request.bytes);
        }
        lengths
    }

    /// The folder that an object lies in: its name up to the last slash of the path.
    pub fn folder(&self, object: u32) -> &str {
        let name = &self.names[object as usize];
        let path = name.split_once('?').map_or(name.as_str(), |(path, _)| path);
        path.rfind('/').map_or("", |slash| &path[..=slash])
    }
}
