//! SHA-512 crypt, after Ulrich Drepper's "Unix crypt using SHA-256 and SHA-512".

use aws_lc_rs::digest::{Context, SHA512, SHA512_OUTPUT_LEN};
use zeroize::Zeroizing;

type Digest = [u8; SHA512_OUTPUT_LEN];

/// The digest of a password, in the order in which it is written as text. It takes the square of the password's length.
pub(super) fn digest(password: &[u8], salt: &[u8], rounds: u32) -> Digest {
    let between = sha512(&[password, salt, password]);
    let mut first = Context::new(&SHA512);
    first.update(password);
    first.update(salt);
    first.update(&stretched(&between, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        first.update(if bits & 1 == 1 { &between[..] } else { password });
        bits >>= 1;
    }
    let mut last = finished(first);
    let password = stretched(&sha512(&vec![password; password.len()]), password.len());
    let salt = stretched(&sha512(&vec![salt; 16 + usize::from(last[0])]), salt.len());
    for round in 0..rounds {
        let is_odd = round % 2 == 1;
        let mut next = Context::new(&SHA512);
        next.update(if is_odd { &password } else { &last[..] });
        if round % 3 != 0 {
            next.update(&salt);
        }
        if round % 7 != 0 {
            next.update(&password);
        }
        next.update(if is_odd { &last[..] } else { &password });
        last = finished(next);
    }
    written(&last)
}

/// The digest of several texts, one after the other.
fn sha512(texts: &[&[u8]]) -> Zeroizing<Digest> {
    let mut context = Context::new(&SHA512);
    for text in texts {
        context.update(text);
    }
    finished(context)
}

fn finished(context: Context) -> Zeroizing<Digest> {
    let mut digest = Zeroizing::new([0; SHA512_OUTPUT_LEN]);
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// A digest, repeated to this length.
fn stretched(digest: &Digest, length: usize) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(length));
    bytes.extend(digest.iter().cycle().take(length));
    bytes
}

/// The text has the bytes in groups of three, each with the least significant one first.
fn written(digest: &Digest) -> Digest {
    let mut written = [0; SHA512_OUTPUT_LEN];
    let mut group = [0, 21, 42];
    for three in written.chunks_exact_mut(3) {
        let [a, b, c] = group;
        three.copy_from_slice(&[digest[c], digest[b], digest[a]]);
        group = [b + 1, c + 1, a + 1];
    }
    written[SHA512_OUTPUT_LEN - 1] = digest[SHA512_OUTPUT_LEN - 1];
    written
}
