//! POSIX access lists, which travel as extended attributes (acl(5); the names: linux/xattr.h).

/// The attribute that says who may use a file.
pub const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory that says who may use what is made in it.
pub const DEFAULT_ACCESS_LIST: &[u8] = b"system.posix_acl_default";

/// Whether an extended attribute is an access list.
pub fn is_access_list(name: &[u8]) -> bool {
    name == ACCESS_LIST || name == DEFAULT_ACCESS_LIST
}
