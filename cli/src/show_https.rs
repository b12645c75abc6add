//! `show https`: where the API for other machines is, and the certificate to pin.

use crate::Failure;
use crate::answer::Answer;
use crate::request::Request;
use gateway::https::model::Https;

pub(crate) fn show(request: &Request) -> Result<Answer, Failure> {
    Ok(Answer::new(request.ask::<Https>()?, |all| all.iter().map(text).collect()))
}

fn text(https: &Https) -> String {
    if let Some(problem) = &https.problem {
        return format!("The API over HTTPS is not served: {problem}\n");
    }
    if !https.is_served {
        return "The API over HTTPS is off\n  fix: set service https api keys id NAME key SECRET\n"
            .to_owned();
    }
    let fingerprint = https.fingerprint.as_deref().unwrap_or("unknown");
    format!(
        "Addresses:   {}\nKeys:        {}\nCertificate: SHA-256 {fingerprint}\n",
        https.addresses.join(", "),
        https.keys.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_and_what_is_not_is_shown() {
        let served = Https {
            is_served: true,
            addresses: vec!["0.0.0.0:443".to_owned(), "[::]:443".to_owned()],
            keys: vec!["ansible".to_owned()],
            fingerprint: Some("ab".to_owned()),
            problem: None,
        };
        assert_eq!(
            text(&served),
            "Addresses:   0.0.0.0:443, [::]:443\nKeys:        ansible\nCertificate: SHA-256 ab\n"
        );
        assert!(text(&Https::default()).contains("is off\n  fix: "));
        let refused = Https { problem: Some("no port".to_owned()), ..Https::default() };
        assert!(text(&refused).contains("not served: no port"));
    }
}
