use super::*;
use rustls::crypto::aws_lc_rs::default_provider;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

const DEADLINE: Duration = Duration::from_secs(20);

/// A server that answers each line with the next of these, and then says nothing; what it was sent.
async fn server(answers: &'static [&'static str]) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client");
        answer(&mut stream, answers, true).await
    });
    (port, served)
}

/// Answers each line with the next of these, the first of which needs none if the server speaks first; what it was sent.
async fn answer<S>(stream: &mut S, answers: &[&str], speaks_first: bool) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut read = String::new();
    for (at, answer) in answers.iter().enumerate() {
        let ends = if at > 0 && answers[at - 1].starts_with("354") { "\r\n.\r\n" } else { "\r\n" };
        let before = read.len();
        let needs_none = at == 0 && speaks_first;
        while !(needs_none || read.len() > before && read.ends_with(ends)) {
            let mut bytes = [0; 512];
            match stream.read(&mut bytes).await {
                Ok(count @ 1..) => read.push_str(&String::from_utf8_lossy(&bytes[..count])),
                _ => return read,
            }
        }
        if stream.write_all(answer.as_bytes()).await.is_err() {
            break;
        }
    }
    read
}

fn to(port: u16, login: Option<(&'static str, &'static str)>) -> Server<'static> {
    let (host, own_name) = ("127.0.0.1", "gw.example");
    Server { host, port, protection: Protection::Nothing, authority: None, login, own_name }
}

const MESSAGE: Message<'static> =
    Message { from: "a@b.example", to: &["c@d.example"], text: "Subject: x\r\n\r\nbody\r\n" };

#[tokio::test]
async fn a_message_is_handed_over_with_a_password() {
    let (port, served) = server(&[
        "220 mail\r\n",
        "250-mail\r\n250-SIZE 1000\r\n250 AUTH LOGIN PLAIN\r\n",
        "235 in\r\n",
        "250 ok\r\n",
        "251 elsewhere\r\n",
        "354 go\r\n",
        "250 taken\r\n",
        "221 bye\r\n",
    ])
    .await;
    let refused = send(&to(port, Some(("me", "secret"))), &MESSAGE, DEADLINE).await.expect("it is taken");
    assert!(refused.is_empty());
    assert_eq!(
        served.await.expect("served"),
        "EHLO gw.example\r\nAUTH PLAIN AG1lAHNlY3JldA==\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n\
         Subject: x\r\n\r\nbody\r\n.\r\nQUIT\r\n"
    );
}

#[tokio::test]
async fn refusals_are_told_with_the_command_and_what_may_pass_is_tried_again() {
    for (answers, said, is_temporary) in [
        (&["554 go away\x07\r\n"][..], "to the connection it answers 554 go away?", false),
        (&["220 a\r\n", "250 a\r\n", "451 later\r\n"], "to MAIL FROM it answers 451 later", true),
        (
            &["220 a\r\n", "250 a\r\n", "250 a\r\n", "550 no such user\r\n"],
            "to RCPT TO it answers 550",
            false,
        ),
        (&["HTTP/1.1 400 no\r\n"], "it does not speak SMTP", false),
        (&["220 a\r\n", "250-a\r\n250+b\r\n"], "it does not speak SMTP", false),
    ] {
        let (port, _served) = server(answers).await;
        let error = send(&to(port, None), &MESSAGE, DEADLINE).await.expect_err(said);
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(error.is_temporary(), is_temporary, "{error}");
    }
    let (port, _served) = server(&["220 a\r\n", "250 a\r\n"]).await;
    let error = send(&to(port, Some(("a", "b"))), &MESSAGE, DEADLINE).await.expect_err("no way");
    assert!(matches!(error, MailError::NoLogin), "{error}");
}

#[tokio::test]
async fn an_address_that_is_refused_keeps_the_message_from_no_other() {
    const BEGIN: [&str; 3] = ["220 a\r\n", "250 a\r\n", "250 ok\r\n"];
    let two = Message { to: &["gone@d.example", "c@d.example"], ..MESSAGE };
    let (port, served) = server(&[
        "220 a\r\n",
        "250 a\r\n",
        "250 ok\r\n",
        "550 no such user\r\n",
        "250 ok\r\n",
        "354 go\r\n",
        "250 taken\r\n",
        "221 bye\r\n",
    ])
    .await;
    let refused = send(&to(port, None), &two, DEADLINE).await.expect("one is taken");
    assert!(served.await.expect("served").contains("RCPT TO:<c@d.example>\r\nDATA\r\n"));
    let [(address, why)] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!((&**address, why.to_string().contains("550 no such user")), ("gone@d.example", true));
    // If all are refused there is another try if it helps one of them.
    for (answers, said, is_temporary) in [
        (&[&BEGIN[..], &["550 no\r\n", "551 no\r\n"]].concat()[..], "551 no", false),
        (&[&BEGIN[..], &["450 later\r\n", "551 no\r\n"]].concat(), "450 later", true),
        (&[&BEGIN[..], &["250 ok\r\n", "421 bye\r\n"]].concat(), "421 bye", true),
    ] {
        let (port, _served) = server(answers.to_vec().leak()).await;
        let error = send(&to(port, None), &two, DEADLINE).await.expect_err(said);
        assert!(error.to_string().contains(said) && error.is_temporary() == is_temporary, "{error}");
    }
}

