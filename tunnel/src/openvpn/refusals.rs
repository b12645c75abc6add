//! Sentences for operators about why TLS or a certificate was refused, where rustls is stricter than OpenSSL too.

use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// What is wrong, and what to do.
pub fn sentence(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => {
            format!("the peer's certificate is refused: {}", certificate(error))
        }
        Error::NoCertificatesPresented => {
            String::from("the peer sent no certificate, which is required here")
        }
        Error::AlertReceived(alert) => format!("the peer ended TLS: {}", alert_sentence(*alert)),
        Error::PeerIncompatible(
            PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            | PeerIncompatible::Tls13RequiredForQuic,
        ) => String::from("the peer offers no TLS 1.2 or 1.3; TLS 1.0 and 1.1 are not supported"),
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => {
            String::from("no common TLS cipher suite: static RSA and finite-field DHE are not supported")
        }
        other => other.to_string(),
    }
}

/// What is wrong with a certificate of ours.
#[must_use]
pub fn of_own_certificate(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(error) => certificate(error),
        other => other.to_string(),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Other(other) => {
            let chain = other.0.downcast_ref::<webpki::Error>();
            chain.map_or_else(|| other.0.to_string(), super::verify::sentence)
        }
        CertificateError::BadEncoding => {
            String::from("it is malformed, or an X.509 certificate of version 1")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => String::from("it has expired"),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            String::from("it is not valid yet: check the clocks of both sides")
        }
        CertificateError::Revoked => String::from("it, or a CA of its chain, is revoked"),
        CertificateError::UnknownIssuer => String::from("no CA that is trusted here has issued it"),
        other => other.to_string(),
    }
}

fn alert_sentence(alert: AlertDescription) -> String {
    match alert {
        AlertDescription::UnknownCA => String::from("it does not trust the CA of our certificate"),
        AlertDescription::BadCertificate => String::from("it refuses our certificate"),
        AlertDescription::CertificateRevoked => String::from("our certificate is revoked"),
        AlertDescription::CertificateExpired => String::from("our certificate has expired"),
        AlertDescription::CertificateRequired => String::from("it requires a certificate, and we have none"),
        other => format!("alert {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::OtherError;
    use std::sync::Arc;

    #[test]
    fn an_old_certificate_of_ours_is_named_as_one_of_a_peer() {
        let error = OtherError(Arc::new(webpki::Error::UnsupportedCertVersion));
        let error = Error::InvalidCertificate(CertificateError::Other(error));
        let said = of_own_certificate(&error);
        assert!(said.contains("version 1 or 2: issue one of version 3"), "{said}");
    }
}
