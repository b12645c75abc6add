//! Certificates that OpenSSL accepts and rustls does not: each refusal names the cause. OpenSSL makes the certificates.

use rustls_pki_types::{CertificateDer, UnixTime};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use tunnel::openvpn::verify::PeerCheck;
use tunnel::openvpn::wrap::Role;

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn openssl(directory: &Path, line: &str) {
    let output =
        Command::new("openssl").current_dir(directory).args(line.split(' ')).output().expect("it runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The refusal of a server's certificate with an RSA key of `bits`, signed with `hash`, and made by `more` arguments.
fn refusal(directory: &Path, bits: u32, hash: &str, more: &str) -> String {
    openssl(
        directory,
        &format!("req -new -newkey rsa:{bits} -nodes -keyout key.pem -subj /CN=server -out own.csr"),
    );
    openssl(
        directory,
        &format!(
            "x509 -req -in own.csr -CA ca.pem -CAkey ca-key.pem -set_serial 7 -days 30 -{hash} -outform DER -out own.der{more}"
        ),
    );
    let read = |name| CertificateDer::from(std::fs::read(directory.join(name)).expect("made"));
    let mut check = PeerCheck::new(Role::Server);
    check.add_authority(&read("ca.der")).expect("a CA");
    let now = UnixTime::since_unix_epoch(SystemTime::UNIX_EPOCH.elapsed().expect("after 1970"));
    check.check(&read("own.der"), &[], now).expect_err("refused").to_string()
}

#[test]
fn each_refusal_that_openssl_would_not_make_names_its_cause() {
    if Command::new("openssl").arg("version").output().is_err() {
        assert!(std::env::var_os("NO_SKIP").is_none(), "needs openssl");
        return eprintln!("SKIPPED: needs openssl");
    }
    let directory = Directory(std::env::temp_dir().join(format!("ovpn-refusals-{}", std::process::id())));
    std::fs::create_dir_all(&directory.0).expect("a directory");
    let directory = &directory.0;
    for (bits, name) in [(2048, "ca"), (1024, "weak")] {
        openssl(
            directory,
            &format!(
                "req -x509 -newkey rsa:{bits} -nodes -keyout {name}-key.pem -subj /CN=CA -days 30 -out {name}.pem"
            ),
        );
        openssl(directory, &format!("x509 -in {name}.pem -outform DER -out {name}.der"));
    }
    std::fs::write(directory.join("v3"), "subjectAltName=DNS:server\n").expect("written");
    let with_version_3 = " -extfile v3";
    let version_1 = refusal(directory, 2048, "sha256", "");
    assert!(version_1.contains("version 1"), "{version_1}");
    let sha1 = refusal(directory, 2048, "sha1", with_version_3);
    assert!(sha1.contains("SHA-1"), "{sha1}");
    let own_short = refusal(directory, 1024, "sha256", with_version_3);
    assert!(own_short.contains("2048 to 8192 bits, this one has 1024"), "{own_short}");
    for name in ["ca-key.pem", "ca.pem", "ca.der"] {
        std::fs::copy(directory.join(name.replace("ca", "weak")), directory.join(name)).expect("copied");
    }
    let short = refusal(directory, 2048, "sha256", with_version_3);
    assert!(short.contains("below 2048 bits"), "{short}");
}
