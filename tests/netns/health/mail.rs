//! Mail as a receiver of alerts, to a server that takes it and to others that do harm.

use super::receivers::receiver;
use crate::daemon::{Site, lines};
use crate::support::{PATIENCE, answers};
use crate::transactions::Router;
use base64ct::{Base64, Encoding};
use lab::wait_until;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Speaks SMTP with whoever connects, and passes on what it is told.
fn serve(listener: &TcpListener, sender: &Sender<String>) {
    for stream in listener.incoming().flatten() {
        if let Some(said) = converse(stream)
            && sender.send(said).is_err()
        {
            return;
        }
    }
}

fn converse(mut stream: TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut said = String::new();
    stream.write_all(b"220 mail.test\r\n").ok()?;
    let mut is_text = false;
    loop {
        let before = said.len();
        if reader.read_line(&mut said).ok()? == 0 {
            return Some(said);
        }
        let line = said[before..].trim_end();
        let answer: &[u8] = match line.split_whitespace().next().unwrap_or_default() {
            "." if is_text => {
                is_text = false;
                b"250 taken\r\n"
            }
            _ if is_text => continue,
            "EHLO" => b"250-mail.test\r\n250 AUTH PLAIN\r\n",
            "AUTH" => b"235 in\r\n",
            "DATA" => {
                is_text = true;
                b"354 go\r\n"
            }
            "QUIT" => b"221 bye\r\n",
            _ => b"250 ok\r\n",
        };
        stream.write_all(answer).ok()?;
    }
}

/// The next mail about a rule. On a slow machine the tunnel comes up late, and `tunnel-down` sends mail, too.
fn mail_about(rule: &str, mails: &Receiver<String>) -> String {
    loop {
        let said = mails.recv_timeout(Duration::from_secs(60)).expect(rule);
        if said.lines().any(|line| line.starts_with("Subject: ") && line.contains(rule)) {
            return said;
        }
    }
}

#[test]
fn alerts_are_mailed_and_servers_that_do_harm_delay_nobody() {
    let Some(mut router) = Router::stopped() else { return };
    let mut b = Site::new(&router.lab, "b", &router.keys[1].0);
    b.write(&lines(1, &router.keys[0].1, &[]));
    router.site.start_with(&mut router.lab, &["run"], "info", PATIENCE).expect("it starts");
    b.start(&mut router.lab);
    wait_until(PATIENCE, || answers(&router.lab, "a", "10.66.0.2")).expect("a tunnel");
    let bind = || TcpListener::bind("127.0.0.1:0");
    let [good, endless, silent, refuses] =
        [(); 4].map(|()| router.lab.enter("a", bind).expect("a namespace").expect("a port"));
    let port = |listener: &TcpListener| listener.local_addr().expect("bound").port();
    let mut wanted = vec!["set service health rule offload-off duration 0".to_owned()];
    for (name, listener) in
        [("a-silent", &silent), ("b-endless", &endless), ("c-refuses", &refuses), ("good", &good)]
    {
        let path = format!("set service health alert {name} mail");
        wanted.push(format!("{path} to operator@example.net"));
        wanted.push(format!("{path} server 127.0.0.1"));
        wanted.push(format!("{path} port {}", port(listener)));
        wanted.push(format!("{path} tls none"));
    }
    wanted.push("set service health alert good mail user me".to_owned());
    wanted.push("set service health alert good mail password secret".to_owned());
    let (sender, mails) = channel();
    std::thread::spawn(move || serve(&good, &sender));
    std::thread::spawn(move || {
        for mut stream in endless.incoming().flatten() {
            while stream.write_all(&[b'2'; 8_192]).is_ok() {}
        }
    });
    std::thread::spawn(move || {
        for mut stream in refuses.incoming().flatten() {
            let _ = stream.write_all(b"554 5.7.1 not \x1b[31mfor you\r\n");
        }
    });
    router.commits(&wanted.iter().map(String::as_str).collect::<Vec<_>>());
    router.commits(&["set interfaces wireguard wg0 disable-offload tun-uso"]);
    let said = mail_about("offload-off", &mails);
    for line in
        ["MAIL FROM:<postern@", "RCPT TO:<operator@example.net>", "Subject: [firing] warning offload-off on "]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    let (_, body) = said.split_once("base64\r\n\r\n").expect("a text");
    let body = body.split("\r\n.\r\n").next().expect("it ends").replace("\r\n", "");
    let text = String::from_utf8(Base64::decode_vec(&body).expect("base64")).expect("text");
    assert!(
        text.contains("tun-uso of wg0 is switched off")
            && text.contains("fix: delete interfaces wireguard wg0"),
        "{text}"
    );
    let failed = |name: &str, why: &str| {
        let is = || {
            let report = receiver(&router, name);
            report["failed"] == 1 && report["problem"].as_str().is_some_and(|problem| problem.contains(why))
        };
        wait_until(PATIENCE, is).unwrap_or_else(|error| panic!("{error}: {}", receiver(&router, name)));
    };
    failed("b-endless", "does not speak SMTP");
    failed("c-refuses", "to the connection it answers 554 5.7.1 not ?[31mfor you");
    let untold = receiver(&router, "a-silent");
    assert!(untold["delivered"] == 0 && untold["failed"] == 0, "it is waited for: {untold}");
    // Neither a commit nor a packet waits for it.
    router.commits(&["delete interfaces wireguard wg0 disable-offload"]);
    assert!(answers(&router.lab, "a", "10.66.0.2"));
    let said = mail_about("offload-off", &mails);
    assert!(said.contains("Subject: [resolved] "), "{said}");
}
