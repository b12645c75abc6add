//! A client for one request: POST of JSON to a URL of the configuration. Of the answer only the status is read.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// Bytes of the head of an answer: hyper takes no smaller limit.
const LONGEST_HEAD: usize = 8192;
/// Where distributions keep the certificates of authorities: Debian, Fedora, SUSE, Alpine.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A request.
#[derive(Debug)]
pub struct Post<'a> {
    /// An absolute URL of http or https.
    pub url: &'a str,
    /// What is sent in the header `Authorization`.
    pub token: Option<&'a str>,
    /// The certificate of the only authority that is trusted, in DER; those of the machine if there is none.
    pub authority: Option<&'a [u8]>,
    /// JSON.
    pub body: Bytes,
}

/// Why a request failed. No text has the URL, which may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// It is no URL of http or https.
    #[error("it is no URL of http or https")]
    Url,
    /// The server cannot be reached.
    #[error("it cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    /// No authority can be trusted.
    #[error("the certificates of authorities cannot be used: {0}")]
    Authorities(String),
    /// It does not speak HTTP.
    #[error("it does not speak HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// It closed the connection before the answer.
    #[error("it hung up")]
    HungUp,
    /// It refused.
    #[error("it answers {0}")]
    Refused(StatusCode),
    /// It did not answer in time.
    #[error("it does not answer")]
    Silent,
}

impl PostError {
    /// Whether another try may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Url | Self::Authorities(_) => false,
            Self::Refused(status) => {
                let again = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
                status.is_server_error() || again.contains(status)
            }
            Self::Unreachable(_) | Self::Http(_) | Self::HungUp | Self::Silent => true,
        }
    }
}

/// Sends a request, which may take so long as a whole.
pub async fn post(post: &Post<'_>, deadline: Duration) -> Result<(), PostError> {
    timeout(deadline, exchange(post)).await.unwrap_or(Err(PostError::Silent))
}

async fn exchange(post: &Post<'_>) -> Result<(), PostError> {
    let uri: Uri = post.url.parse().map_err(|_| PostError::Url)?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(PostError::Url);
    };
    let port = match (authority.port_u16(), scheme) {
        (Some(port), "http" | "https") => port,
        (None, "http") => 80,
        (None, "https") => 443,
        _ => return Err(PostError::Url),
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let request = request(post, &uri, authority.as_str())?;
    let config = if scheme == "https" { Some(trusting(post.authority)?) } else { None };
    let stream = TcpStream::connect((host, port)).await?;
    let Some(config) = config else { return send(stream, request).await };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| PostError::Url)?;
    send(TlsConnector::from(config).connect(name, stream).await?, request).await
}

fn request(post: &Post<'_>, uri: &Uri, host: &str) -> Result<Request<Full<Bytes>>, PostError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut request = Request::post(path)
        .header(HOST, host)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("postern/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close");
    if let Some(token) = post.token {
        let value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| PostError::Url)?;
        request = request.header(AUTHORIZATION, value);
    }
    request.body(Full::new(post.body.clone())).map_err(|_| PostError::Url)
}

