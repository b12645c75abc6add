//! `processors`: where the threads of an interface stay.

use std::fmt;
use std::str::FromStr;

/// The numbers of processors are smaller: the kernel's sets of them have so many bits.
const END: u16 = 1024;

/// Processors, in the order in which threads take them; without any, threads run wherever the kernel lets them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processors(Vec<u16>);

/// A text is not a list of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotProcessors;

impl Processors {
    /// Their numbers, each once.
    pub fn numbers(&self) -> &[u16] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are not among `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        Self(self.0.iter().copied().filter(|number| !others.0.contains(number)).collect())
    }
}

impl FromIterator<u16> for Processors {
    fn from_iter<T: IntoIterator<Item = u16>>(numbers: T) -> Self {
        Self(numbers.into_iter().collect())
    }
}

/// Numbers and ranges, as `taskset --cpu-list` takes them: `2-5,8`. None may be there twice.
impl FromStr for Processors {
    type Err = NotProcessors;

    fn from_str(text: &str) -> Result<Self, NotProcessors> {
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let [first, last] = [number(first)?, number(last)?];
            if first > last || numbers.iter().any(|number| (first..=last).contains(number)) {
                return Err(NotProcessors);
            }
            numbers.extend(first..=last);
        }
        Ok(Self(numbers))
    }
}

fn number(text: &str) -> Result<u16, NotProcessors> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| is_number && number < END).ok_or(NotProcessors)
}

/// The same form, with ranges where numbers follow each other.
impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let follow = |one: &u16, next: &u16| one + 1 == *next;
        for (place, range) in self.0.chunk_by(follow).enumerate() {
            f.write_str(if place == 0 { "" } else { "," })?;
            match range {
                [first, .., last] => write!(f, "{first}-{last}")?,
                only => only.iter().try_for_each(|number| write!(f, "{number}"))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order_and_are_printed_as_they_are_written() {
        for (text, numbers) in
            [("0", &[0][..]), ("2-5,8", &[2, 3, 4, 5, 8]), ("8,2-3,1", &[8, 2, 3, 1]), ("1023", &[1023])]
        {
            let processors: Processors = text.parse().expect("right");
            assert_eq!((processors.numbers(), processors.to_string().as_str()), (numbers, text));
        }
        assert_eq!("4,5,6-7".parse::<Processors>().expect("right").to_string(), "4-7");
        assert_eq!(Processors::default().to_string(), "");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "", ",", "1,", "-", "1-", "-1", "3-2", "1,1", "1-3,2", "2,1-3", "1024", "0-65535", "+1", "a",
            "1 2",
        ] {
            assert_eq!(text.parse::<Processors>(), Err(NotProcessors), "{text:?}");
        }
    }
}
