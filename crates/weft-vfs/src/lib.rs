//! The file system without kernel or network: namespace, inodes, leases, reads.
