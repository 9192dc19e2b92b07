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
        Certificate::written(&signed.cert.pem(), &signed.signing_key.serialize_pem())
    }

    fn written(certificate: &str, secret: &str) -> Certificate {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (chain, key) = (folder.path().join("chain.pem"), folder.path().join("key.pem"));
        std::fs::write(&chain, certificate).expect("written");
        std::fs::write(&key, secret).expect("written");
        Certificate { chain, key, _folder: folder }
    }

    /// For a host or an address, good from the first of January of one year to that of another.
    pub fn between(name: &str, years: std::ops::Range<i32>) -> Certificate {
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("a name");
        parameters.not_before = rcgen::date_time_ymd(years.start, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        let key = rcgen::KeyPair::generate().expect("a key");
        let signed = parameters.self_signed(&key).expect("a certificate");
        Certificate::written(&signed.pem(), &key.serialize_pem())
    }

    /// The part of a configuration file that trusts it.
    pub fn trusted(&self) -> String {
        format!("[web]\nca_file = \"{}\"\n", self.chain.display())
    }
}
