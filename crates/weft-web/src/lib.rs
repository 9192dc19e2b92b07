//! The web as a remote: a site is a directory (WFS).
