//! Diffie-Hellman over the integers modulo a prime (MODP, RFC 2409 section 6.2 and RFC 3526).
//!
//! The primes are safe: p = 2q + 1 with q prime. So every number except 0, 1 and p - 1 has order q or 2q, and a peer
//! cannot learn bits of our exponent with a value of small order.

use super::comb::Comb;
use crate::{Random, SecretBytes};
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize};
use std::sync::OnceLock;
use zeroize::{Zeroize, Zeroizing};

/// A group by the length of its prime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Modp {
    Bits1024,
    Bits1536,
    Bits2048,
    Bits3072,
    Bits4096,
    Bits6144,
    Bits8192,
}

const GROUPS: usize = 7;

/// An exponent below 2^[`Modp::exponent_bits`].
pub(super) struct Exponent(Zeroizing<Vec<u8>>);

/// The precomputed values of a group.
struct Prepared {
    parameters: BoxedMontyParams,
    generator: Comb,
}

impl Modp {
    pub(super) fn bits(self) -> u32 {
        match self {
            Self::Bits1024 => 1024,
            Self::Bits1536 => 1536,
            Self::Bits2048 => 2048,
            Self::Bits3072 => 3072,
            Self::Bits4096 => 4096,
            Self::Bits6144 => 6144,
            Self::Bits8192 => 8192,
        }
    }

    /// Length in bytes of a public value and of a shared secret.
    pub(super) fn length(self) -> usize {
        self.bits() as usize / 8
    }

    /// Length of a private exponent in bits. In a group with a safe prime, the best attack on a short exponent takes
    /// the square root of 2^bits steps (Pollard's lambda). So more than twice the strength of the prime costs time and
    /// gains nothing. RFC 7919, appendix A, asks for 225, 275, 325, 375 and 400 bits from 2048 bits on. These are the
    /// next multiples of 16, as the comb needs.
    pub(super) fn exponent_bits(self) -> u32 {
        match self {
            Self::Bits1024 | Self::Bits1536 | Self::Bits2048 => 240,
            Self::Bits3072 => 288,
            Self::Bits4096 => 336,
            Self::Bits6144 => 384,
            Self::Bits8192 => 400,
        }
    }

    /// The number in the definition of the prime that is added to the digits of pi: the least that makes a safe prime.
    fn addend(self) -> u32 {
        match self {
            Self::Bits1024 => 129_093,
            Self::Bits1536 => 741_804,
            Self::Bits2048 => 124_476,
            Self::Bits3072 => 1_690_314,
            Self::Bits4096 => 240_904,
            Self::Bits6144 => 929_484,
            Self::Bits8192 => 4_743_158,
        }
    }

    /// 2^n - 2^(n-64) - 1 + 2^64 * ([2^(n-130) pi] + addend), the definition in RFC 3526.
    fn prime(self) -> Odd<BoxedUint> {
        let bits = self.bits();
        let pi = BoxedUint::from_be_hex(PI, 4 * PI.len() as u32).expect("these are digits");
        let middle = pi.wrapping_shr_vartime(Self::Bits8192.bits() - bits).resize(bits);
        let one = BoxedUint::one_with_precision(bits);
        let prime = middle
            .wrapping_add(BoxedUint::from(self.addend()).resize(bits))
            .wrapping_shl_vartime(64)
            .wrapping_sub(one.wrapping_shl_vartime(bits - 64))
            .wrapping_sub(one);
        Odd::new(prime).expect("the last 64 bits of the prime are ones")
    }

    fn prepared(self) -> &'static Prepared {
        static PREPARED: [OnceLock<Prepared>; GROUPS] = [const { OnceLock::new() }; GROUPS];
        PREPARED[self as usize].get_or_init(|| {
            let parameters = BoxedMontyParams::new_vartime(self.prime());
            let two = BoxedMontyForm::new(BoxedUint::from(2u8).resize(self.bits()), &parameters);
            Prepared { generator: Comb::new(&two, self.exponent_bits() as usize), parameters }
        })
    }

    /// Generates an exponent and the public value 2^exponent.
    pub(super) fn generate(self, random: &mut dyn Random) -> (Exponent, Vec<u8>) {
        let mut exponent = Zeroizing::new(vec![0; self.exponent_bits() as usize / 8]);
        random.fill(&mut exponent);
        // Set the highest bit: exponents are never small, whatever the source of randomness returns.
        exponent[0] |= 0x80;
        let Prepared { parameters, generator } = self.prepared();
        let mut power = generator.power(&exponent, parameters);
        let public = power.retrieve().to_be_bytes().into_vec();
        power.zeroize();
        (Exponent(exponent), public)
    }

    /// The shared secret; `None` unless 1 < public < p - 1.
    pub(super) fn agree(self, exponent: &Exponent, public: &[u8]) -> Option<SecretBytes> {
        let public = BoxedUint::from_be_slice(public, self.bits()).ok()?;
        let one = BoxedUint::one_with_precision(self.bits());
        let highest = self.prepared().parameters.modulus().wrapping_sub(&one);
        let inside = public > one && public < highest;
        inside.then(|| SecretBytes::new(self.power(public, exponent).to_vec()))
    }

    /// base^exponent modulo the prime. The time depends only on the group.
    fn power(self, base: BoxedUint, exponent: &Exponent) -> Zeroizing<Box<[u8]>> {
        let bits = self.exponent_bits();
        let mut exponent = BoxedUint::from_be_slice(&exponent.0, bits).expect("it has this length");
        let mut power =
            BoxedMontyForm::new(base, &self.prepared().parameters).pow_bounded_exp(&exponent, bits);
        let mut result = power.retrieve();
        let bytes = Zeroizing::new(result.to_be_bytes());
        exponent.zeroize();
        power.zeroize();
        result.zeroize();
        bytes
    }
}

