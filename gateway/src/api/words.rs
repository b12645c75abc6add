//! Enumerations of the API: each variant has one JSON word, which is also the word that people read.

/// An enumeration whose variants travel as words; the variant marked as default stands for a field that is missing.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident { $($(#[$means:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        pub enum $name {
            $($(#[$means])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// The word for it, the same as in JSON.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.pad(self.name())
            }
        }
    )+};
}

pub(crate) use words;

/// Checks the JSON word of each variant: clients of other versions, and scripts, read these words.
#[cfg(test)]
pub(crate) fn check<T>(words: &[(T, &str)])
where
    T: Copy
        + PartialEq
        + std::fmt::Debug
        + std::fmt::Display
        + serde::Serialize
        + serde::de::DeserializeOwned,
{
    for &(state, word) in words {
        let json = format!("\"{word}\"");
        assert_eq!(serde_json::to_string(&state).expect("it is a word"), json);
        assert_eq!(serde_json::from_str::<T>(&json).expect(word), state);
        assert_eq!(state.to_string(), word);
    }
    assert!(serde_json::from_str::<T>("\"another\"").is_err());
}
