//! A user's certificate, shown to servers that ask who connects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::tls_configs::TlsSlot;

/// A certificate with its key. Connections made with it are never lent to anybody without it.
pub(crate) struct Identity {
    /// No two identities of one process have the same.
    pub number: u64,
    pub resolver: Arc<SingleCertAndKey>,
    /// Of its own: a session that was begun with it must not be resumed without it.
    pub configs: TlsSlot,
}

impl Identity {
    /// Reads the certificate with its chain, and the key, both in PEM.
    ///
    /// # Errors
    /// What is wrong with them; nothing of the key.
    pub fn parse(texts: &[Vec<u8>]) -> Result<Identity, String> {
        let [chain, key] = texts else { return Err("a certificate and a key are needed".to_owned()) };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<_, _>>()
            .map_err(|_| "the certificate is not PEM".to_owned())?;
        if chain.is_empty() {
            return Err("holds no certificate in PEM form".to_owned());
        }
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| "the key is no key in PEM form".to_owned())?;
        let provider = rustls::crypto::ring::default_provider();
        let certified = CertifiedKey::from_der(chain, key, &provider)
            .map_err(|_| "the key is of an unknown kind, or not that of the certificate".to_owned())?;
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Ok(Identity { number, resolver: Arc::new(SingleCertAndKey::from(certified)), configs: TlsSlot::default() })
    }
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);
