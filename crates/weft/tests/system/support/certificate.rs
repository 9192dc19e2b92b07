//! A certificate for 127.0.0.1 that nobody but the tests trusts.

use std::path::PathBuf;

/// A key, and its certificate, which is its own authority.
pub struct Certificate {
    /// The certificate, in PEM: also what `ca_file` names.
    pub chain: PathBuf,
    /// The key, in PEM.
    pub key: PathBuf,
    _folder: tempfile::TempDir,
}

impl Certificate {
    /// For a host or an address.
    pub fn of(name: &str) -> Certificate {
        let signed = rcgen::generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        std::fs::write(&chain, signed.cert.pem()).expect("written");
        std::fs::write(&key, signed.signing_key.serialize_pem()).expect("written");
        Certificate { chain, key, _folder: folder }
    }

    /// The part of a configuration file that trusts it.
    pub fn trusted(&self) -> String {
        format!("[web]\nca_file = \"{}\"\n", self.chain.display())
    }
}
