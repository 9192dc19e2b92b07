//! The control socket: protocol, client, server.
