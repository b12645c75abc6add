//! Sets of cores: `-c` in hexadecimal, `-l` as a list, `--lcores` with the processors of each lcore.

use std::collections::{BTreeMap, BTreeSet};

/// The most lcores.
pub(super) const MOST: u32 = 128;

/// The lcores, each with its processors.
pub(super) type Cores = BTreeMap<u32, BTreeSet<u32>>;

/// One lcore for each processor, under its number.
pub(super) fn each(cores: impl IntoIterator<Item = u32>) -> Cores {
    cores.into_iter().map(|core| (core, BTreeSet::from([core]))).collect()
}

/// `-c`: a bit for each core.
pub(super) fn mask(text: &str) -> Option<Cores> {
    let text = text.trim_matches([' ', '\t']);
    let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
    let mut cores = BTreeSet::new();
    for (nibble, digit) in digits.chars().rev().enumerate() {
        let value = digit.to_digit(16)?;
        cores.extend((0..4).filter(|bit| value >> bit & 1 == 1).map(|bit| nibble as u32 * 4 + bit));
    }
    plausible(&cores).then(|| each(cores))
}

/// `-l`: numbers and ranges with commas between.
pub(super) fn list(text: &str) -> Option<Cores> {
    let cores = set(text.trim_matches([' ', '\t']))?;
    plausible(&cores).then(|| each(cores))
}

/// `--lcores`: lcores, each with `@` and its processors if these have other numbers; several of either stand in parentheses.
pub(super) fn map(text: &str) -> Option<Cores> {
    let mut cores = Cores::new();
    for entry in entries(text)? {
        let (left, right) = match entry.split_once('@') {
            Some((left, right)) => (left, Some(right)),
            None => (entry, None),
        };
        let lcores = group(left)?;
        let processors = match right {
            Some(right) => Some(group(right)?),
            None => None,
        };
        for &lcore in &lcores {
            // A range without parentheses is a short form: each lcore has the processor of its number.
            let own = || if left.starts_with('(') { lcores.clone() } else { BTreeSet::from([lcore]) };
            cores.insert(lcore, processors.clone().unwrap_or_else(own));
        }
    }
    plausible(&cores.keys().copied().collect()).then_some(cores)
}

/// The parts between the commas that stand outside of parentheses.
fn entries(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut start, mut entries) = (0_u32, 0, Vec::new());
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                entries.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    entries.push(text[start..].trim());
    (depth == 0).then_some(entries)
}

fn group(text: &str) -> Option<BTreeSet<u32>> {
    let text = text.trim();
    match text.strip_prefix('(') {
        Some(inner) => set(inner.strip_suffix(')')?),
        None if text.contains(',') => None,
        None => set(text),
    }
}

fn set(text: &str) -> Option<BTreeSet<u32>> {
    let mut cores = BTreeSet::new();
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|&core| core < 1024);
    for part in text.split(',') {
        match part.split_once('-') {
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                cores.extend(first.min(last)..=first.max(last));
            }
            None => {
                cores.insert(number(part)?);
            }
        }
    }
    Some(cores)
}

fn plausible(cores: &BTreeSet<u32>) -> bool {
    !cores.is_empty() && cores.iter().all(|&core| core < MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(cores: Option<Cores>) -> Vec<u32> {
        cores.expect("they are cores").into_keys().collect()
    }

    #[test]
    fn cores_are_a_mask_a_list_or_a_map() {
        assert_eq!(numbers(mask("0x15")), [0, 2, 4]);
        assert_eq!(numbers(list("0-2,5")), [0, 1, 2, 5]);
        assert_eq!(numbers(list("3-1")), [1, 2, 3]);
        let cores = map("0@1,(1,2)@(4-5),7-8").expect("they are cores");
        assert_eq!(cores[&0], BTreeSet::from([1]));
        assert_eq!((&cores[&1], &cores[&2]), (&BTreeSet::from([4, 5]), &BTreeSet::from([4, 5])));
        assert_eq!(cores[&8], BTreeSet::from([8]));
        assert_eq!(map("(0-1)").expect("they are cores")[&0], BTreeSet::from([0, 1]));
    }

    #[test]
    fn what_names_no_core_is_none() {
        for text in ["", "0", "xyz"] {
            assert_eq!(mask(text), None, "{text}");
        }
        for text in ["", "a", "1,", "200", "-"] {
            assert_eq!((list(text), map(text)), (None, None), "{text}");
        }
        assert_eq!((map("(0,1"), map("0,1)"), map("0@")), (None, None, None));
    }
}
