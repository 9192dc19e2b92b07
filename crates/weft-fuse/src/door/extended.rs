//! Extended attributes.

use rustix::fs::XattrFlags;
use rustix::io::Errno as E;
use weft_fusedev::{Header, Reply};
use weft_remote::is_access_list;
use weft_vfs::NodeId;

use super::{Door, caller};
use crate::Errno;
use crate::handler::{Answer, Handler};
use crate::meter::Operation;

impl<H: Handler> Door<H> {
    pub(super) fn getxattr(&self, header: &Header, name: &[u8], size: u32, reply: Reply) {
        // Labels, and where no source has them access lists, are nothing that this file system has, which is another answer
        // than that there are none here: `ls -l` then asks for them once, not twice for each name.
        if !self.is_known(name) {
            return self.refuse(Operation::Getxattr, header, E::OPNOTSUPP, reply);
        }
        let found = self.handler.extended(caller(header), NodeId(header.node), name.to_vec());
        let value = async move { found.await?.ok_or(Errno(E::NODATA)) };
        self.answer_extended(Operation::Getxattr, header, value, size, reply);
    }

    pub(super) fn listxattr(&self, header: &Header, size: u32, reply: Reply) {
        // Weft's own are there for who asks by name; listed, `cp -a` would copy them to other file systems.
        let names = self.handler.extended_names(caller(header), NodeId(header.node));
        let has_access_lists = self.manner.access_lists;
        let list = async move {
            let mut list = Vec::new();
            for name in names.await?.iter().filter(|name| is_known(name, has_access_lists)) {
                list.extend_from_slice(name);
                list.push(0);
            }
            Ok(list)
        };
        self.answer_extended(Operation::Listxattr, header, list, size, reply);
    }

    pub(super) fn setxattr(&self, header: &Header, name: &[u8], value: &[u8], flags: u32, reply: Reply) {
        let must_exist = match XattrFlags::from_bits_retain(flags) {
            XattrFlags::CREATE => Some(false),
            XattrFlags::REPLACE => Some(true),
            none if none.is_empty() => None,
            _ => return self.refuse(Operation::Setxattr, header, E::INVAL, reply),
        };
        self.set(Operation::Setxattr, header, name, Some(value), must_exist, reply);
    }

    pub(super) fn removexattr(&self, header: &Header, name: &[u8], reply: Reply) {
        // An access list that is not there is one that says what the mode says.
        let must_exist = (!is_access_list(name)).then_some(true);
        self.set(Operation::Removexattr, header, name, None, must_exist, reply);
    }

    fn set(
        &self,
        operation: Operation,
        header: &Header,
        name: &[u8],
        value: Option<&[u8]>,
        must_exist: Option<bool>,
        reply: Reply,
    ) {
        if !self.is_known(name) {
            return self.refuse(operation, header, E::OPNOTSUPP, reply);
        }
        let (node, value) = (NodeId(header.node), value.map(<[u8]>::to_vec));
        let set = self.handler.set_extended(caller(header), node, name.to_vec(), value, must_exist);
        self.finish_by(&self.driver_of_change(node), operation, header, set, reply);
    }

    fn is_known(&self, name: &[u8]) -> bool {
        is_known(name, self.manner.access_lists)
    }

    /// Answers with bytes, as far as `size` has room for them.
    fn answer_extended(
        &self,
        operation: Operation,
        header: &Header,
        value: impl Future<Output = Answer<Vec<u8>>> + Send + 'static,
        size: u32,
        reply: Reply,
    ) {
        let asked = self.driver.meter.begin(operation, header);
        let value = async move {
            let value = value.await?;
            if size > 0 && value.len() > size as usize { Err(Errno(E::RANGE)) } else { Ok(value) }
        };
        self.driver.drive(asked, header, value, move |answer| {
            match answer {
                Ok(value) => reply.extended(&value, size),
                Err(errno) => reply.error(errno.raw()),
            };
        });
    }
}

/// Whether an attribute is one of those that users have, or an access list where there are any.
fn is_known(name: &[u8], has_access_lists: bool) -> bool {
    name.starts_with(b"user.") || (has_access_lists && is_access_list(name))
}
