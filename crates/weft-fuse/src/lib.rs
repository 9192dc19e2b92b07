//! Kernel requests to vfs calls, the errno table and invalidation notices.