#[tokio::test]
async fn a_name_that_is_no_host_name_is_reported_as_such() {
    let server = Server { host: "mail server", protection: Protection::Tls, ..to(25, None) };
    let error = send(&server, &MESSAGE, DEADLINE).await.expect_err("no name");
    assert!(matches!(error, MailError::Name(_)) && !error.is_temporary(), "{error}");
    assert!(error.to_string().contains("mail server") && !error.to_string().contains("URL"), "{error}");
}

#[tokio::test]
async fn a_server_without_starttls_gets_no_message() {
    let (port, served) = server(&["220 a\r\n", "250 a\r\n", "never"]).await;
    let der =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("signed").cert.der().to_vec();
    let server = Server { protection: Protection::StartTls, authority: Some(&der), ..to(port, None) };
    let error = send(&server, &MESSAGE, DEADLINE).await.expect_err("it is not sent in clear");
    assert!(matches!(error, MailError::NoStartTls) && !error.to_string().contains("none"), "{error}");
    assert_eq!(served.await.expect("served"), "EHLO gw.example\r\n");
    // What a third party adds to the answer is not taken for the server's.
    let (port, _served) =
        self::server(&["220 a\r\n", "250-a\r\n250 STARTTLS\r\n", "220 go\r\n250 injected\r\n"]).await;
    let server = Server { port, ..server };
    assert!(matches!(send(&server, &MESSAGE, DEADLINE).await, Err(MailError::NoSmtp)));
}

#[tokio::test]
async fn a_message_is_sent_by_tls_from_the_first_byte_or_after_starttls() {
    const REST: &[&str] =
        &["250 a\r\n", "250 ok\r\n", "250 ok\r\n", "354 go\r\n", "250 taken\r\n", "221 bye\r\n"];
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("signed");
    let der = signed.cert.der().clone();
    let builder = rustls::ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).expect("a key");
    let config = builder.with_single_cert(vec![der.clone()], key).expect("it fits");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    for protection in [Protection::StartTls, Protection::Tls] {
        let server = Server { host: "localhost", protection, authority: Some(&der), ..to(port, None) };
        let (sent, said) = tokio::join!(send(&server, &MESSAGE, DEADLINE), async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let is_plain = protection == Protection::StartTls;
            if is_plain {
                let begin = ["220 a\r\n", "250-a\r\n250 STARTTLS\r\n", "220 go\r\n"];
                answer(&mut stream, &begin, true).await;
            }
            let mut stream = acceptor.accept(stream).await.expect("TLS");
            if !is_plain {
                stream.write_all(b"220 a\r\n").await.expect("sent");
            }
            answer(&mut stream, REST, false).await
        });
        sent.expect("it is taken");
        assert!(said.starts_with("EHLO gw.example\r\nMAIL FROM:<a@b.example>\r\n"), "{said}");
    }
    let other =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("signed").cert.der().to_vec();
    let server =
        Server { host: "localhost", protection: Protection::Tls, authority: Some(&other), ..to(port, None) };
    let (sent, _) = tokio::join!(send(&server, &MESSAGE, DEADLINE), async {
        let (stream, _) = listener.accept().await.expect("a client");
        acceptor.accept(stream).await.is_ok()
    });
    assert!(sent.expect_err("another authority").to_string().contains("certificate"));
}

#[tokio::test]
async fn one_that_is_silent_or_never_ends_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let error = send(&to(port, None), &MESSAGE, Duration::from_millis(100)).await.expect_err("silence");
    assert!(matches!(error, MailError::Silent) && error.is_temporary());
    drop(listener.accept().await);
    for piece in [&b"220-again and again\r\n"[..], b"220 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
        let plain = to(port, None);
        let error = tokio::join!(send(&plain, &MESSAGE, DEADLINE), async {
            let (mut stream, _) = listener.accept().await.expect("a client");
            while stream.write_all(piece).await.is_ok() {}
        });
        assert!(matches!(error.0, Err(MailError::NoSmtp)), "{:?}", error.0);
    }
}

#[test]
fn answers_are_read_one_by_one() {
    let parse = |text: &str| Reply::parse(text.as_bytes());
    let reply = |code, lines: &[&str]| Reply { code, lines: lines.iter().map(|&it| it.to_owned()).collect() };
    assert_eq!(parse("250-a\r\n250 b\r\n221 c\r\n").expect("two"), Some((reply(250, &["a", "b"]), 14)));
    assert_eq!(parse("250\n").expect("short"), Some((reply(250, &[""]), 4)));
    for begun in ["", "2", "250-a\r\n", "250 a"] {
        assert_eq!(parse(begun).expect("begun"), None, "{begun}");
    }
    for wrong in ["\r\n", "25 a\r\n", "2a0 b\r\n", "250_a\r\n", "\u{e9}\u{e9} a\r\n"] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}
