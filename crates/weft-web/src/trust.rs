//! Who is trusted to be the host that TLS leads to.

use std::collections::HashSet;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{VerifierBuilderError, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use sha2::{Digest, Sha256};

/// Hosts whose certificate is signed by an authority, and those that show the very certificate that is trusted.
///
/// `openssl req -x509` makes a certificate that signs itself and says that it is an authority (`basicConstraints`). Rustls
/// refuses that of a host whatever is trusted; other clients take it when it was named to them itself.
#[derive(Debug)]
pub(crate) struct Trust {
    authorities: Arc<WebPkiServerVerifier>,
    /// The SHA-256 of each certificate that is trusted.
    certificates: HashSet<[u8; 32]>,
}

impl Trust {
    /// Trusts these certificates; what cannot be read of them is left out.
    ///
    /// # Errors
    /// When none is left.
    pub fn new(
        certificates: Vec<CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Trust, VerifierBuilderError> {
        let digests = certificates.iter().map(|certificate| Sha256::digest(certificate).into()).collect();
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates);
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Trust { authorities, certificates: digests })
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // Its time is looked at before this is said, its name after.
            Err(error) if is_authority_itself(&error) => {
                if !self.certificates.contains(&Sha256::digest(end_entity)[..]) {
                    return Err(CertificateError::UnknownIssuer.into());
                }
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Whether a host's certificate was refused for being that of an authority. Rustls has no name for this error of webpki's
/// (`CaUsedAsEndEntity`) and passes on what it says.
fn is_authority_itself(error: &Error) -> bool {
    matches!(error, Error::InvalidCertificate(CertificateError::Other(other)) if other.to_string() == "CaUsedAsEndEntity")
}