/// The integer part of 2^8062 pi. Each prime uses its leading digits.
#[rustfmt::skip]
const PI: &str = "\
    c90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74020bbea63b139b22514a08798e3404ddef9519b3cd3a431b\
    302b0a6df25f14374fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7edee386bfb5a899fa5\
    ae9f24117c4b1fe649286651ece45b3dc2007cb8a163bf0598da48361c55d39a69163fa8fd24cf5f83655d23dca3ad96\
    1c62f356208552bb9ed529077096966d670c354e4abc9804f1746c08ca18217c32905e462e36ce3be39e772c180e8603\
    9b2783a2ec07a28fb5c55df06f4c52c9de2bcbf6955817183995497cea956ae515d2261898fa051015728e5a8aaac42d\
    ad33170d04507a33a85521abdf1cba64ecfb850458dbef0a8aea71575d060c7db3970f85a6e1e4c7abf5ae8cdb0933d7\
    1e8c94e04a25619dcee3d2261ad2ee6bf12ffa06d98a0864d87602733ec86a64521f2b18177b200cbbe117577a615d6c\
    770988c0bad946e208e24fa074e5ab3143db5bfce0fd108e4b82d120a92108011a723c12a787e6d788719a10bdba5b26\
    99c327186af4e23c1a946834b6150bda2583e9ca2ad44ce8dbbbc2db04de8ef92e8efc141fbecaa6287c59474e6bc05d\
    99b2964fa090c3a2233ba186515be7ed1f612970cee2d7afb81bdd762170481cd0069127d5b05aa993b4ea988d8fddc1\
    86ffb7dc90a6c08f4df435c93402849236c3fab4d27c7026c1d4dcb2602646dec9751e763dba37bdf8ff9406ad9e530e\
    e5db382f413001aeb06a53ed9027d831179727b0865a8918da3edbebcf9b14ed44ce6cbaced4bb1bdb7f1447e6cc254b\
    332051512bd7af426fb8f401378cd2bf5983ca01c64b92ecf032ea15d1721d03f482d7ce6e74fef6d55e702f46980c82\
    b5a84031900b1c9e59e7c97fbec7e8f323a97a7e36cc88be0f1d45b7ff585ac54bd407b22b4154aacc8f6d7ebf48e1d8\
    14cc5ed20f8037e0a79715eef29be32806a1d58bb7c5da76f550aa3d8a1fbff0eb19ccb1a313d55cda56c9ec2ef29632\
    387fe8d76e3c0468043e8f663f4860ee12bf2d5b0b7474d6e694f91e6dbe115974a3926f12fee5e438777cb6a932df8c\
    d8bec4d073b931ba3bc832b68d9dd300741fa7bf8afc47ed2576f6936ba424663aab639c5ae4f5683423b4742bf1c978\
    238f16cbe39d652de3fdb8befc848ad922222e04a4037c0713eb57a81a23f0c73473fc646cea306b4bcbc8862f8385dd\
    fa9d4b7fa2c087e879683303ed5bdd3a062b3cf5b3a278a66d2a13f83f44f82ddf310ee074ab6a364597e899a0255dc1\
    64f31cc50846851df9ab48195ded7ea1b1d510bd7ee74d73faf36bc31ecfa268359046f4eb879f924009438b481c6cd7\
    889a002ed5ee382bc9190da6fc026e479558e4475677e9aa9e3050e2765694dfc81f56e880b96e7160c980dd98a573ea";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::System;

    const ALL: [Modp; GROUPS] = [
        Modp::Bits1024,
        Modp::Bits1536,
        Modp::Bits2048,
        Modp::Bits3072,
        Modp::Bits4096,
        Modp::Bits6144,
        Modp::Bits8192,
    ];

    #[test]
    fn only_numbers_between_1_and_the_prime_less_1_are_taken() {
        for group in ALL {
            let (exponent, _) = group.generate(&mut System::default());
            let takes = |number: &BoxedUint| group.agree(&exponent, &number.to_be_bytes()).is_some();
            let small = |number: u8| BoxedUint::from(number).resize(group.bits());
            let prime = group.prime();
            for refused in [small(0), small(1), prime.wrapping_sub(small(1)), prime.get()] {
                assert!(!takes(&refused), "{group:?} {refused}");
            }
            assert!(!takes(&BoxedUint::max(group.bits())), "{group:?}");
            let prime = group.prime();
            assert!(takes(&small(2)) && takes(&prime.wrapping_sub(small(2))), "{group:?}");
        }
    }

    /// RFC 2409, section 6.2.
    #[test]
    fn the_formula_gives_the_prime_of_group_2() {
        let prime = "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74\
                     020bbea63b139b22514a08798e3404ddef9519b3cd3a431b302b0a6df25f1437\
                     4fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed\
                     ee386bfb5a899fa5ae9f24117c4b1fe649286651ece65381ffffffffffffffff";
        assert_eq!(*Modp::Bits1024.prime(), BoxedUint::from_be_hex(prime, 1024).expect("digits"));
    }

    #[test]
    fn an_exponent_is_never_small() {
        struct Zero;
        impl Random for Zero {
            fn fill(&mut self, bytes: &mut [u8]) {
                bytes.fill(0);
            }
        }
        for group in ALL {
            let (exponent, public) = group.generate(&mut Zero);
            assert!(exponent.0[0] >= 0x80 && public.iter().any(|&byte| byte != 0), "{group:?}");
        }
    }
}
