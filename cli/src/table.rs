//! Tables as VyOS prints them: a head, a row of dashes, columns two spaces apart.

/// Renders rows under a head; numbers stand right, words left.
pub(crate) fn render(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let is_number = |column: usize| {
        let mut cells = rows.iter().map(|row| &row[column]).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(|cell| cell.parse::<f64>().is_ok())
    };
    let right: Vec<bool> = (0..head.len()).map(is_number).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let mut text = line(&head) + &line(&dashes);
    text.extend(rows.iter().map(|row| line(row)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_right_and_words_left() {
        let rows = vec![vec!["bad-tag".to_owned(), "7".to_owned()], vec!["x".to_owned(), "1234".to_owned()]];
        assert_eq!(
            render(&["Reason", "Count"], &rows),
            "Reason   Count\n-------  -----\nbad-tag      7\nx         1234\n"
        );
    }
}
