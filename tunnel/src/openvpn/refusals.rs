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

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Other(other) => other.0.to_string(),
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