/// TLS with who is trusted: one authority, or those of the machine.
pub(crate) fn trusting(authority: Option<&[u8]>) -> Result<Arc<ClientConfig>, PostError> {
    let wrong = |why: String| PostError::Authorities(why);
    let mut roots = RootCertStore::empty();
    if let Some(der) = authority {
        roots.add(CertificateDer::from(der.to_vec())).map_err(|error| wrong(error.to_string()))?;
    } else {
        let file = AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
        let file = file.ok_or_else(|| wrong("there are none: apt-get install ca-certificates".to_owned()))?;
        let all = CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?;
        roots.add_parsable_certificates(all.flatten());
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| wrong(error.to_string()))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

async fn send<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(), PostError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = hyper::client::conn::http1::Builder::new();
    let builder = builder.max_buf_size(LONGEST_HEAD);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    let mut answer = pin!(sender.send_request(request));
    let mut connection = pin!(connection);
    let answer = tokio::select! {
        biased;
        answer = &mut answer => answer,
        // A server may close the connection together with its answer, which is there then.
        ended = &mut connection => match ended {
            Ok(()) => answer.await,
            Err(error) => Err(error),
        },
    };
    let status = match answer {
        Ok(answer) => answer.status(),
        Err(error) if error.is_incomplete_message() || error.is_canceled() => return Err(PostError::HungUp),
        Err(error) => return Err(error.into()),
    };
    if status.is_success() { Ok(()) } else { Err(PostError::Refused(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// A server that answers one request with this; its port, and what it was sent.
    async fn server(answer: &'static [u8]) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let served = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            converse(stream, answer).await
        });
        (port, served)
    }

    async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &[u8]) -> String {
        let mut read = Vec::new();
        while !read.ends_with(b"{}") {
            let mut bytes = [0; 1024];
            match stream.read(&mut bytes).await {
                Ok(count @ 1..) => read.extend(&bytes[..count]),
                _ => break,
            }
        }
        let _ = stream.write_all(answer).await;
        String::from_utf8(read).expect("text")
    }

    fn to(url: &str) -> Post<'_> {
        Post { url, token: Some("secret"), authority: None, body: Bytes::from_static(b"{}") }
    }

    #[tokio::test]
    async fn a_request_has_its_headers_and_only_the_status_of_the_answer_counts() {
        let (port, served) = server(b"HTTP/1.1 204 No Content\r\n\r\n").await;
        post(&to(&format!("http://127.0.0.1:{port}/a?b=c")), DEADLINE).await.expect("it arrives");
        let said = served.await.expect("served").to_lowercase();
        assert!(said.starts_with("post /a?b=c http/1.1\r\n") && said.ends_with("\r\n\r\n{}"), "{said}");
        assert!(said.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{said}");
        assert!(said.contains("authorization: bearer secret\r\n"), "{said}");
        // A body that never ends is not waited for.
        let (port, _) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\nabc").await;
        post(&to(&format!("http://127.0.0.1:{port}/")), DEADLINE).await.expect("it arrives");
    }

    #[tokio::test]
    async fn what_may_pass_is_told_from_what_does_not() {
        let failed = async |answer| {
            let (port, _served) = server(answer).await;
            let url = format!("http://127.0.0.1:{port}/");
            post(&to(&url), DEADLINE).await.expect_err("no success")
        };
        for (answer, said, is_temporary) in [
            (&b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n"[..], "it answers 503", true),
            (b"HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n", "it answers 429", true),
            (b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", "it answers 404", false),
            (b"HTTP/1.1 302 No\r\nlocation: http://a/\r\ncontent-length: 0\r\n\r\n", "it answers 302", false),
            (b"220 mail\r\n", "it does not speak HTTP", true),
        ] {
            let error = failed(answer).await;
            assert!(error.to_string().contains(said), "{error}");
            assert_eq!(error.is_temporary(), is_temporary, "{error}");
        }
        static ENDLESS: [u8; 100_000] = [b'a'; 100_000];
        let error = failed(&ENDLESS).await;
        assert!(matches!(error, PostError::Http(_)), "a head without an end: {error}");
        for url in ["ftp://127.0.0.1/", "/a", "http:///", "127.0.0.1"] {
            assert!(matches!(post(&to(url), DEADLINE).await, Err(PostError::Url)), "{url}");
        }
    }

    #[tokio::test]
    async fn one_that_never_answers_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let error = post(&to(&url), Duration::from_millis(50)).await.expect_err("silence");
        assert!(matches!(error, PostError::Silent) && error.is_temporary());
    }

    #[tokio::test]
    async fn a_certificate_counts_only_with_its_authority() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("signed").der().clone();
        let provider = Arc::new(default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = builder.with_no_client_auth().with_single_cert(vec![certificate.clone()], key);
        let acceptor = TlsAcceptor::from(Arc::new(config.expect("it fits")));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://localhost:{}/", listener.local_addr().expect("bound").port());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a client");
                if let Ok(stream) = acceptor.accept(stream).await {
                    converse(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        });
        let trusting = Post { authority: Some(&certificate), ..to(&url) };
        post(&trusting, DEADLINE).await.expect("it is trusted");
        let other = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let other = parameters.self_signed(&other).expect("signed").der().clone();
        let distrusting = Post { authority: Some(&other), ..to(&url) };
        let error = post(&distrusting, DEADLINE).await.expect_err("another one").to_string();
        assert!(error.contains("cannot be reached") && error.contains("certificate"), "{error}");
    }
}
